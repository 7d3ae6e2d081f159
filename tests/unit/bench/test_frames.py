"""What a load client writes and reads is what the server reads and writes."""

import msgspec
import pytest

from tidewire.domain.ids import is_uuid
from tidewire.wire.client_frames import (
    AckFrame,
    HeartbeatFrame,
    SendMessageFrame,
    SyncRequestFrame,
)
from tidewire.wire.codec import decode_client_frame, encode_server_frame
from tidewire.wire.server_frames import ErrorFrame, ErrorPayload
from tidewire_bench import frames

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


def test_key_says_whose_and_which() -> None:
    key = frames.message_key(255, 4096)
    assert (frames.sender_of(key), frames.number_of(key)) == (255, 4096)


def test_requests_are_what_the_server_takes() -> None:
    key = frames.message_key(1, 2)
    sent = frames.request(
        "send_message", f"{CHAT}:2", chat_id=CHAT, client_message_id=key, content="Hello"
    )
    frame = decode_client_frame(sent)
    assert isinstance(frame, SendMessageFrame)
    assert (frame.request_id, frame.payload.client_message_id) == (f"{CHAT}:2", key)
    ack = decode_client_frame(frames.one_way("ack", chat_id=CHAT, last_acked_sequence=7))
    assert isinstance(ack, AckFrame)
    assert isinstance(decode_client_frame(frames.HEARTBEAT), HeartbeatFrame)


def test_frames_of_the_server_are_read() -> None:
    page = frames.decode_frame(
        b'{"type":"sync_response","request_id":"s1","timestamp":"now","payload":{"chat_id":"c",'
        b'"messages":[{"sequence":2,"prev_sequence":1,"sender_id":"u","client_message_id":"k",'
        b'"content":"Hello"}],"synced_through":2,"has_more":false}}'
    )
    assert isinstance(page, frames.Page)
    assert page.payload.messages == [frames.Item(2, 1, "k")]
    digest = frames.decode_frame(
        b'{"type":"chat_digest","payload":{"digest_id":"d","page":0,"last":true,"chats":[{'
        b'"chat_id":"c","head":9,"delivered":8,"read":7,"others_delivered":6,"others_read":5,'
        b'"joined_sequence":4}]}}'
    )
    assert isinstance(digest, frames.Digest)
    assert digest.payload.chats[0].joined_sequence == 4
