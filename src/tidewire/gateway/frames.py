"""The frames that only the gateway sends, built in one place. PURE."""

from tidewire.domain.delivery import DigestPage
from tidewire.domain.errors import ErrorCode, RateLimited
from tidewire.domain.ids import ConnectionId, UserId
from tidewire.domain.resync import ResyncReason
from tidewire.gateway.lines import ClosedLine
from tidewire.gateway.pages import DigestRun
from tidewire.wire.error_table import CLOSE_TABLE, ERROR_TABLE, CloseReason, error_payload
from tidewire.wire.server_frames import (
    PROTOCOL_VERSION,
    ChatDigestFrame,
    ChatDigestPayload,
    ConnectionClosingFrame,
    ConnectionClosingPayload,
    ConnectionEstablishedFrame,
    ConnectionEstablishedPayload,
    ErrorFrame,
    ErrorPayload,
    HeartbeatAckFrame,
    HeartbeatAckPayload,
    ResyncFrame,
    ResyncPayload,
)
from tidewire.wire.timestamps import format_time_ms

RETURN_DELAYS_MS = {
    CloseReason.RATE_LIMITED: 5_000,
    CloseReason.PROTOCOL_ERROR: 1_000,
    CloseReason.SLOW_CONSUMER: 1_000,
}
"""When a client is to come back; for the other reasons at once, with its own jitter."""


def established_frame(
    *,
    connection_id: ConnectionId,
    user_id: UserId,
    device_id: str,
    epoch: str,
    heartbeat_interval_ms: int,
    features: tuple[str, ...],
    wall_ms: int,
) -> ConnectionEstablishedFrame:
    server_time = format_time_ms(wall_ms)
    return ConnectionEstablishedFrame(
        timestamp=server_time,
        payload=ConnectionEstablishedPayload(
            connection_id=connection_id,
            user_id=user_id,
            device_id=device_id,
            server_time=server_time,
            heartbeat_interval_ms=heartbeat_interval_ms,
            protocol_version=PROTOCOL_VERSION,
            epoch=epoch,
            features=features,
        ),
    )


def closing_frame(
    reason: CloseReason, *, delay_ms: int | None, wall_ms: int
) -> ConnectionClosingFrame:
    """`delay_ms`: how soon the client may come back; None for the usual delay of this reason."""
    return ConnectionClosingFrame(
        timestamp=format_time_ms(wall_ms),
        payload=ConnectionClosingPayload(
            reason=reason,
            message=CLOSE_TABLE[reason].sentence,
            reconnect_delay_ms=RETURN_DELAYS_MS.get(reason, 0) if delay_ms is None else delay_ms,
        ),
    )


def heartbeat_ack_frame(request_id: str | None, *, wall_ms: int) -> HeartbeatAckFrame:
    server_time = format_time_ms(wall_ms)
    return HeartbeatAckFrame(
        request_id=request_id,
        timestamp=server_time,
        payload=HeartbeatAckPayload(server_time=server_time),
    )


def chat_digest_frame(run: DigestRun, page: DigestPage, *, wall_ms: int) -> ChatDigestFrame:
    return ChatDigestFrame(
        request_id=run.request_id,
        timestamp=format_time_ms(wall_ms),
        payload=ChatDigestPayload(
            digest_id=run.digest_id,
            page=run.page,
            last=page.next_chat_id is None,
            chats=page.entries,
        ),
    )


def resync_frame(reason: ResyncReason, *, delay_ms: int, wall_ms: int) -> ResyncFrame:
    return ResyncFrame(
        timestamp=format_time_ms(wall_ms), payload=ResyncPayload(reason=reason, delay_ms=delay_ms)
    )


def error_frame(request_id: str | None, payload: ErrorPayload, *, wall_ms: int) -> ErrorFrame:
    """With a request_id it is an answer, without one it is unasked."""
    return ErrorFrame(request_id=request_id, timestamp=format_time_ms(wall_ms), payload=payload)


def rate_limited_payload(wait_ms: int) -> ErrorPayload:
    sentence = ERROR_TABLE[ErrorCode.RATE_LIMITED].sentence
    return error_payload(RateLimited(sentence, retry_after_ms=wait_ms))


def server_busy_payload() -> ErrorPayload:
    return ErrorPayload(
        code=ErrorCode.SERVER_BUSY, message=ERROR_TABLE[ErrorCode.SERVER_BUSY].sentence
    )


def behind_payload(line: ClosedLine, now_ms: int) -> ErrorPayload:
    """The error for a send whose line waits for an earlier one."""
    details: dict[str, object] = {"after": line.key}
    if line.code is ErrorCode.RATE_LIMITED:
        details["retry_after_seconds"] = max(1, -(-(line.retry_at_ms - now_ms) // 1000))
    return ErrorPayload(
        code=line.code,
        message="a message before this one was refused: send that one again first",
        details=details,
    )


def too_early_payload() -> ErrorPayload:
    return ErrorPayload(
        code=ErrorCode.INVALID_MESSAGE,
        message="wait for connection_established before you send anything",
    )


def slow_consumer_payload(unsent_bytes: int, bytes_max: int) -> ErrorPayload:
    return ErrorPayload(
        code=ErrorCode.SLOW_CONSUMER,
        message=ERROR_TABLE[ErrorCode.SLOW_CONSUMER].sentence,
        details={"buffer_bytes": unsent_bytes, "limit_bytes": bytes_max},
    )
