"""Blocks, groups that people have left for good, and chats that two people share, in the database.

The mark that an append checks is set on the membership in the same act as the block. There is no
event, because the blocked person must not be told; the caller tells the parts that keep rosters.
"""

from collections.abc import Sequence
from typing import Any

import apsw
import msgspec

from tidewire.domain import access
from tidewire.domain.accounts import BlockChange
from tidewire.domain.chats import pair_key
from tidewire.domain.ids import ChatId, UserId
from tidewire.engines.sqlite.users import the_user


def block(
    database: apsw.Connection, user_id: UserId, blocked_id: UserId, *, now_ms: int
) -> BlockChange:
    access.check_block(user_id, blocked_id)
    the_user(database, blocked_id)
    if is_blocked(database, user_id=user_id, blocked_id=blocked_id):
        return BlockChange(changed=False)
    count: Any = database.execute(
        "SELECT count(*) FROM user_blocks WHERE user_id = ?", (user_id,)
    ).get
    access.check_block_count(count)
    database.execute("INSERT INTO user_blocks VALUES (?, ?, ?)", (user_id, blocked_id, now_ms))
    return _mark(database, user_id, blocked_id, now_ms)


def unblock(database: apsw.Connection, user_id: UserId, blocked_id: UserId) -> BlockChange:
    database.execute(
        "DELETE FROM user_blocks WHERE user_id = ? AND blocked_id = ?", (user_id, blocked_id)
    )
    if not database.changes():
        return BlockChange(changed=False)
    return _mark(database, user_id, blocked_id, None)


def blocked_users(
    database: apsw.Connection, user_id: UserId, *, after: UserId | None, count_max: int
) -> list[UserId]:
    rows = database.execute(
        "SELECT blocked_id FROM user_blocks WHERE user_id = ? AND blocked_id > ?"
        " ORDER BY blocked_id LIMIT ?",
        (user_id, after or "", count_max),
    )
    return [UserId(blocked_id) for (blocked_id,) in rows]


def is_blocked(database: apsw.Connection, *, user_id: UserId, blocked_id: UserId) -> bool:
    return blocks_any(database, (user_id,), blocked_id)


def blocks_any(database: apsw.Connection, user_ids: Sequence[UserId], blocked_id: UserId) -> bool:
    """True if one of these users blocks that one."""
    found = database.execute(
        "SELECT 1 FROM json_each(?) AS asked CROSS JOIN user_blocks AS block"
        " ON block.user_id = asked.value AND block.blocked_id = ? LIMIT 1",
        (msgspec.json.encode(user_ids).decode(), blocked_id),
    )
    return found.get is not None


def refuse(database: apsw.Connection, user_id: UserId, chat_id: ChatId, now_ms: int) -> None:
    """Note that a user does not want to be added to a group again."""
    database.execute(
        "INSERT OR IGNORE INTO group_refusals VALUES (?, ?, ?)", (user_id, chat_id, now_ms)
    )


def has_refused(database: apsw.Connection, user_id: UserId, chat_id: ChatId) -> bool:
    found = database.execute(
        "SELECT 1 FROM group_refusals WHERE user_id = ? AND chat_id = ?", (user_id, chat_id)
    )
    return found.get is not None


def readmit(database: apsw.Connection, user_id: UserId, chat_id: ChatId) -> None:
    database.execute(
        "DELETE FROM group_refusals WHERE user_id = ? AND chat_id = ?", (user_id, chat_id)
    )


def refused_groups(
    database: apsw.Connection, user_id: UserId, *, after: ChatId | None, count_max: int
) -> list[ChatId]:
    rows = database.execute(
        "SELECT chat_id FROM group_refusals WHERE user_id = ? AND chat_id > ?"
        " ORDER BY chat_id LIMIT ?",
        (user_id, after or "", count_max),
    )
    return [ChatId(chat_id) for (chat_id,) in rows]


def strangers(database: apsw.Connection, user_id: UserId, others: Sequence[UserId]) -> list[UserId]:
    """Looks in each of the others' chats for the user's membership: strangers have few chats."""
    rows = database.execute(
        "SELECT asked.value FROM json_each(?1) AS asked WHERE NOT EXISTS ("
        " SELECT 1 FROM chat_memberships AS theirs CROSS JOIN chat_memberships AS own"
        " ON own.chat_id = theirs.chat_id AND own.user_id = ?2"
        " WHERE theirs.user_id = asked.value)",
        (msgspec.json.encode(others).decode(), user_id),
    )
    return [UserId(other) for (other,) in rows]


def share_group(database: apsw.Connection, one: UserId, other: UserId) -> bool:
    found = database.execute(
        "SELECT 1 FROM chat_memberships AS mine"
        " CROSS JOIN chat_memberships AS theirs"
        " ON theirs.chat_id = mine.chat_id AND theirs.user_id = ?2"
        " CROSS JOIN chats AS chat ON chat.chat_id = mine.chat_id"
        " WHERE mine.user_id = ?1 AND chat.chat_type = 'group' LIMIT 1",
        (one, other),
    )
    return found.get is not None


def _mark(
    database: apsw.Connection, user_id: UserId, blocked_id: UserId, blocked_at: int | None
) -> BlockChange:
    """Set or take away the mark in the pair's direct chat, if there is one."""
    chat_id: Any = database.execute(
        "SELECT chat_id FROM direct_chat_index WHERE pair_key = ?", (pair_key(user_id, blocked_id),)
    ).get
    if chat_id is None:
        return BlockChange(changed=True)
    database.execute(
        "UPDATE chat_memberships SET blocked_at = ? WHERE chat_id = ? AND user_id = ?",
        (blocked_at, chat_id, blocked_id),
    )
    # Changes only the fence's version. The version that members are shown stays, and so does
    # `updated_at`, which would move the chat in the blocked person's list.
    database.execute(
        "UPDATE chats SET membership_version = membership_version + 1,"
        " block_changes = block_changes + 1 WHERE chat_id = ?",
        (chat_id,),
    )
    return BlockChange(changed=True, chat_id=chat_id)
