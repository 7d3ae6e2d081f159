"""Closing a group: one transaction ends it for everybody, whatever its size (M-03).

From that commit on the chat's status hides it from every reader and writer. The rows of its members
say nothing any more, and are deleted afterwards, the owner's last: if that breaks off, the owner
still has a row, by which the same request again goes on with it.
"""

from typing import Final

import msgspec

from tidewire.domain import access
from tidewire.domain.chats import Chat, Role
from tidewire.domain.events import ChatClosed
from tidewire.domain.ids import ChatId, UserId
from tidewire.engines.dynamodb import outbox_rows, rows, schema, values
from tidewire.engines.dynamodb.backoff import Hindrance
from tidewire.engines.dynamodb.database import WRITES_MAX, Database
from tidewire.engines.dynamodb.errors import Cancelled
from tidewire.engines.dynamodb.reading import read_chat, read_member
from tidewire.engines.dynamodb.rosters import read_members
from tidewire.engines.dynamodb.rows import Write

MEMBERS_PER_SWEEP_MAX: Final = WRITES_MAX // 2
"""A member is two rows."""


async def close_group(
    database: Database, actor: UserId, chat_id: ChatId, *, now_ms: int
) -> ChatClosed | None:
    """End the group; None if this owner has ended it before. What is left is to be swept."""
    tried = 0
    while True:
        row = await database.get(schema.CHATS, {"chat_id": chat_id})
        me = await read_member(database, chat_id, actor)
        is_closed = row is not None and row["status"] == values.CLOSED
        if is_closed and me is not None and me.role is Role.OWNER:
            return None
        chat = values.chat_of(row)
        access.check_close(chat, me)
        assert chat is not None
        # Read after the head row: if the members change meanwhile, the version has moved.
        members = await read_members(database, chat_id)
        event = _closed(chat, tuple(members), actor, now_ms)
        outbox = rows.put_new(schema.OUTBOX, outbox_rows.change_row(event, now_ms=now_ms))
        try:
            await database.transact([_end(chat, event), outbox])
        except Cancelled:
            database.counts.fences_failed += 1
            await database.pause(Hindrance.CONFLICT, min(tried, 2))
            tried += 1
        else:
            return event


def _closed(chat: Chat, member_ids: tuple[UserId, ...], actor: UserId, now_ms: int) -> ChatClosed:
    after = msgspec.structs.replace(
        chat,
        membership_version=chat.membership_version + 1,
        member_count=0,
        updated_at_ms=now_ms,
    )
    return ChatClosed(after, member_ids, actor, now_ms)


def _end(before: Chat, event: ChatClosed) -> Write:
    return rows.update(
        schema.CHATS,
        {"chat_id": before.chat_id},
        "SET #status = :closed, #membership_version = :after, #member_count = :none,"
        " #updated_at = :now, #closed_at = :now",
        condition="#membership_version = :before AND #status = :active",
        closed=values.CLOSED,
        active=values.ACTIVE,
        before=before.membership_version,
        after=event.chat.membership_version,
        none=0,
        now=event.closed_at_ms,
    )


async def abandon(database: Database, chat: Chat) -> bool:
    """End a group that is still being filled, before anybody has seen it; False: it was shown."""
    end = rows.update(
        schema.CHATS,
        {"chat_id": chat.chat_id},
        "SET #status = :closed, #member_count = :none REMOVE #pending_members",
        condition="#status = :pending",
        closed=values.CLOSED,
        none=0,
        pending=values.PENDING,
    )
    try:
        await database.transact([end])
    except Cancelled:
        # Another try has ended it, or has shown it.
        return await read_chat(database, chat.chat_id) is None
    return True


async def sweep_members(database: Database, chat_id: ChatId, *, last: UserId) -> None:
    """Delete what is left of the members of a chat that is closed, one of them last of all."""
    with database.within_budget():
        found = await read_members(database, chat_id)
    others = [user_id for user_id in found if user_id != last]
    for start in range(0, len(others), MEMBERS_PER_SWEEP_MAX):
        await _delete(database, chat_id, others[start : start + MEMBERS_PER_SWEEP_MAX])
    await _delete(database, chat_id, [last])


async def _delete(database: Database, chat_id: ChatId, user_ids: list[UserId]) -> None:
    writes = [
        write
        for user_id in user_ids
        for write in (
            rows.delete(schema.MEMBERSHIPS, {"chat_id": chat_id, "user_id": user_id}),
            rows.delete(schema.USER_CHATS, {"user_id": user_id, "chat_id": chat_id}),
        )
    ]
    with database.within_budget():
        await database.transact(writes)
