"""The list of a user's chats as a screen shows it, newest first. PURE.

A page of it is cut from one ordering: that of the instant the first page was read. So a chat that
moves to the top meanwhile is neither skipped nor shown twice (A-03).
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
    """Where the next page goes on. Only the engine that made it can read it."""

    snapshot: int
    """The instant of the first page, in the order of commits."""
    activity_at_ms: int
    chat_id: ChatId


class LastMessage(msgspec.Struct, frozen=True):
    """The newest message of a chat as it is now, its text cut for a list. Amendments are no
    messages: they neither stand here nor bring a chat to the top."""

    message_id: MessageId
    sequence: int
    sender_id: UserId
    preview: str
    """Empty if the message is damaged or deleted."""
    created_at_ms: int
    is_damaged: bool = False
    is_deleted: bool = False


def last_message_of(message: Message | None, edited: str | None = None) -> LastMessage | None:
    """What a list of chats shows of the newest message of one; `edited` is the text of its last
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
