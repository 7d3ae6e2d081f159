"""Who does not want to be added: by a person (a block), or to a group that was left for good.

A refusal of a group lies among the user's blocks, under the group's id instead of a person's: the
ids of chats and of people never meet. A transaction that adds a user checks that neither is there.
"""

import asyncio
from collections.abc import Sequence
from typing import Final

from tidewire.domain.ids import CHAT_PREFIX, ChatId, UserId
from tidewire.engines.dynamodb import rows, schema, values
from tidewire.engines.dynamodb.database import Database
from tidewire.engines.dynamodb.rows import Value, Write

Key = dict[str, Value]

AT_ONCE_MAX: Final = 16
"""Queries of one call that are under way side by side."""


def refusal_keys(
    user_ids: Sequence[UserId], *, actor: UserId, chat_id: ChatId | None = None
) -> list[Key]:
    """What would keep the actor from adding these users (to this group)."""
    by: list[str] = [actor] if chat_id is None else [actor, chat_id]
    return [{"user_id": user_id, "blocked_id": one} for user_id in user_ids for one in by]


def refusal_checks(keys: Sequence[Key]) -> list[Write]:
    """The condition that none of these is there."""
    return [rows.check(schema.BLOCKS, key, "attribute_not_exists(#user_id)") for key in keys]


async def is_refused(database: Database, keys: Sequence[Key]) -> bool:
    found = await database.get_many([(schema.BLOCKS, key) for key in keys])
    return any(row is not None for row in found)


def refusal_write(user_id: UserId, chat_id: ChatId, now_ms: int) -> Write:
    row: Key = {"user_id": user_id, "blocked_id": chat_id, "created_at": now_ms}
    return rows.put(schema.BLOCKS, row)


async def readmit(database: Database, user_id: UserId, chat_id: ChatId) -> None:
    key: Key = {"user_id": user_id, "blocked_id": chat_id}
    await database.transact([rows.delete(schema.BLOCKS, key)])


async def refused_groups(
    database: Database, user_id: UserId, *, after: ChatId | None, count_max: int
) -> list[ChatId]:
    """Chats sort below people, so they are the first of the rows."""
    start = after or CHAT_PREFIX
    found = await database.query(schema.BLOCKS, user_id, above=start, limit=count_max)
    return [ChatId(row["blocked_id"]) for row in found if row["blocked_id"].startswith(CHAT_PREFIX)]


async def strangers(database: Database, user_id: UserId, others: Sequence[UserId]) -> list[UserId]:
    """Those whose membership is in none of the user's chats that anybody sees."""
    own = await database.query(schema.USER_CHATS, user_id)
    heads = await database.get_many([(schema.CHATS, {"chat_id": row["chat_id"]}) for row in own])
    chats = {chat.chat_id for row in heads if (chat := values.chat_of(row)) is not None}
    if not chats:
        return list(others)
    gate = asyncio.Semaphore(AT_ONCE_MAX)

    async def is_stranger(other: UserId) -> bool:
        async with gate:
            theirs = await database.query(schema.USER_CHATS, other, fields="#chat_id")
        return chats.isdisjoint(ChatId(row["chat_id"]) for row in theirs)

    found = await asyncio.gather(*(is_stranger(other) for other in others))
    return [other for other, is_one in zip(others, found, strict=True) if is_one]
