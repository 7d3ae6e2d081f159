"""The frames of a client have the names and fields of the contract."""

import json

import msgspec
import pytest

from tidewire.domain.ids import ChatId, ClientMessageId, UserId
from tidewire.domain.messages import MENTION_ALL, Amendment, EntryKind, MessageBody
from tidewire.wire.client_frames import (
    CLIENT_FRAME_TYPES,
    ONE_WAY_TYPES,
    AckFrame,
    AckPayload,
    AmendPayload,
    ClientFrame,
    DeleteMessageFrame,
    DeleteMessagePayload,
    DigestRequestFrame,
    EditMessageFrame,
    EditMessagePayload,
    EmptyPayload,
    HeartbeatFrame,
    ReactFrame,
    ReactPayload,
    ReadFrame,
    ReadPayload,
    SendMessageFrame,
    SendMessagePayload,
    SyncRequestFrame,
    SyncRequestPayload,
    TypingPayload,
    TypingStartFrame,
    TypingStopFrame,
    amendment_of,
)

CHAT = ChatId("chat_01J9ZK4T7Q2M8V5RXB3N6C0DHE")
BOB = UserId("user_01J9ZJX5A7C9E1F3G5H7J9K1MN")
KEY = ClientMessageId("c0a8f3d2-5b1e-4f77-9a43-2d6e8b90c5f1")

SHAPES: list[tuple[ClientFrame, dict[str, object]]] = [
    (
        SendMessageFrame(
            request_id="r-1",
            timestamp="2031-05-04T11:20:07.412Z",
            payload=SendMessagePayload(
                client_message_id=KEY, chat_id=CHAT, content="lunch at noon?", seen_sequence=317
            ),
        ),
        {
            "type": "send_message",
            "request_id": "r-1",
            "timestamp": "2031-05-04T11:20:07.412Z",
            "payload": {
                "client_message_id": KEY,
                "chat_id": CHAT,
                "content": "lunch at noon?",
                "seen_sequence": 317,
            },
        },
    ),
    (
        SendMessageFrame(
            request_id="r-4",
            payload=SendMessagePayload(
                client_message_id=KEY,
                chat_id=CHAT,
                content="you and @all",
                reply_to=317,
                mentions=(BOB, MENTION_ALL),
            ),
        ),
        {
            "type": "send_message",
            "request_id": "r-4",
            "payload": {
                "client_message_id": KEY,
                "chat_id": CHAT,
                "content": "you and @all",
                "reply_to": 317,
                "mentions": [BOB, "@all"],
            },
        },
    ),
    (
        EditMessageFrame(
            request_id="r-5",
            payload=EditMessagePayload(
                client_message_id=KEY, chat_id=CHAT, target=317, content="dinner?", base=0
            ),
        ),
        {
            "type": "edit_message",
            "request_id": "r-5",
            "payload": {
                "client_message_id": KEY,
                "chat_id": CHAT,
                "target": 317,
                "content": "dinner?",
                "base": 0,
            },
        },
    ),
    (
        DeleteMessageFrame(
            request_id="r-6",
            payload=DeleteMessagePayload(
                client_message_id=KEY, chat_id=CHAT, target=317, reason="spam", is_first=True
            ),
        ),
        {
            "type": "delete_message",
            "request_id": "r-6",
            "payload": {
                "client_message_id": KEY,
                "chat_id": CHAT,
                "target": 317,
                "is_first": True,
                "reason": "spam",
            },
        },
    ),
    (
        ReactFrame(
            request_id="r-7",
            payload=ReactPayload(
                client_message_id=KEY, chat_id=CHAT, target=317, emoji="👍", is_on=False
            ),
        ),
        {
            "type": "react",
            "request_id": "r-7",
            "payload": {
                "client_message_id": KEY,
                "chat_id": CHAT,
                "target": 317,
                "emoji": "👍",
                "is_on": False,
            },
        },
    ),
    (
        AckFrame(payload=AckPayload(chat_id=CHAT, last_acked_sequence=311)),
        {"type": "ack", "payload": {"chat_id": CHAT, "last_acked_sequence": 311}},
    ),
    (
        ReadFrame(payload=ReadPayload(chat_id=CHAT, last_read_sequence=311)),
        {"type": "read", "payload": {"chat_id": CHAT, "last_read_sequence": 311}},
    ),
    (
        SyncRequestFrame(
            request_id="r-2",
            payload=SyncRequestPayload(chat_id=CHAT, last_acked_sequence=311, limit=50),
        ),
        {
            "type": "sync_request",
            "request_id": "r-2",
            "payload": {"chat_id": CHAT, "last_acked_sequence": 311, "limit": 50},
        },
    ),
    (
        DigestRequestFrame(request_id="r-3", payload=EmptyPayload()),
        {"type": "digest_request", "request_id": "r-3", "payload": {}},
    ),
    (
        HeartbeatFrame(request_id="hb-001", payload=EmptyPayload()),
        {"type": "heartbeat", "request_id": "hb-001", "payload": {}},
    ),
    (HeartbeatFrame(payload=EmptyPayload()), {"type": "heartbeat", "payload": {}}),
    (
        TypingStartFrame(payload=TypingPayload(chat_id=CHAT)),
        {"type": "typing_start", "payload": {"chat_id": CHAT}},
    ),
    (
        TypingStopFrame(payload=TypingPayload(chat_id=CHAT)),
        {"type": "typing_stop", "payload": {"chat_id": CHAT}},
    ),
]


@pytest.mark.parametrize(("frame", "shape"), SHAPES, ids=lambda case: type(case).__name__)
def test_frame_has_the_shape_of_the_contract(frame: ClientFrame, shape: dict[str, object]) -> None:
    assert json.loads(msgspec.json.encode(frame)) == shape
    assert msgspec.json.decode(json.dumps(shape), type=ClientFrame) == frame


def test_every_type_has_a_shape_above() -> None:
    assert {shape["type"] for _, shape in SHAPES} == CLIENT_FRAME_TYPES


def test_one_way_frames_have_no_request_id_and_all_others_have() -> None:
    for frame, shape in SHAPES:
        assert hasattr(frame, "request_id") == (shape["type"] not in ONE_WAY_TYPES)
    assert {"ack", "read", "typing_start", "typing_stop"} == ONE_WAY_TYPES


def test_frame_cannot_be_changed() -> None:
    for frame, _ in SHAPES:
        with pytest.raises(AttributeError):
            frame.timestamp = "later"  # type: ignore[misc]


@pytest.mark.parametrize(
    ("payload", "content", "amends", "base"),
    [
        (
            EditMessagePayload(
                client_message_id=KEY, chat_id=CHAT, target=7, content="dinner?", base=9
            ),
            "dinner?",
            Amendment(kind=EntryKind.EDIT, target=7),
            9,
        ),
        (
            DeleteMessagePayload(client_message_id=KEY, chat_id=CHAT, target=7, reason="spam"),
            "",
            Amendment(kind=EntryKind.DELETE, target=7, reason="spam"),
            None,
        ),
        (
            ReactPayload(client_message_id=KEY, chat_id=CHAT, target=7, emoji="👍", is_on=False),
            "",
            Amendment(kind=EntryKind.REACT, target=7, emoji="👍", is_on=False),
            None,
        ),
    ],
    ids=["edit", "delete", "react"],
)
def test_amendment_says_what_the_frame_says(
    payload: AmendPayload, content: str, amends: Amendment, base: int | None
) -> None:
    assert amendment_of(payload) == (MessageBody(content=content), amends, base)
