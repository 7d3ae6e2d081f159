"""Every error that Tidewire reports, in one tree. PURE.

TidewireError                a code for machines, a sentence for people, details for both
├─ Refused                   the caller must change something; the same request fails again
│  ├─ InvalidMessage, InvalidContent, InvalidEncoding, InvalidContentType,
│  │  MessageTooLarge, KeyReused                                            about a message
│  ├─ TargetNotFound, MessageDeleted, EditConflict, EditTooLate,
│  │  TooManyEdits, TooManyReactions, InvalidMention                        about its target
│  ├─ NotAMember, Forbidden, InvalidOperation, AlreadyAMember, ChatIsFull   about a chat
│  ├─ UserNotFound, UsernameTaken, MessageNotFound, SessionNotFound         about who or what
│  ├─ InvalidCredentials, InvalidRefreshToken, InvalidInvite                about a login
│  ├─ RequestKeyReused                                                      about a REST request
│  └─ SequenceAboveHead, CursorAhead                                        about a position
├─ Unauthorized              the same request with a better token
│  └─ DeviceMismatch
├─ Throttled                 the same request later, after `retry_after_ms`
│  └─ RateLimited, TooManyLogins, RequestInProgress
├─ Unavailable               a dependency failed; the same request may be sent again, unchanged
│  ├─ Overloaded, DeadlinePassed                       a bound of ours
│  ├─ StoreUnavailable, StoreFull, StoreDamaged, CounterMissing   the store
│  ├─ LogUnavailable                                   the event log
│  └─ IdentityUnavailable                              the team's identity provider
└─ StoreUnusable             the store cannot be opened or trusted; for an operator, not a client

Outcomes that are not errors (a duplicate, a position that does not move) are values.
HTTP statuses, close codes and client texts of the codes stand in `wire/error_table.py`.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, ClassVar, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tidewire.domain.messages import Appended


class ErrorCode(StrEnum):
    """What goes over the wire. Stable: codes are added, never renamed or taken away."""

    # Frames and messages.
    INVALID_MESSAGE = "INVALID_MESSAGE"
    INVALID_ENCODING = "INVALID_ENCODING"
    INVALID_CONTENT = "INVALID_CONTENT"
    INVALID_CONTENT_TYPE = "INVALID_CONTENT_TYPE"
    MESSAGE_TOO_LARGE = "MESSAGE_TOO_LARGE"
    IDEMPOTENCY_KEY_REUSED = "IDEMPOTENCY_KEY_REUSED"
    CURSOR_AHEAD = "CURSOR_AHEAD"
    INVALID_SEQUENCE = "INVALID_SEQUENCE"
    TARGET_NOT_FOUND = "TARGET_NOT_FOUND"
    MESSAGE_DELETED = "MESSAGE_DELETED"
    EDIT_CONFLICT = "EDIT_CONFLICT"
    EDIT_TOO_LATE = "EDIT_TOO_LATE"
    TOO_MANY_EDITS = "TOO_MANY_EDITS"
    TOO_MANY_REACTIONS = "TOO_MANY_REACTIONS"
    INVALID_MENTION = "INVALID_MENTION"
    # Who may do what.
    UNAUTHORIZED = "UNAUTHORIZED"
    FORBIDDEN = "FORBIDDEN"
    NOT_A_MEMBER = "NOT_A_MEMBER"
    DEVICE_MISMATCH = "DEVICE_MISMATCH"
    INVALID_CREDENTIALS = "INVALID_CREDENTIALS"
    INVALID_REFRESH_TOKEN = "INVALID_REFRESH_TOKEN"  # noqa: S105 - a code, not a secret
    # REST.
    BAD_REQUEST = "BAD_REQUEST"
    METHOD_NOT_ALLOWED = "METHOD_NOT_ALLOWED"
    VALIDATION_ERROR = "VALIDATION_ERROR"
    INVALID_OPERATION = "INVALID_OPERATION"
    CHAT_FULL = "CHAT_FULL"
    NOT_FOUND = "NOT_FOUND"
    USER_NOT_FOUND = "USER_NOT_FOUND"
    CONFLICT = "CONFLICT"
    ALREADY_A_MEMBER = "ALREADY_A_MEMBER"
    PAYLOAD_TOO_LARGE = "PAYLOAD_TOO_LARGE"
    UNPROCESSABLE_ENTITY = "UNPROCESSABLE_ENTITY"
    # Load and faults.
    RATE_LIMITED = "RATE_LIMITED"
    SLOW_CONSUMER = "SLOW_CONSUMER"
    SERVER_BUSY = "SERVER_BUSY"
    INTERNAL_ERROR = "INTERNAL_ERROR"
    SERVICE_UNAVAILABLE = "SERVICE_UNAVAILABLE"


class Retry(StrEnum):
    """What a client does with the same request."""

    NEVER = "never"
    AFTER = "after"
    SAME_REQUEST = "same_request"


class AuthFailure(StrEnum):
    """Why a token is refused. Stable, as the codes are."""

    MISSING_TOKEN = "missing_token"  # noqa: S105 - a reason, not a secret
    INVALID_TOKEN = "invalid_token"  # noqa: S105 - a reason, not a secret
    TOKEN_EXPIRED = "token_expired"  # noqa: S105 - a reason, not a secret
    TOKEN_REVOKED = "token_revoked"  # noqa: S105 - a reason, not a secret
    DEVICE_MISMATCH = "device_mismatch"


_AUTH_SENTENCES: Final = {
    AuthFailure.MISSING_TOKEN: "there is no token: send Authorization: Bearer TOKEN",
    AuthFailure.INVALID_TOKEN: "the token is not valid here",
    AuthFailure.TOKEN_EXPIRED: "the token has expired: refresh it",
    AuthFailure.TOKEN_REVOKED: "this session was ended: log in again",
    AuthFailure.DEVICE_MISMATCH: "the token belongs to another device: log in again",
}


class TidewireError(Exception):
    """The root. `code` is for machines, `str()` for people, `details` for both."""

    code: ErrorCode = ErrorCode.INTERNAL_ERROR
    retry: ClassVar[Retry] = Retry.NEVER
    sentence: ClassVar[str] = ""
    """The default text of the error."""

    def __init__(self, sentence: str = "", **details: object) -> None:
        super().__init__(sentence or self.sentence)
        self.details: Mapping[str, object] = details
        """What the wire carries beside the sentence."""

    def __reduce__(self) -> tuple[object, ...]:
        """How pickle copies it to another process of the server: by its state, because the
        arguments of `__init__` differ from class to class."""
        return _rebuilt, (type(self), self.args, self.__dict__)


def _rebuilt(
    kind: type[TidewireError], args: tuple[object, ...], state: Mapping[str, object]
) -> TidewireError:
    error = kind.__new__(kind, *args)
    error.__dict__.update(state)
    return error


class Refused(TidewireError):
    """The caller must change something."""


class Unauthorized(TidewireError):
    """A token that is refused. The sentence says no more than the reason does."""

    code = ErrorCode.UNAUTHORIZED
    retry = Retry.SAME_REQUEST

    def __init__(self, reason: AuthFailure, *, expired_at_ms: int | None = None) -> None:
        expiry = {} if expired_at_ms is None else {"expired_at_ms": expired_at_ms}
        super().__init__(_AUTH_SENTENCES[reason], reason=reason.value, **expiry)
        self.reason = reason
        self.expired_at_ms = expired_at_ms


class DeviceMismatch(Unauthorized):
    """A good token, on another device than the one it was given to (S-06)."""

    code = ErrorCode.DEVICE_MISMATCH
    retry = Retry.NEVER

    def __init__(self) -> None:
        super().__init__(AuthFailure.DEVICE_MISMATCH)


class Throttled(TidewireError):
    """Too much at once; the same request may come again after `retry_after_ms`."""

    retry = Retry.AFTER

    def __init__(self, sentence: str, *, retry_after_ms: int) -> None:
        super().__init__(sentence, retry_after_seconds=max(1, -(-retry_after_ms // 1000)))
        self.retry_after_ms = retry_after_ms


class Unavailable(TidewireError):
    """A dependency failed. The request may or may not have happened; sending it again is safe."""

    code = ErrorCode.SERVICE_UNAVAILABLE
    retry = Retry.SAME_REQUEST


class InvalidMessage(Refused):
    """A frame or message that breaks the rules; the sentence says which."""

    code = ErrorCode.INVALID_MESSAGE


class InvalidContentType(Refused):
    code = ErrorCode.INVALID_CONTENT_TYPE

    def __init__(self, content_type: str) -> None:
        super().__init__(f"content_type {content_type[:40]!r} is not supported; use text/plain")


class InvalidContent(Refused):
    """Text with a character that no message may have."""

    code = ErrorCode.INVALID_CONTENT


class InvalidEncoding(Refused):
    """Text that has no UTF-8 form."""

    code = ErrorCode.INVALID_ENCODING


class MessageTooLarge(Refused):
    code = ErrorCode.MESSAGE_TOO_LARGE

    def __init__(self, *, size_bytes: int, size_bytes_max: int) -> None:
        super().__init__(
            f"content has {size_bytes} bytes; at most {size_bytes_max} are taken",
            max_bytes=size_bytes_max,
            received_bytes=size_bytes,
        )
        self.size_bytes = size_bytes
        self.size_bytes_max = size_bytes_max


class KeyReused(Refused):
    """This client_message_id was used for another text, or by another member (then without
    `original`)."""

    code = ErrorCode.IDEMPOTENCY_KEY_REUSED
    sentence = (
        "this client_message_id was used for another message; "
        "the first one stays, send this text under a new id"
    )

    def __init__(self, original: Appended | None = None) -> None:
        super().__init__()
        self.original = original
        if original is not None:
            # The original's ids, for its own author only (P-07).
            self.details = {
                "sequence": original.sequence,
                "message_id": original.message_id,
                "created_at_ms": original.created_at_ms,
            }


class NotAMember(Refused):
    """Also for a chat that does not exist: an outsider must not learn the difference (M-09)."""

    code = ErrorCode.NOT_A_MEMBER
    sentence = "you are not a member of this chat"


class Forbidden(Refused):
    code = ErrorCode.FORBIDDEN


class InvalidOperation(Refused):
    """Not possible with this kind of chat or member, for any caller."""

    code = ErrorCode.INVALID_OPERATION


class AlreadyAMember(Refused):
    code = ErrorCode.ALREADY_A_MEMBER
    sentence = "this user is a member already"


class ChatIsFull(Refused):
    code = ErrorCode.CHAT_FULL

    def __init__(self, members_max: int) -> None:
        super().__init__(f"this chat has its {members_max} members; remove one first")


class UserNotFound(Refused):
    code = ErrorCode.USER_NOT_FOUND

    def __init__(self, *user_ids: str) -> None:
        super().__init__("no such user: " + ", ".join(sorted(user_ids)))
        self.user_ids = user_ids


class UsernameTaken(Refused):
    code = ErrorCode.CONFLICT

    def __init__(self, username: str) -> None:
        super().__init__(f"the user name {username!r} is taken")


class MessageNotFound(Refused):
    code = ErrorCode.NOT_FOUND
    sentence = "no such message in this chat"


class SessionNotFound(Refused):
    code = ErrorCode.NOT_FOUND
    sentence = "you have no such session"


class InvalidCredentials(Refused):
    """One sentence for an unknown name and a wrong password, so that it does not tell which."""

    code = ErrorCode.INVALID_CREDENTIALS
    sentence = "the user name or the password is wrong"


class InvalidRefreshToken(Refused):
    code = ErrorCode.INVALID_REFRESH_TOKEN
    sentence = "the refresh token is not valid any more: log in again"


class InvalidInvite(Refused):
    code = ErrorCode.FORBIDDEN
    sentence = "this invite is not known, was used already or has expired"


class RequestKeyReused(Refused):
    """An Idempotency-Key came with another body than the first time."""

    code = ErrorCode.IDEMPOTENCY_KEY_REUSED
    sentence = "this Idempotency-Key was used for another request; use a new one"


class SequenceAboveHead(Refused):
    """A position above the last message of the chat, which cannot be true (D-04)."""

    code = ErrorCode.INVALID_SEQUENCE

    def __init__(self, *, sequence: int, head: int) -> None:
        super().__init__(f"sequence {sequence} is above the last message of this chat, {head}")
        self.head = head


class CursorAhead(Refused):
    """The reader's cursor is above the head: it comes from another epoch of the store."""

    code = ErrorCode.CURSOR_AHEAD

    def __init__(self, *, cursor: int, head: int) -> None:
        told = f"your cursor {cursor} is above the last message, {head}: sync from 0"
        super().__init__(told, head=head)
        self.head = head


