"""What one plane needs from another that it does not import: the gateway's view of the rest."""

from collections.abc import Callable
from typing import Protocol, TypedDict

import msgspec

from tidewire.domain.delivery import Advance
from tidewire.domain.ids import ChatId, ClientMessageId, ConnectionId, SessionId, UserId
from tidewire.domain.messages import Amendment, AppendOutcome, MessageBody


class SendFacts(TypedDict, total=False):
    """The optional facts of a send, beside its text, its chat and its key."""

    seen_sequence: int | None
    origin_connection_id: ConnectionId | None
    deadline_at_ms: int | None
    amends: Amendment | None
    base: int | None


class MessageIntake(Protocol):
    """Takes messages in (`ingest.service.IngestService`)."""

    def submit_nowait(
        self,
        body: MessageBody,
        *,
        chat_id: ChatId,
        sender_id: UserId,
        client_message_id: ClientMessageId,
        done: Callable[[AppendOutcome], None],
        seen_sequence: int | None = None,
        origin_connection_id: ConnectionId | None = None,
        deadline_at_ms: int | None = None,
        is_checked: bool = False,
        amends: Amendment | None = None,
        base: int | None = None,
    ) -> None:
        """Have an entry stored: a message, or an amendment (`amends`). `done` is called once,
        later, with the outcome. `is_checked`: the codec has checked the content and the ids.
        `base`: the edit that the author of an edit saw last."""
        ...


class Acknowledger(Protocol):
    """Takes acknowledgements in (`delivery.service.DeliveryService`)."""

    def acknowledge_nowait(self, origin: ConnectionId, wish: Advance) -> bool:
        """Have positions written soon. False if there is no room; the client sends them again."""
        ...

    def hasten(self, user_id: UserId, chat_id: ChatId) -> None:
        """Write first what this user has acknowledged in this chat, because the user is about to
        send there: so the message marks it as read."""
        ...


class TypingRelay(Protocol):
    """Tells the others of a chat that a user types (`fanout.worker.FanoutWorker`)."""

    def typing(
        self, user_id: UserId, chat_id: ChatId, *, is_typing: bool, origin: ConnectionId
    ) -> None:
        """If the user is a member, tell the other members who are connected. Stored nowhere."""
        ...


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """A person on a device, as a valid token says and the store confirms."""

    user_id: UserId
    session_id: SessionId
    device_id: str | None
    """None if the token names no device (an external identity provider)."""
    expires_at_ms: int


class Authenticator(Protocol):
    """Checks access tokens."""

    async def authenticate(self, token: str, *, device_id: str | None) -> Identity:
        """The person behind a token.

        Signature, algorithm, issuer, audience and time are checked, and that the session is not
        revoked and the user not disabled. If both the token and the caller name a device, they must
        be the same. Raises Unauthorized (reason: `invalid_token`, `token_expired`, `token_revoked`,
        `device_mismatch`), or Unavailable: the store or the identity provider cannot be asked.

        A session that is revoked later is refused by the next call. The holder of a connection must
        also be told of it (`on_revoked`), and look again once the connection is made: it may have
        been revoked between the two.
        """
        ...
