"""What every error code and every close reason means to a client, in two tables. PURE.

One row for each code: the HTTP status, the close code if the connection ends, whether the same
request may succeed later, and one sentence. docs/protocol.md shows these tables, and the contract's
codes and statuses are among them.
"""

from collections.abc import Mapping
from enum import IntEnum, StrEnum
from typing import Final

import msgspec

from tidewire.domain.errors import ErrorCode, TidewireError
from tidewire.wire.server_frames import ErrorPayload
from tidewire.wire.timestamps import format_time_ms


class CloseCode(IntEnum):
    """WebSocket close codes. Of our own: 4000 to 4499 reconnect, 4500 to 4999 do not."""

    POLICY_VIOLATION = 1008
    INTERNAL_ERROR = 1011
    SERVICE_RESTART = 1012
    TRY_AGAIN_LATER = 1013
    IDLE = 4000
    REPLACED = 4500


class CloseReason(StrEnum):
    """The reason in a `connection_closing`. Stable: reasons are added, never renamed or removed."""

    SERVER_SHUTDOWN = "server_shutdown"
    IDLE_TIMEOUT = "idle_timeout"
    RATE_LIMITED = "rate_limited"
    PROTOCOL_ERROR = "protocol_error"
    DUPLICATE_CONNECTION = "duplicate_connection"
    TOKEN_EXPIRED = "token_expired"  # noqa: S105 - a reason, not a secret
    SLOW_CONSUMER = "slow_consumer"
    SESSION_REVOKED = "session_revoked"


class ErrorRow(msgspec.Struct, frozen=True):
    """`retryable`: the same request, unchanged, may succeed later (for UNAUTHORIZED and
    SLOW_CONSUMER: on a new connection)."""

    http_status: int
    sentence: str
    retryable: bool = False
    close_code: CloseCode | None = None


class CloseRow(msgspec.Struct, frozen=True):
    """`reconnects`: the client comes back by itself, with a fresh token if it needs one."""

    close_code: CloseCode
    reconnects: bool
    sentence: str


ERROR_TABLE: Final[Mapping[ErrorCode, ErrorRow]] = {
    # Frames and messages.
    ErrorCode.INVALID_MESSAGE: ErrorRow(400, "The frame or message breaks a rule of the protocol."),
    ErrorCode.INVALID_ENCODING: ErrorRow(400, "The text is not valid Unicode."),
    ErrorCode.INVALID_CONTENT: ErrorRow(400, "The content has a character that is not allowed."),
    ErrorCode.INVALID_CONTENT_TYPE: ErrorRow(
        415, "This content_type is not supported; use text/plain."
    ),
    ErrorCode.MESSAGE_TOO_LARGE: ErrorRow(413, "The content is too long."),
    ErrorCode.IDEMPOTENCY_KEY_REUSED: ErrorRow(
        409, "This key was used for something else, and that stays."
    ),
    ErrorCode.CURSOR_AHEAD: ErrorRow(
        422, "The cursor is above the last message: drop it and sync anew."
    ),
    ErrorCode.INVALID_SEQUENCE: ErrorRow(
        422, "The sequence is above the last message of this chat."
    ),
    # Messages that change.
    ErrorCode.TARGET_NOT_FOUND: ErrorRow(404, "The chat has no message with this sequence."),
    ErrorCode.MESSAGE_DELETED: ErrorRow(409, "The message was deleted."),
    ErrorCode.EDIT_CONFLICT: ErrorRow(
        409, "The message was edited meanwhile; the details have its text."
    ),
    ErrorCode.EDIT_TOO_LATE: ErrorRow(403, "The message is too old to be edited."),
    ErrorCode.TOO_MANY_EDITS: ErrorRow(409, "The message was edited as often as it can be."),
    ErrorCode.TOO_MANY_REACTIONS: ErrorRow(
        409, "The message has as many different reactions as it can have."
    ),
    ErrorCode.INVALID_MENTION: ErrorRow(422, "A mentioned user is not a member of this chat."),
    # Who may do what.
    ErrorCode.UNAUTHORIZED: ErrorRow(
        401,
        "The token is missing, expired or not valid: refresh it and connect again.",
        retryable=True,
        close_code=CloseCode.POLICY_VIOLATION,
    ),
    ErrorCode.FORBIDDEN: ErrorRow(403, "You may not do this."),
    ErrorCode.NOT_A_MEMBER: ErrorRow(403, "You are not a member of this chat."),
    ErrorCode.DEVICE_MISMATCH: ErrorRow(401, "The token belongs to another device: log in again."),
    ErrorCode.INVALID_CREDENTIALS: ErrorRow(401, "The user name or the password is wrong."),
    ErrorCode.INVALID_REFRESH_TOKEN: ErrorRow(
        401, "The refresh token is not valid any more: log in again."
    ),
    # REST.
    ErrorCode.BAD_REQUEST: ErrorRow(400, "The request cannot be understood."),
    ErrorCode.METHOD_NOT_ALLOWED: ErrorRow(
        405, "This method is not possible at this address; see the Allow header."
    ),
    ErrorCode.VALIDATION_ERROR: ErrorRow(400, "A field of the request is not valid."),
    ErrorCode.INVALID_OPERATION: ErrorRow(400, "This is not possible here, for any user."),
    ErrorCode.CHAT_FULL: ErrorRow(400, "The chat has as many members as it can have."),
    ErrorCode.NOT_FOUND: ErrorRow(404, "There is no such thing."),
    ErrorCode.USER_NOT_FOUND: ErrorRow(404, "There is no such user."),
    ErrorCode.CONFLICT: ErrorRow(409, "This is taken, or has changed meanwhile."),
    ErrorCode.ALREADY_A_MEMBER: ErrorRow(409, "This user is a member already."),
    ErrorCode.PAYLOAD_TOO_LARGE: ErrorRow(413, "The request body is too long."),
    ErrorCode.UNPROCESSABLE_ENTITY: ErrorRow(
        422, "The request is well formed, but makes no sense here."
    ),
    # Load and faults.
    ErrorCode.RATE_LIMITED: ErrorRow(
        429, "Too much at once: the same again after retry_after_seconds.", retryable=True
    ),
    ErrorCode.SLOW_CONSUMER: ErrorRow(
        429,
        "This connection reads too slowly: reconnect and sync, nothing is lost.",
        retryable=True,
        close_code=CloseCode.POLICY_VIOLATION,
    ),
    ErrorCode.SERVER_BUSY: ErrorRow(
        503,
        "Too many requests of this connection are waiting: the same again later.",
        retryable=True,
    ),
    ErrorCode.INTERNAL_ERROR: ErrorRow(
        500, "Something went wrong on the server: the same again later.", retryable=True
    ),
    ErrorCode.SERVICE_UNAVAILABLE: ErrorRow(
        503, "The server cannot do this now: the same again later.", retryable=True
    ),
}

