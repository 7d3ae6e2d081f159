"""A cursor goes out and comes back as it was; of a chat's newest message the beginning is shown."""

import msgspec

from tidewire.domain.chat_list import ChatListCursor, LastMessage, last_message_of
from tidewire.domain.ids import ChatId, ClientMessageId, MessageId, UserId
from tidewire.domain.limits import PREVIEW_CHARACTERS_MAX
from tidewire.domain.messages import Message


def test_cursor_survives_encoding() -> None:
    cursor = ChatListCursor(7, 1_800_000_000_000, ChatId("chat_1"))
    assert msgspec.json.decode(msgspec.json.encode(cursor), type=ChatListCursor) == cursor


def test_of_the_newest_message_the_beginning_is_shown() -> None:
    message = Message(
        chat_id=ChatId("chat_1"),
        sequence=7,
        prev_sequence=6,
        message_id=MessageId("msg_1"),
        sender_id=UserId("user_1"),
        client_message_id=ClientMessageId("key"),
        content="é" * (PREVIEW_CHARACTERS_MAX + 1),
        content_type="text/plain",
        created_at_ms=5,
        is_damaged=True,
    )
    preview = "é" * PREVIEW_CHARACTERS_MAX
    shown = LastMessage(message.message_id, 7, message.sender_id, preview, 5, is_damaged=True)
    assert last_message_of(message) == shown
    assert last_message_of(None) is None
