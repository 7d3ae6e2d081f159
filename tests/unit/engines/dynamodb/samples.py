"""Values that the tests of this folder share."""

from typing import Any

from tidewire.domain.chats import Chat, ChatType, Member, Role
from tidewire.domain.ids import ChatId, ClientMessageId, MessageId, UserId
from tidewire.domain.messages import Message, SendMessage

NOW_MS = 1_800_000_000_000
ANNA, BEN = UserId("user_a"), UserId("user_b")
CHAT = ChatId("chat_1")
KEY = ClientMessageId("00000001-0000-4000-8000-000000000000")


def a_message(sequence: int = 1, prev_sequence: int = 0, **changed: Any) -> Message:
    fields: dict[str, Any] = {
        "chat_id": CHAT,
        "message_id": MessageId(f"msg_{sequence}"),
        "sender_id": ANNA,
        "client_message_id": KEY,
        "content": "hello",
        "content_type": "text/plain",
        "created_at_ms": NOW_MS,
    }
    return Message(sequence=sequence, prev_sequence=prev_sequence, **(fields | changed))


def a_send(sender: UserId = ANNA, content: str = "hello", **changed: Any) -> SendMessage:
    fields: dict[str, Any] = {
        "chat_id": CHAT,
        "client_message_id": KEY,
        "message_id": MessageId("msg_new"),
    }
    return SendMessage(sender_id=sender, content=content, **(fields | changed))


def a_chat(**changed: Any) -> Chat:
    fields: dict[str, Any] = {
        "chat_id": CHAT,
        "chat_type": ChatType.GROUP,
        "name": "team",
        "created_by": ANNA,
        "created_at_ms": NOW_MS,
        "updated_at_ms": NOW_MS + 1,
        "membership_version": 3,
        "member_count": 2,
        "head": 7,
    }
    return Chat(**(fields | changed))


def a_member(user_id: UserId = ANNA, **changed: Any) -> Member:
    fields: dict[str, Any] = {
        "role": Role.MEMBER,
        "joined_at_ms": NOW_MS,
        "joined_sequence": 2,
        "added_by": BEN,
    }
    return Member(user_id=user_id, **(fields | changed))