class TargetNotFound(Refused):
    """What is to be edited, deleted, reacted or replied to is no message of this chat."""

    code = ErrorCode.TARGET_NOT_FOUND

    def __init__(self, sequence: int) -> None:
        super().__init__(f"this chat has no message with the sequence {sequence}")


class MessageDeleted(Refused):
    """A deletion is final: nothing can be done to the message any more."""

    code = ErrorCode.MESSAGE_DELETED
    sentence = "this message was deleted"

    def __init__(self, deleted_by: int) -> None:
        super().__init__(deleted_sequence=deleted_by)
        self.deleted_by = deleted_by


class EditConflict(Refused):
    """Another edit came first. The error has its text, so it can be shown without another read."""

    code = ErrorCode.EDIT_CONFLICT
    sentence = "the message was edited meanwhile; read its current text, then edit that"

    def __init__(self, *, content: str, edited_by: int) -> None:
        super().__init__(content=content, edited_sequence=edited_by)
        self.content = content
        self.edited_by = edited_by


class EditTooLate(Refused):
    code = ErrorCode.EDIT_TOO_LATE
    sentence = "this message is too old to be edited; the server's operator sets for how long"


class TooManyEdits(Refused):
    code = ErrorCode.TOO_MANY_EDITS

    def __init__(self, edits_max: int) -> None:
        super().__init__(f"a message can be edited {edits_max} times; send another message")


