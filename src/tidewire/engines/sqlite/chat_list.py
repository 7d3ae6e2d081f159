"""The list of a user's chats: first their order as of an instant, then each as it is now."""

from typing import Any, Final

import apsw

from tidewire.domain.chat_list import ChatListCursor, ChatListItem, ChatListPage, last_message_of
from tidewire.domain.chats import ChatType
from tidewire.domain.delivery import Positions, is_hidden
from tidewire.domain.errors import StoreDamaged
from tidewire.domain.ids import ChatId, UserId
from tidewire.domain.limits import TIME_MS_MAX
from tidewire.domain.users import User
from tidewire.engines.sqlite.amendments import edited_text
from tidewire.engines.sqlite.chats import access_chat
from tidewire.engines.sqlite.database import single
from tidewire.engines.sqlite.positions import UNDELIVERED, UNREAD
from tidewire.engines.sqlite.stored import newest_message
from tidewire.engines.sqlite.users import find_users

# `position` is the order of commits, and part of the index of messages: looking back over what
# came after the snapshot touches that index only. It is named: the planner would scan all messages.
# An invalid time, in a damaged row, sorts as the oldest.
ORDER: Final = f"""
WITH places AS MATERIALIZED (
    SELECT member.chat_id AS chat_id,
        max(member.joined_at, coalesce((
            SELECT iif(message.created_at BETWEEN 0 AND {TIME_MS_MAX}
                AND typeof(message.created_at) = 'integer', message.created_at, 0)
            FROM messages AS message
            WHERE message.chat_id = member.chat_id AND message.sequence = (
                SELECT iif(entry.target IS NULL, entry.sequence, entry.message_before)
                FROM messages AS entry INDEXED BY messages_by_sequence
                WHERE entry.chat_id = member.chat_id AND entry.position <= ?2
                ORDER BY entry.sequence DESC LIMIT 1
            )
        ), 0)) AS activity_at
    FROM chat_memberships AS member
    WHERE member.user_id = ?1
)
SELECT chat_id, activity_at FROM places
WHERE activity_at >= ?3 AND (activity_at, chat_id) < (?4, ?5)
ORDER BY activity_at DESC, chat_id DESC
LIMIT ?6
"""  # noqa: S608 - a constant

FIND_POSITIONS: Final = f"""
SELECT last_acked_sequence, last_read_sequence, {UNREAD}, {UNDELIVERED}, hidden_through
FROM delivery_state AS mine WHERE user_id = ?1 AND chat_id = ?2
"""  # noqa: S608 - constants

_LATER_THAN_ALL: Final = (1 << 62, "")


def chat_list(
    database: apsw.Connection,
    reader: UserId,
    *,
    cursor: ChatListCursor | None,
    count_max: int,
    active_since_ms: int = 0,
) -> ChatListPage:
    if cursor is None:
        snapshot = int(single(database, "SELECT coalesce(max(position), 0) FROM messages"))
        last: tuple[int, str] = _LATER_THAN_ALL
    else:
        snapshot, last = cursor.snapshot, (cursor.activity_at_ms, cursor.chat_id)
    # One more than asked for tells if there is another page.
    rows: list[tuple[Any, ...]] = database.execute(
        ORDER, (reader, snapshot, active_since_ms, *last, count_max + 1)
    ).fetchall()
    items = [_item(database, reader, chat_id, activity) for chat_id, activity in rows[:count_max]]
    if len(rows) <= count_max:
        return ChatListPage(items, None)
    chat_id, activity_at_ms = rows[count_max - 1]
    return ChatListPage(items, ChatListCursor(snapshot, activity_at_ms, chat_id))


def _item(
    database: apsw.Connection, reader: UserId, chat_id: ChatId, activity_at_ms: int
) -> ChatListItem:
    access = access_chat(database, reader, chat_id)
    positions: Any = database.execute(FIND_POSITIONS, (reader, chat_id)).fetchone()
    if positions is None:
        raise StoreDamaged(f"{reader} is a member of {chat_id} without positions")
    delivered, read, unread, undelivered, hidden_through = positions
    is_direct = access.chat.chat_type is ChatType.DIRECT
    newest = newest_message(database, chat_id)
    return ChatListItem(
        chat=access.chat,
        me=access.me,
        activity_at_ms=activity_at_ms,
        last_message=last_message_of(newest, edited_text(database, newest)),
        other=_other(database, reader, chat_id) if is_direct else None,
        positions=Positions(delivered, read),
        unread=unread,
        undelivered=undelivered,
        is_hidden=is_hidden(hidden_through, access.chat.head),
    )


def _other(database: apsw.Connection, reader: UserId, chat_id: ChatId) -> User | None:
    row: tuple[Any, ...] | None = database.execute(
        "SELECT user_id FROM chat_memberships WHERE chat_id = ? AND user_id <> ?", (chat_id, reader)
    ).fetchone()
    found = () if row is None else find_users(database, row)
    return found[0] if found else None
