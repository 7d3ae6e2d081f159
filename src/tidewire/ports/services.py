"""What one plane asks of another, without knowing it: the gateway's view of the rest."""

from collections.abc import Callable
from typing import Protocol

from tidewire.domain.ids import ChatId, ClientMessageId, ConnectionId, UserId
from tidewire.domain.limits import CONTENT_TYPE_DEFAULT
from tidewire.domain.messages import AppendOutcome


class MessageIntake(Protocol):
    """Takes messages in (`ingest.service.IngestService`)."""

    def submit_nowait(
        self,
        *,
        chat_id: ChatId,
        sender_id: UserId,
        client_message_id: ClientMessageId,
        content: str,
        done: Callable[[AppendOutcome], None],
        content_type: str = CONTENT_TYPE_DEFAULT,
        seen_sequence: int | None = None,
        origin_connection_id: ConnectionId | None = None,
        deadline_at_ms: int | None = None,
    ) -> None:
        """Have a message stored; `done` is called once, later, with what became of it."""
        ...


class Acknowledger(Protocol):
    """Takes acknowledgements in (`delivery.service.DeliveryService`)."""

    def acknowledge_nowait(
        self,
        origin: ConnectionId,
        user_id: UserId,
        chat_id: ChatId,
        *,
        delivered: int = 0,
        read: int = 0,
    ) -> bool:
        """Have positions written soon. False if there is no room; the client sends them again."""
        ...


class TypingRelay(Protocol):
    """Tells the others of a chat that somebody types (`fanout.worker.FanoutWorker`)."""

    def typing(
        self, user_id: UserId, chat_id: ChatId, *, is_typing: bool, origin: ConnectionId
    ) -> None:
        """If the user is a member, tell the other members who are connected. Stored nowhere."""
        ...
