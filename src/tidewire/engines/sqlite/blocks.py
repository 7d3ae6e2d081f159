"""Who may write to whom, in the database: blocks, and groups that two people share.

The mark that an append looks at is set on the membership in the same act as the block. No event
leaves: the blocked one must not be told. Whoever keeps rosters learns it from the caller.
"""

import apsw

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
