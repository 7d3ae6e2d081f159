"""What can go wrong for an application, in one tree.

ClientError                a sentence for people; catch this for everything of ours
├─ RefusedByServer         the server said no; `code` says why, as in docs/protocol.md
├─ ServerUnreachable       no answer; trying again later is fine
├─ InvalidMessage          a text that no server takes; nothing was sent
├─ MessageTooLarge         the same, because it has more than 4096 bytes
├─ MessageFailed           a message was refused for good; it stays in the outbox as failed
│  ├─ EditConflict         another edit came first: look at the text, then edit that
│  └─ MessageIsDeleted     the message that was to be changed is deleted
├─ FateUnknown             a message left long ago, and it is unknown whether it arrived
├─ OutboxFull              too many messages wait to be sent
├─ StoreUnusable           the store is in use, damaged, or another user's
└─ ClientClosed            the client is closed, by the application or for a reason
   └─ LoginNeeded          no token is left that the server takes: log in again
"""

from collections.abc import Mapping
from typing import Final, cast

from tidewire.domain import errors
from tidewire.domain.errors import AuthFailure, ErrorCode, TidewireError
from tidewire.wire.error_table import ERROR_TABLE

LOGIN_NEEDED: Final = "login_needed"
_LOGIN_REASONS: Final = frozenset(
    {LOGIN_NEEDED, "session_revoked", AuthFailure.INVALID_TOKEN, AuthFailure.DEVICE_MISMATCH}
)


class ClientError(TidewireError):
    """The root of all errors that this client raises."""


class RefusedByServer(ClientError):
    """`code` and `reason` are the server's. A newer server may have a code that this client does
    not know; then `code` is a plain string."""

    def __init__(
        self,
        reason: str,
        sentence: str,
        *,
        status: int = 0,
        facts: Mapping[str, object] | None = None,
    ) -> None:
        super().__init__(f"{sentence} ({reason})")
        self.code = _code(reason)
        self.reason = reason
        self.status = status
        self.facts = dict(facts or {})


class ServerUnreachable(ClientError):
    """The server did not answer. It may or may not have carried out the request."""


class InvalidMessage(ClientError, errors.InvalidMessage):
    """A text that cannot be sent, or a malformed id; the sentence says why. `code` is the one with
    which a server would have answered."""


class MessageTooLarge(ClientError, errors.MessageTooLarge):
    """The text has too many bytes."""


def not_sendable(refusal: errors.Refused) -> ClientError:
    """Turn a refusal of `domain.messages.check_send` into an error of this client."""
    if isinstance(refusal, errors.MessageTooLarge):
        return MessageTooLarge(size_bytes=refusal.size_bytes, size_bytes_max=refusal.size_bytes_max)
    invalid = InvalidMessage(str(refusal))
    invalid.code = refusal.code
    return invalid


class MessageFailed(ClientError):
    """The server refused the message for good."""

    def __init__(self, reason: str, sentence: str) -> None:
        super().__init__(f"the message was refused: {sentence} ({reason})")
        self.code = _code(reason)
        self.reason = reason


class EditConflict(MessageFailed):
    """Another edit came first. Its text arrives as an entry of the chat, like every other."""


class MessageIsDeleted(MessageFailed):
    """The message to edit, react to or send is deleted: no change of it is possible any more."""


_FAILURES: Final[Mapping[ErrorCode, type[MessageFailed]]] = {
    ErrorCode.EDIT_CONFLICT: EditConflict,
    ErrorCode.MESSAGE_DELETED: MessageIsDeleted,
}


def message_failed(reason: str, sentence: str) -> MessageFailed:
    """The error for a refusal for good; some codes have a class of their own."""
    known = known_code(reason)
    kind = MessageFailed if known is None else _FAILURES.get(known, MessageFailed)
    return kind(reason, sentence)


class FateUnknown(ClientError):
    """The message left days ago without an answer: `retry` it, or `drop` it."""


class OutboxFull(ClientError):
    def __init__(self, entries_max: int) -> None:
        super().__init__(
            f"{entries_max} messages wait in the outbox, more are not taken; "
            "wait until they are sent, or drop failed ones"
        )


class StoreUnusable(ClientError):
    """The store cannot be used; the sentence says why and what to do."""


class ClientClosed(ClientError):
    """Nothing more can be done with this client."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"the client is closed: {reason}")
        self.reason = reason


class LoginNeeded(ClientClosed):
    """There is no token that the server takes: log in again."""

    def __init__(self, sentence: str, reason: str = LOGIN_NEEDED) -> None:
        ClientError.__init__(self, sentence)
        self.reason = reason


def closed_for(reason: str) -> ClientClosed:
    """The error for a closed client: LoginNeeded if a new login helps, else ClientClosed."""
    if reason in _LOGIN_REASONS:
        return LoginNeeded(f"the client is closed: {reason}; log in, or give it a token", reason)
    return ClientClosed(reason)


def known_code(code: str) -> ErrorCode | None:
    """The code; None if it is newer than this client."""
    try:
        return ErrorCode(code)
    except ValueError:
        return None


def is_retryable(code: str) -> bool:
    """Whether the same request may succeed later; if the code is newer than this client, it may."""
    known = known_code(code)
    return known is None or ERROR_TABLE[known].retryable


def _code(code: str) -> ErrorCode:
    return known_code(code) or cast("ErrorCode", code)