class TooManyReactions(Refused):
    code = ErrorCode.TOO_MANY_REACTIONS

    def __init__(self, kinds_max: int) -> None:
        super().__init__(f"a message has at most {kinds_max} different reactions; use one of them")


class InvalidMention(Refused):
    """A mentioned user is not a member of the chat at the instant of the message."""

    code = ErrorCode.INVALID_MENTION

    def __init__(self, *user_ids: str) -> None:
        names = sorted(user_ids)
        super().__init__("not a member of this chat: " + ", ".join(names), user_ids=names)
        self.user_ids = user_ids


class RateLimited(Throttled):
    code = ErrorCode.RATE_LIMITED


class TooManyLogins(Throttled):
    """The queue for password hashing is full; nothing was checked."""

    code = ErrorCode.SERVICE_UNAVAILABLE

    def __init__(self, *, retry_after_ms: int) -> None:
        super().__init__(
            "too many people are logging in at once; try again in a moment",
            retry_after_ms=retry_after_ms,
        )


class RequestInProgress(Throttled):
    """An equal request, with the same Idempotency-Key, is being carried out."""

    code = ErrorCode.CONFLICT

    def __init__(self) -> None:
        super().__init__(
            "the same request is being carried out; ask again in a moment", retry_after_ms=1_000
        )


