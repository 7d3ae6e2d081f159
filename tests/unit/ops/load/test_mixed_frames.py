"""What a checking client reads and writes is what the server writes and reads."""

import msgspec
import pytest

from tidewire.ops.load.frames import number_of
from tidewire.ops.load.mixed_frames import (
    HEARTBEAT,
    Digest,
    Item,
    Page,
    decode_mixed,
    message_key,
    one_way,
    request,
    sender_of,
)
from tidewire.wire.client_frames import AckFrame, HeartbeatFrame, SendMessageFrame
from tidewire.wire.codec import decode_client_frame

CHAT = "chat_01J0000000000000000000000A"


def test_key_says_whose_and_which() -> None:
    key = message_key(255, 4096)
    assert (sender_of(key), number_of(key)) == (255, 4096)


def test_requests_are_what_the_server_takes() -> None:
    key = message_key(1, 2)
    sent = request(
        "send_message", f"{CHAT}:2", chat_id=CHAT, client_message_id=key, content="Hello"
    )
    frame = decode_client_frame(sent)
    assert isinstance(frame, SendMessageFrame)
    assert (frame.request_id, frame.payload.client_message_id) == (f"{CHAT}:2", key)
    ack = decode_client_frame(one_way("ack", chat_id=CHAT, last_acked_sequence=7))
    assert isinstance(ack, AckFrame)
    assert isinstance(decode_client_frame(HEARTBEAT), HeartbeatFrame)


def test_frames_of_the_server_are_read() -> None:
    page = decode_mixed(
        b'{"type":"sync_response","request_id":"s1","timestamp":"now","payload":{"chat_id":"c",'
        b'"messages":[{"sequence":2,"prev_sequence":1,"sender_id":"u","client_message_id":"k",'
        b'"content":"Hello"}],"synced_through":2,"has_more":false}}'
    )
    assert isinstance(page, Page)
    assert page.payload.messages == [Item(2, 1, "u", "k")]
    digest = decode_mixed(
        b'{"type":"chat_digest","payload":{"digest_id":"d","page":0,"last":true,"chats":[{'
        b'"chat_id":"c","head":9,"delivered":8,"read":7,"others_delivered":6,"others_read":5,'
        b'"joined_sequence":4}]}}'
    )
    assert isinstance(digest, Digest)
    assert digest.payload.chats[0].joined_sequence == 4


def test_unknown_frame_is_an_error() -> None:
    with pytest.raises(msgspec.DecodeError):
        decode_mixed(b'{"type":"surprise","payload":{}}')
