"""The gateway's own frames say what the protocol wants, in its form."""

from tests.unit.gateway.fakes import WALL_MS
from tidewire.domain.delivery import DigestPage
from tidewire.domain.ids import ChatId, ConnectionId, UserId
from tidewire.domain.resync import ResyncReason
from tidewire.gateway import frames
from tidewire.gateway.pages import DigestRun
from tidewire.wire.codec import decode_server_frame, encode_server_frame
from tidewire.wire.error_table import CLOSE_TABLE, CloseReason
from tidewire.wire.server_frames import PROTOCOL_VERSION, ServerFrame

NOW = "2027-01-15T08:00:00.000Z"


def checked(frame: ServerFrame) -> ServerFrame:
    """The frame, once it is clear that a client can read it."""
    assert decode_server_frame(encode_server_frame(frame)) == frame
    return frame


def test_established_frame_says_version_epoch_and_heartbeat() -> None:
    frame = frames.established_frame(
        connection_id=ConnectionId("conn_1"),
        user_id=UserId("user_1"),
        device_id="a",
        epoch="e1",
        heartbeat_interval_ms=30_000,
        features=("batch",),
        wall_ms=WALL_MS,
    )
    checked(frame)
    assert frame.payload.features == ("batch",)
    assert frame.timestamp == frame.payload.server_time == NOW
    assert frame.payload.protocol_version == PROTOCOL_VERSION == 1
    assert (frame.payload.epoch, frame.payload.heartbeat_interval_ms) == ("e1", 30_000)


def test_closing_frame_has_a_sentence_and_a_delay_for_every_reason() -> None:
    for reason in CloseReason:
        frame = frames.closing_frame(reason, delay_ms=None, wall_ms=WALL_MS)
        checked(frame)
        assert frame.payload.message == CLOSE_TABLE[reason].sentence
        assert frame.payload.reconnect_delay_ms == frames.RETURN_DELAYS_MS.get(reason, 0)
    spread = frames.closing_frame(CloseReason.SERVER_SHUTDOWN, delay_ms=77, wall_ms=WALL_MS)
    assert spread.payload.reconnect_delay_ms == 77


def test_heartbeat_ack_echoes_the_request_id_if_there_is_one() -> None:
    assert frames.heartbeat_ack_frame("h1", wall_ms=WALL_MS).request_id == "h1"
    unasked = frames.heartbeat_ack_frame(None, wall_ms=WALL_MS)
    assert unasked.payload.server_time == NOW
    assert b"request_id" not in encode_server_frame(checked(unasked))


def test_digest_frame_is_the_last_when_nothing_follows() -> None:
    run = DigestRun("d1", "digest_3", 2, ChatId("chat_7"))
    more = frames.chat_digest_frame(run, DigestPage([], ChatId("chat_9")), wall_ms=WALL_MS)
    last = frames.chat_digest_frame(run, DigestPage([], None), wall_ms=WALL_MS)
    assert (more.payload.last, last.payload.last) == (False, True)
    assert (more.request_id, more.payload.digest_id, more.payload.page) == ("d1", "digest_3", 2)
    checked(last)


def test_rate_limited_says_when_to_come_again_in_whole_seconds() -> None:
    assert frames.rate_limited_payload(1).details == {"retry_after_seconds": 1}
    assert frames.rate_limited_payload(1001).details == {"retry_after_seconds": 2}


def test_payloads_carry_their_codes_and_details() -> None:
    slow = frames.slow_consumer_payload(2_000, 1_000)
    assert (slow.code, slow.details) == (
        "SLOW_CONSUMER",
        {"buffer_bytes": 2_000, "limit_bytes": 1_000},
    )
    assert frames.server_busy_payload().code == "SERVER_BUSY"
    assert frames.too_early_payload().code == "INVALID_MESSAGE"
    error = frames.error_frame(None, slow, wall_ms=WALL_MS)
    assert b"request_id" not in encode_server_frame(checked(error))


def test_resync_frame_has_reason_and_delay() -> None:
    frame = frames.resync_frame(ResyncReason.STORE_UNAVAILABLE, delay_ms=50, wall_ms=WALL_MS)
    checked(frame)
    assert (frame.payload.reason, frame.payload.delay_ms) == ("store_unavailable", 50)