class Overloaded(Unavailable):
    """A queue of the server is full; the request was not accepted."""


class DeadlinePassed(Unavailable):
    """The time for this request ran out. It may still be stored; a retry gets the stored answer."""

    sentence = "no answer in time; send the same message again to learn what became of it"


class StoreUnavailable(Unavailable):
    """The store failed or took too long; nothing that was acknowledged is lost."""


class StoreFull(StoreUnavailable):
    sentence = "the disk is full: nothing new can be stored until there is room"


class StoreDamaged(StoreUnavailable):
    """Stored bytes that this request needs cannot be read. Other requests are served.

    The caller is told no more than that; `reason` is for the log.
    """

    def __init__(self, reason: str) -> None:
        super().__init__("a part of the store that this needs is damaged; an operator is told")
        self.reason = reason


class LogUnavailable(Unavailable):
    """The event log did not take events, or did not say so in time. Some may be in it."""


class CounterMissing(Unavailable):
    """The chat's counter is missing or of no use: the chat takes no messages until an operator
    restores it."""

    def __init__(self, chat_id: str) -> None:
        super().__init__(
            f"{chat_id} takes no messages: its sequence counter is missing or of no use; "
            "an operator sees why and what to do with 'tidewire recover-counter'"
        )
        self.chat_id = chat_id


def is_away(error: object) -> bool:
    """True if the store as a whole is not available now. Damage and a missing counter concern only
    a part of it, and do not pass by themselves."""
    return isinstance(error, Unavailable) and not isinstance(error, StoreDamaged | CounterMissing)


class IdentityUnavailable(Unavailable):
    """The identity provider's keys cannot be fetched, so its tokens cannot be checked."""

    sentence = "the keys of the identity provider cannot be fetched now; try again"


class StoreUnusable(TidewireError):
    """The store cannot be opened, or can no longer be trusted. The sentence says what to do."""
