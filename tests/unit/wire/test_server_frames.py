"""The frames of the server have the names and fields of the contract, and pushes stay pushes."""

import json
from typing import get_args

import msgspec
import pytest

from tidewire.domain.chats import ChatType, Role
from tidewire.domain.delivery import DigestEntry
from tidewire.domain.ids import ChatId, ClientMessageId, ConnectionId, MessageId, UserId
from tidewire.wire import server_frames as server
from tidewire.wire.server_frames import (
    SERVER_FRAME_TYPES,
    ServerAnswer,
    ServerAnswerOrPush,
    ServerFrame,
    ServerPush,
)

CHAT = ChatId("chat_01J9ZK4T7Q2M8V5RXB3N6C0DHE")
KEY = ClientMessageId("c0a8f3d2-5b1e-4f77-9a43-2d6e8b90c5f1")
MESSAGE = MessageId("msg_01J9ZKA2C4E6G8JMNPRTVXZ135")
ANN = UserId("user_01J9ZK0W3F6Y8P1GQS5TB2ADKM")
BOB = UserId("user_01J9ZJX5A7C9E1F3G5H7J9K1MN")
NOW = "2031-05-04T11:20:07.412Z"
THEN = "2031-05-04T11:20:07.398Z"

FRAMES: dict[str, tuple[ServerFrame, dict[str, object]]] = {
    "connection_established": (
        server.ConnectionEstablishedFrame(
            timestamp=NOW,
            payload=server.ConnectionEstablishedPayload(
                connection_id=ConnectionId("conn_1"),
                user_id=ANN,
                device_id="0d9f6c52-3b77-4d0f-8f0a-6a1c8e25b9d3",
                server_time=NOW,
                heartbeat_interval_ms=30_000,
                protocol_version=1,
                epoch="e1",
            ),
        ),
        {
            "connection_id": "conn_1",
            "user_id": ANN,
            "device_id": "0d9f6c52-3b77-4d0f-8f0a-6a1c8e25b9d3",
            "server_time": NOW,
            "heartbeat_interval_ms": 30_000,
            "protocol_version": 1,
            "epoch": "e1",
        },
    ),
    "send_message_ack": (
        server.SendMessageAckFrame(
            request_id="r-1",
            timestamp=NOW,
            payload=server.SendMessageAckPayload(
                client_message_id=KEY,
                message_id=MESSAGE,
                chat_id=CHAT,
                sequence=318,
                prev_sequence=317,
                created_at=THEN,
                deduplicated=False,
            ),
        ),
        {
            "client_message_id": KEY,
            "message_id": MESSAGE,
            "chat_id": CHAT,
            "sequence": 318,
            "prev_sequence": 317,
            "created_at": THEN,
            "deduplicated": False,
        },
    ),
    "message": (
        server.MessageFrame(
            timestamp=NOW,
            payload=server.MessagePayload(
                message_id=MESSAGE,
                chat_id=CHAT,
                sequence=318,
                prev_sequence=317,
                sender_id=ANN,
                client_message_id=KEY,
                content="lunch at noon?",
                content_type="text/plain",
                created_at=THEN,
            ),
        ),
        {
            "message_id": MESSAGE,
            "chat_id": CHAT,
            "sequence": 318,
            "prev_sequence": 317,
            "sender_id": ANN,
            "client_message_id": KEY,
            "content": "lunch at noon?",
            "content_type": "text/plain",
            "created_at": THEN,
        },
    ),
    "entry": (
        server.EntryFrame(
            timestamp=NOW,
            payload=server.MessagePayload(
                message_id=MESSAGE,
                chat_id=CHAT,
                sequence=318,
                prev_sequence=317,
                sender_id=ANN,
                client_message_id=KEY,
                content_type="text/plain",
                created_at=THEN,
                kind="react",
                target=311,
                emoji="👍",
                is_on=True,
                count=2,
            ),
        ),
        {
            "message_id": MESSAGE,
            "chat_id": CHAT,
            "sequence": 318,
            "prev_sequence": 317,
            "sender_id": ANN,
            "client_message_id": KEY,
            "content_type": "text/plain",
            "created_at": THEN,
            "kind": "react",
            "target": 311,
            "emoji": "👍",
            "is_on": True,
            "count": 2,
        },
    ),
    "sync_response": (
        server.SyncResponseFrame(
            request_id="r-1",
            timestamp=NOW,
            payload=server.SyncResponsePayload(
                chat_id=CHAT,
                messages=[
                    server.SyncItem(
                        message_id=MESSAGE,
                        sequence=318,
                        prev_sequence=317,
                        sender_id=ANN,
                        client_message_id=KEY,
                        content="lunch at noon?",
                        content_type="text/plain",
                        created_at=THEN,
                    )
                ],
                synced_through=318,
                has_more=True,
                next_sequence=319,
            ),
        ),
        {
            "chat_id": CHAT,
            "messages": [
                {
                    "message_id": MESSAGE,
                    "sequence": 318,
                    "prev_sequence": 317,
                    "sender_id": ANN,
                    "client_message_id": KEY,
                    "content": "lunch at noon?",
                    "content_type": "text/plain",
                    "created_at": THEN,
                }
            ],
            "synced_through": 318,
            "has_more": True,
            "next_sequence": 319,
        },
    ),
    "heartbeat_ack": (
        server.HeartbeatAckFrame(
            request_id="r-1",
            timestamp=NOW,
            payload=server.HeartbeatAckPayload(server_time=NOW),
        ),
        {"server_time": NOW},
    ),
    "error": (
        server.ErrorFrame(
            request_id="r-1",
            timestamp=NOW,
            payload=server.ErrorPayload(
                code="RATE_LIMITED", message="slower", details={"retry_after_seconds": 2}
            ),
        ),
        {"code": "RATE_LIMITED", "message": "slower", "details": {"retry_after_seconds": 2}},
    ),
    "connection_closing": (
        server.ConnectionClosingFrame(
            timestamp=NOW,
            payload=server.ConnectionClosingPayload(
                reason="server_shutdown", message="back soon", reconnect_delay_ms=1500
            ),
        ),
        {"reason": "server_shutdown", "message": "back soon", "reconnect_delay_ms": 1500},
    ),
    "typing_indicator": (
        server.TypingIndicatorFrame(
            timestamp=NOW,
            payload=server.TypingIndicatorPayload(chat_id=CHAT, user_id=ANN, is_typing=True),
        ),
        {"chat_id": CHAT, "user_id": ANN, "is_typing": True},
    ),
    "chat_digest": (
        server.ChatDigestFrame(
            request_id="r-1",
            timestamp=NOW,
            payload=server.ChatDigestPayload(
                digest_id="d-1",
                page=0,
                last=True,
                chats=[
                    DigestEntry(
                        chat_id=CHAT,
                        chat_type=ChatType.GROUP,
                        head=318,
                        membership_version=4,
                        joined_sequence=7,
                        delivered=300,
                        read=299,
                        others_delivered=310,
                        others_read=305,
                        unread=12,
                    )
                ],
            ),
        ),
        {
            "digest_id": "d-1",
            "page": 0,
            "last": True,
            "chats": [
                {
                    "chat_id": CHAT,
                    "chat_type": "group",
                    "head": 318,
                    "membership_version": 4,
                    "joined_sequence": 7,
                    "delivered": 300,
                    "read": 299,
                    "others_delivered": 310,
                    "others_read": 305,
                    "unread": 12,
                }
            ],
        },
    ),
    "status_update": (
        server.StatusUpdateFrame(
            timestamp=NOW,
            payload=server.StatusUpdatePayload(
                chat_id=CHAT,
                others_delivered=310,
                others_read=305,
                own_delivered=318,
                own_read=300,
                unread=0,
                mentions_unread=0,
            ),
        ),
        {
            "chat_id": CHAT,
            "others_delivered": 310,
            "others_read": 305,
            "own_delivered": 318,
            "own_read": 300,
            "unread": 0,
            "mentions_unread": 0,
        },
    ),
    "chat_update": (
        server.ChatUpdateFrame(
            timestamp=NOW,
            payload=server.ChatUpdatePayload(
                chat_id=CHAT,
                membership_version=5,
                change="member_added",
                chat_type=ChatType.GROUP,
                name="lunch",
                user_id=BOB,
                role=Role.MEMBER,
                joined_sequence=318,
                head=318,
                changed_by=ANN,
                changed_at=THEN,
            ),
        ),
        {
            "chat_id": CHAT,
            "membership_version": 5,
            "change": "member_added",
            "chat_type": "group",
            "name": "lunch",
            "user_id": BOB,
            "role": "member",
            "joined_sequence": 318,
            "head": 318,
            "changed_by": ANN,
            "changed_at": THEN,
        },
    ),
    "resync": (
        server.ResyncFrame(
            timestamp=NOW, payload=server.ResyncPayload(reason="store_unavailable", delay_ms=250)
        ),
        {"reason": "store_unavailable", "delay_ms": 250},
    ),
}


