"""What the load client writes is what the server reads."""

import msgspec
import pytest

from tidewire.domain.ids import is_uuid
from tidewire.ops.load import frames
from tidewire.wire.client_frames import AckFrame, SendMessageFrame, SyncRequestFrame
from tidewire.wire.codec import decode_client_frame, encode_server_frame
from tidewire.wire.server_frames import ErrorFrame, ErrorPayload

CHAT = "chat_01J9ZK4T7Q2M8V5RXB3N6C0DHE"
NOW = "2031-05-04T11:20:07.412Z"


def test_send_template_is_a_send_with_a_number_in_it() -> None:
    template = frames.send_template(CHAT, 7)
    frame = decode_client_frame(template % (300, 300))
    assert isinstance(frame, SendMessageFrame)
    assert frame.request_id == "300"
    assert frame.payload.chat_id == CHAT
    assert frame.payload.content == frames.CONTENT
    assert is_uuid(frame.payload.client_message_id)
    assert frames.number_of(frame.payload.client_message_id) == 300


def test_content_is_that_of_the_workloads() -> None:
    assert len(frames.CONTENT.encode()) == 84


def test_ack_template_is_an_ack() -> None:
    frame = decode_client_frame(frames.ack_template(CHAT) % 12)
    assert isinstance(frame, AckFrame)
    assert (frame.payload.chat_id, frame.payload.last_acked_sequence) == (CHAT, 12)


def test_sync_request_is_one() -> None:
    frame = decode_client_frame(frames.sync_request(CHAT, 40, "s1"))
    assert isinstance(frame, SyncRequestFrame)
    assert (frame.request_id, frame.payload.last_acked_sequence) == ("s1", 40)
    assert frame.payload.limit == frames.SYNC_LIMIT


@pytest.mark.parametrize(
    ("details", "seconds"), [(None, 0), ({"retry_after_seconds": 3, "limit": 1}, 3)]
)
def test_decode_frame_reads_how_long_to_wait(
    details: dict[str, object] | None, seconds: float
) -> None:
    payload = ErrorPayload(code="RATE_LIMITED", message="slowly", details=details)
    told = encode_server_frame(ErrorFrame(timestamp=NOW, request_id="1", payload=payload))
    frame = frames.decode_frame(told)
    assert isinstance(frame, frames.Error)
    assert frame.payload.details.retry_after_seconds == seconds


def test_decode_frame_refuses_what_it_does_not_know() -> None:
    with pytest.raises(msgspec.DecodeError):
        frames.decode_frame(b'{"type":"news","payload":{}}')