CLOSE_TABLE: Final[Mapping[CloseReason, CloseRow]] = {
    CloseReason.SERVER_SHUTDOWN: CloseRow(
        CloseCode.SERVICE_RESTART, True, "The server is stopping; it or another will be back."
    ),
    CloseReason.IDLE_TIMEOUT: CloseRow(
        CloseCode.IDLE, True, "Nothing was heard on this connection for too long."
    ),
    CloseReason.RATE_LIMITED: CloseRow(
        CloseCode.TRY_AGAIN_LATER, True, "The limits were exceeded again and again."
    ),
    CloseReason.PROTOCOL_ERROR: CloseRow(
        CloseCode.POLICY_VIOLATION, True, "Too many frames were not valid."
    ),
    CloseReason.DUPLICATE_CONNECTION: CloseRow(
        CloseCode.REPLACED, False, "The same device has connected again."
    ),
    CloseReason.TOKEN_EXPIRED: CloseRow(
        CloseCode.POLICY_VIOLATION, True, "The token has expired: refresh it and connect again."
    ),
    CloseReason.SLOW_CONSUMER: CloseRow(
        CloseCode.POLICY_VIOLATION, True, "This connection reads too slowly: reconnect and sync."
    ),
    CloseReason.SESSION_REVOKED: CloseRow(
        CloseCode.POLICY_VIOLATION, False, "This session was ended: log in again."
    ),
}


def error_payload(error: TidewireError) -> ErrorPayload:
    """The payload that tells a client of an error. An instant is `*_at`, in the wire's form."""
    row = ERROR_TABLE[error.code]
    # The text of an internal error is for the log: it may name files, hosts or other people.
    is_internal = error.code is ErrorCode.INTERNAL_ERROR
    details = {} if is_internal else _wire_details(error.details)
    return ErrorPayload(
        code=error.code,
        message=row.sentence if is_internal else str(error) or row.sentence,
        details=details or None,
    )


def _wire_details(details: Mapping[str, object]) -> dict[str, object]:
    wire: dict[str, object] = {}
    for key, value in details.items():
        if key.endswith("_at_ms") and isinstance(value, int):
            wire[key.removesuffix("_ms")] = format_time_ms(value)
        else:
            wire[key] = value
    return wire
