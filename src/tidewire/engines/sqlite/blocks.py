"""Who may write to whom and add whom, in the database: blocks, groups that people have left for
good, and chats that two people share.

The mark that an append looks at is set on the membership in the same act as the block. No event
leaves: the blocked one must not be told. Whoever keeps rosters learns it from the caller.
"""

from collections.abc import Sequence

import apsw
import msgspec

from tidewire.domain.accounts import BlockChange
from tidewire.domain.chats import pair_key
from tidewire.domain.errors import InvalidOperation
from tidewire.domain.events import Event
from tidewire.domain.ids import ChatId, UserId
from tidewire.domain.limits import BLOCKS_MAX
from tidewire.engines.sqlite.users import the_user


def block(
    database: apsw.Connection, user_id: UserId, blocked_id: UserId, now_ms: int
) -> tuple[BlockChange, list[Event]]:
    if user_id == blocked_id:
        raise InvalidOperation("nobody blocks himself")
    the_user(database, blocked_id)
    if is_blocked(database, user_id=user_id, blocked_id=blocked_id):
        return BlockChange(changed=False), []
    row = database.execute(
        "SELECT count(*) FROM user_blocks WHERE user_id = ?", (user_id,)
    ).fetchone()
    if row is not None and row[0] >= BLOCKS_MAX:
        raise InvalidOperation(f"at most {BLOCKS_MAX} people can be blocked")
    database.execute("INSERT INTO user_blocks VALUES (?, ?, ?)", (user_id, blocked_id, now_ms))
    return _mark(database, user_id, blocked_id, now_ms), []


def unblock(
    database: apsw.Connection, user_id: UserId, blocked_id: UserId
) -> tuple[BlockChange, list[Event]]:
    database.execute(
        "DELETE FROM user_blocks WHERE user_id = ? AND blocked_id = ?", (user_id, blocked_id)
    )
    if not database.changes():
        return BlockChange(changed=False), []
    return _mark(database, user_id, blocked_id, None), []


def blocked_users(
    database: apsw.Connection, user_id: UserId, after: UserId | None, count_max: int
) -> list[UserId]:
    rows = database.execute(
        "SELECT blocked_id FROM user_blocks WHERE user_id = ? AND blocked_id > ?"
        " ORDER BY blocked_id LIMIT ?",
        (user_id, after or "", count_max),
    )
    return [blocked_id for (blocked_id,) in rows]


def is_blocked(database: apsw.Connection, *, user_id: UserId, blocked_id: UserId) -> bool:
    row = database.execute(
        "SELECT 1 FROM user_blocks WHERE user_id = ? AND blocked_id = ?", (user_id, blocked_id)
    ).fetchone()
    return row is not None


def blocks_any(database: apsw.Connection, user_ids: Sequence[UserId], blocked_id: UserId) -> bool:
    """True if one of these users blocks that one."""
    row = database.execute(
        "SELECT 1 FROM json_each(?) AS asked CROSS JOIN user_blocks AS block"
        " ON block.user_id = asked.value AND block.blocked_id = ? LIMIT 1",
        (msgspec.json.encode(user_ids).decode(), blocked_id),
    ).fetchone()
    return row is not None


def refuse(database: apsw.Connection, user_id: UserId, chat_id: ChatId, now_ms: int) -> None:
    """Note that a user does not want to be added to a group again."""
    database.execute(
        "INSERT OR IGNORE INTO group_refusals VALUES (?, ?, ?)", (user_id, chat_id, now_ms)
    )


def has_refused(database: apsw.Connection, user_id: UserId, chat_id: ChatId) -> bool:
    row = database.execute(
        "SELECT 1 FROM group_refusals WHERE user_id = ? AND chat_id = ?", (user_id, chat_id)
    ).fetchone()
    return row is not None


def readmit(
    database: apsw.Connection, user_id: UserId, chat_id: ChatId
) -> tuple[None, list[Event]]:
    database.execute(
        "DELETE FROM group_refusals WHERE user_id = ? AND chat_id = ?", (user_id, chat_id)
    )
    return None, []


def refused_groups(
    database: apsw.Connection, user_id: UserId, after: ChatId | None, count_max: int
) -> list[ChatId]:
    rows = database.execute(
        "SELECT chat_id FROM group_refusals WHERE user_id = ? AND chat_id > ?"
        " ORDER BY chat_id LIMIT ?",
        (user_id, after or "", count_max),
    )
    return [chat_id for (chat_id,) in rows]


def strangers(database: apsw.Connection, user_id: UserId, others: Sequence[UserId]) -> list[UserId]:
    """From each of the others' chats to the user's own membership there: a stranger has few."""
    rows = database.execute(
        "SELECT asked.value FROM json_each(?1) AS asked WHERE NOT EXISTS ("
        " SELECT 1 FROM chat_memberships AS theirs CROSS JOIN chat_memberships AS own"
        " ON own.chat_id = theirs.chat_id AND own.user_id = ?2"
        " WHERE theirs.user_id = asked.value)",
        (msgspec.json.encode(others).decode(), user_id),
    )
    return [UserId(other) for (other,) in rows]


def share_group(database: apsw.Connection, one: UserId, other: UserId) -> bool:
    row = database.execute(
        "SELECT 1 FROM chat_memberships AS mine"
        " CROSS JOIN chat_memberships AS his ON his.chat_id = mine.chat_id AND his.user_id = ?2"
        " CROSS JOIN chats AS chat ON chat.chat_id = mine.chat_id"
        " WHERE mine.user_id = ?1 AND chat.chat_type = 'group' LIMIT 1",
        (one, other),
    ).fetchone()
    return row is not None


def _mark(
    database: apsw.Connection, user_id: UserId, blocked_id: UserId, blocked_at: int | None
) -> BlockChange:
    """Set or take away the mark in the pair's direct chat, if there is one."""
    row: tuple[ChatId] | None = database.execute(
        "SELECT chat_id FROM direct_chat_index WHERE pair_key = ?", (pair_key(user_id, blocked_id),)
    ).fetchone()
    if row is None:
        return BlockChange(changed=True)
    database.execute(
        "UPDATE chat_memberships SET blocked_at = ? WHERE chat_id = ? AND user_id = ?",
        (blocked_at, row[0], blocked_id),
    )
    # The fence's version alone. The version that members are shown stays, and so does `updated_at`,
    # which would move the chat in the blocked person's list.
    database.execute(
        "UPDATE chats SET membership_version = membership_version + 1,"
        " block_changes = block_changes + 1 WHERE chat_id = ?",
        row,
    )
    return BlockChange(changed=True, chat_id=row[0])
