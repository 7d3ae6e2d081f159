"""What can go wrong for an application, in one tree.

ClientError                a sentence for people; catch this for everything of ours
├─ RefusedByServer         the server said no; `code` says why, as in docs/protocol.md
├─ ServerUnreachable       no answer; trying again later is fine
├─ InvalidMessage          a text that no server takes; nothing was sent
├─ MessageTooLarge         the same, because it has more than 4096 bytes
├─ MessageFailed           a message was refused for good; it stays in the outbox as failed
│  ├─ EditConflict         another edit came first: look at the text, then edit that
│  └─ MessageIsDeleted     what was to be changed is deleted
├─ FateUnknown             a message left long ago and cannot be known to have arrived
├─ OutboxFull              too many messages wait to be sent
├─ StoreUnusable           the store is in use, damaged, or another user's
└─ ClientClosed            the client is closed, by the application or for a reason
   └─ LoginNeeded          no token is left that the server takes: log in again
"""

from collections.abc import Mapping
from typing import Final, cast

from tidewire.domain import errors
from tidewire.domain.errors import AuthFailure, ErrorCode, TidewireError

LOGIN_NEEDED: Final = "login_needed"
_LOGIN_REASONS: Final = frozenset(
    {LOGIN_NEEDED, "session_revoked", AuthFailure.INVALID_TOKEN, AuthFailure.DEVICE_MISMATCH}
)


class ClientError(TidewireError):
    """The root of what this client raises."""


class RefusedByServer(ClientError):
    """`code` (and `reason`) is the server's; newer servers may have codes that are not known here,
    and then it is a plain string."""

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
    """The server did not answer. What was asked may or may not have happened."""


class InvalidMessage(ClientError, errors.InvalidMessage):
    """Not a text that can be sent, or not an id; the sentence says why. `code` is the one that a
    server would have answered with."""


class MessageTooLarge(ClientError, errors.MessageTooLarge):
    """The text has too many bytes."""


def not_sendable(refusal: errors.Refused) -> ClientError:
    """What `domain.messages.check_send` said, as an error of this client."""
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
    """The message was edited meanwhile. Its new text comes with the chat, as every entry does."""


class MessageIsDeleted(MessageFailed):
    """What was to be edited, reacted to or sent is deleted: nothing can be done to it any more."""


_FAILURES: Final[Mapping[ErrorCode, type[MessageFailed]]] = {
    ErrorCode.EDIT_CONFLICT: EditConflict,
    ErrorCode.MESSAGE_DELETED: MessageIsDeleted,
}


def message_failed(reason: str, sentence: str) -> MessageFailed:
    """A refusal for good, as an error of its own kind."""
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
    """Why nothing more can be done with a client that is closed."""
    if reason in _LOGIN_REASONS:
        return LoginNeeded(f"the client is closed: {reason}; log in, or give it a token", reason)
    return ClientClosed(reason)


def known_code(code: str) -> ErrorCode | None:
    """None: the code is newer than this client."""
    try:
        return ErrorCode(code)
    except ValueError:
        return None


def _code(code: str) -> ErrorCode:
    return known_code(code) or cast("ErrorCode", code)