@pytest.mark.parametrize("frame_type", FRAMES)
def test_frame_has_the_shape_of_the_contract(frame_type: str) -> None:
    frame, payload = FRAMES[frame_type]
    shape: dict[str, object] = {"type": frame_type, "timestamp": NOW, "payload": payload}
    if not isinstance(frame, ServerPush):
        shape["request_id"] = "r-1"
    assert json.loads(msgspec.json.encode(frame)) == shape
    assert msgspec.json.decode(json.dumps(shape), type=ServerFrame) == frame


def test_every_type_has_a_shape_above() -> None:
    assert set(FRAMES) == SERVER_FRAME_TYPES


def test_push_cannot_carry_a_request_id() -> None:
    """server_push_no_request_id, by construction."""
    for push in get_args(ServerPush):
        assert "request_id" not in push.__struct_fields__


def test_answer_always_has_a_request_id_and_the_others_may() -> None:
    for answer in get_args(ServerAnswer):
        assert "request_id" in [
            field.name for field in msgspec.structs.fields(answer) if field.required
        ]
    for either in get_args(ServerAnswerOrPush):
        assert "request_id" in either.__struct_fields__


def test_every_frame_needs_a_timestamp() -> None:
    for frame in get_args(ServerFrame):
        required = [field.name for field in msgspec.structs.fields(frame) if field.required]
        assert "timestamp" in required


def test_optional_fields_that_are_none_are_left_out() -> None:
    status = server.StatusUpdateFrame(
        timestamp=NOW,
        payload=server.StatusUpdatePayload(chat_id=CHAT, others_delivered=0, others_read=0),
    )
    assert json.loads(msgspec.json.encode(status))["payload"] == {
        "chat_id": CHAT,
        "others_delivered": 0,
        "others_read": 0,
    }
    error = server.ErrorFrame(
        timestamp=NOW, payload=server.ErrorPayload(code="FORBIDDEN", message="no")
    )
    assert json.loads(msgspec.json.encode(error)) == {
        "type": "error",
        "timestamp": NOW,
        "payload": {"code": "FORBIDDEN", "message": "no"},
    }
