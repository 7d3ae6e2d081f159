"""The list of a user's chats as a screen shows it, newest first. PURE.

A page of it is cut from one ordering: that of the instant the first page was read. So a chat that
moves to the top meanwhile is neither skipped nor shown twice (A-03).
"""

from collections.abc import Sequence

import msgspec

from tidewire.domain.chats import Chat, Member
from tidewire.domain.delivery import Positions
from tidewire.domain.ids import ChatId, MessageId, UserId
from tidewire.domain.users import User


class ChatListCursor(msgspec.Struct, frozen=True):
    """Where the next page goes on. Only the engine that made it can read it."""

    snapshot: int
    """The instant of the first page, in the order of commits."""
    activity_at_ms: int
    chat_id: ChatId


class LastMessage(msgspec.Struct, frozen=True):
    """The newest message of a chat, its text cut for a list."""

    message_id: MessageId
    sequence: int
    sender_id: UserId
    preview: str
    """Empty if the message is damaged."""
    created_at_ms: int
    is_damaged: bool = False


class ChatListItem(msgspec.Struct, frozen=True, kw_only=True):
    """One chat as it is now, at the place it had when the first page was read."""

    chat: Chat
    me: Member
    activity_at_ms: int
    """What it is sorted by: its last message, or the reader's joining if that is later."""
    last_message: LastMessage | None
    other: User | None
    """The other one of a direct chat."""
    positions: Positions
    """The reader's own."""
    unread: int
    """Messages of others above `read`, counted up to UNREAD_MAX."""
    undelivered: int
    """The same above `delivered`."""
    is_hidden: bool = False
    """The reader has hidden this direct chat, and no message has come since."""


class ChatListPage(msgspec.Struct, frozen=True):
    items: Sequence[ChatListItem]
    next: ChatListCursor | None
