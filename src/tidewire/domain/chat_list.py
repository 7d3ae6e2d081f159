"""The list of a user's chats as a screen shows it, newest first. PURE.

All pages use one order: that of the instant when the first page was read. So a chat that moves to
the top meanwhile is neither skipped nor shown twice (A-03).
"""

from collections.abc import Sequence

import msgspec

from tidewire.domain.chats import Chat, Member
from tidewire.domain.delivery import Positions
from tidewire.domain.ids import ChatId, MessageId, UserId
from tidewire.domain.limits import PREVIEW_CHARACTERS_MAX
from tidewire.domain.messages import Message
from tidewire.domain.users import User


class ChatListCursor(msgspec.Struct, frozen=True):
    """The place where the next page begins. Only the engine that made it can read it."""

    snapshot: int
    """The instant of the first page, in the order of commits."""
    activity_at_ms: int
    chat_id: ChatId


class LastMessage(msgspec.Struct, frozen=True):
    """The newest message of a chat as it is now, with its text shortened for a list. Amendments are
    not messages: they do not appear here and do not move a chat to the top."""

    message_id: MessageId
    sequence: int
    sender_id: UserId
    preview: str
    """Empty if the message is damaged or deleted."""
    created_at_ms: int
    is_damaged: bool = False
    is_deleted: bool = False


def last_message_of(message: Message | None, edited: str | None = None) -> LastMessage | None:
    """The newest message of a chat as a list of chats shows it; `edited` is the text of its last
    edit."""
    if message is None:
        return None
    content = message.content if edited is None or message.is_deleted else edited
    return LastMessage(
        message.message_id,
        message.sequence,
        message.sender_id,
        content[:PREVIEW_CHARACTERS_MAX],
        message.created_at_ms,
        message.is_damaged,
        message.is_deleted,
    )


class ChatListItem(msgspec.Struct, frozen=True, kw_only=True):
    """One chat as it is now, at the place it had when the first page was read."""

    chat: Chat
    me: Member
    activity_at_ms: int
    """What it is sorted by: its last message, or the reader's joining if that is later."""
    last_message: LastMessage | None
    other: User | None
    """The other member of a direct chat."""
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
