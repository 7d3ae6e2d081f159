"""A cursor is a plain value: it goes out and comes back as it was."""

import msgspec

from tidewire.domain.chat_list import ChatListCursor
from tidewire.domain.ids import ChatId


def test_cursor_survives_encoding() -> None:
    cursor = ChatListCursor(7, 1_800_000_000_000, ChatId("chat_1"))
    assert msgspec.json.decode(msgspec.json.encode(cursor), type=ChatListCursor) == cursor
