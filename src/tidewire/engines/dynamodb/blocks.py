"""Blocks: of people, and of groups that were left for good.

A block of a person marks the pair's direct chat in the same transaction, or requires that there is
none (decision 0012): so no message can be stored between a block and its mark. A group that a user
does not want to be added to again is stored among the user's blocks, under the group's id instead
of a user's: ids of chats and of users are never equal. A transaction that adds a user checks that
neither kind of block is there.
"""

from collections.abc import Sequence

from tidewire.domain import access
from tidewire.domain.accounts import BlockChange
from tidewire.domain.chats import pair_key
from tidewire.domain.errors import NotAMember
from tidewire.domain.ids import CHAT_PREFIX, USER_PREFIX, ChatId, UserId
from tidewire.domain.limits import BLOCKS_MAX
from tidewire.engines.dynamodb import rows, schema, values
from tidewire.engines.dynamodb.acts import act, until_committed
from tidewire.engines.dynamodb.rows import Value, Write
from tidewire.engines.dynamodb.users import Users

Key = dict[str, Value]


class Blocks(Users):
    @act
    async def block(self, user_id: UserId, blocked_id: UserId, *, now_ms: int) -> BlockChange:
        access.check_block(user_id, blocked_id)
        await self._user_row(blocked_id)
        return await self._set_block(user_id, blocked_id, wanted=True, now_ms=now_ms)

    @act
    async def unblock(self, user_id: UserId, blocked_id: UserId) -> BlockChange:
        return await self._set_block(user_id, blocked_id, wanted=False)

    @until_committed
    async def _set_block(
        self, user_id: UserId, blocked_id: UserId, *, wanted: bool, now_ms: int = 0
    ) -> BlockChange:
        key: Key = {"user_id": user_id, "blocked_id": blocked_id}
        is_there = await self._database.get(schema.BLOCKS, key) is not None
        if is_there == wanted:
            return BlockChange(changed=False)
        if wanted:
            user = await self._user_row(user_id)
            access.check_block_count(user["blocks_count"])
            block = rows.put_new(schema.BLOCKS, key | {"created_at": now_ms})
        else:
            block = rows.delete(schema.BLOCKS, key, condition="attribute_exists(#user_id)")
        count = rows.update(
            schema.USERS,
            {"user_id": user_id},
            "ADD #blocks_count :one",
            condition="#blocks_count <= :most",
            one=1 if wanted else -1,
            most=BLOCKS_MAX - 1 if wanted else BLOCKS_MAX,
        )
        chat_id, marks = await self._marks(user_id, blocked_id, wanted=wanted)
        await self._database.transact([block, count, *marks])
        return BlockChange(changed=True, chat_id=chat_id)

    async def _marks(
        self, user_id: UserId, blocked_id: UserId, *, wanted: bool
    ) -> tuple[ChatId | None, list[Write]]:
        """The writes of a block to the pair's direct chat, or the condition that there is none."""
        pair = {"pair_key": pair_key(user_id, blocked_id)}
        row = await self._database.get(schema.DIRECT_CHATS, pair)
        if row is None:
            return None, [rows.check(schema.DIRECT_CHATS, pair, "attribute_not_exists(#pair_key)")]
        key = {"chat_id": ChatId(row["chat_id"])}
        chat = values.chat_of(await self._database.get(schema.CHATS, key))
        if chat is None:
            raise NotAMember
        version = chat.membership_version
        return chat.chat_id, [
            rows.change(
                schema.CHATS,
                key,
                {"membership_version": version + 1, "block_changes": chat.block_changes + 1},
                where={"membership_version": version},
            ),
            rows.change(
                schema.MEMBERSHIPS,
                {"chat_id": chat.chat_id, "user_id": blocked_id},
                {"blocked": True if wanted else None},
                where={"user_id": rows.PRESENT},
            ),
        ]

    @act
    async def blocked_users(
        self, user_id: UserId, *, after: UserId | None, count_max: int
    ) -> list[UserId]:
        # Refused groups sort below all users.
        return [UserId(one) for one in await self._listed(user_id, after or USER_PREFIX, count_max)]

    # Groups that were left for good.

    @act
    async def readmit(self, user_id: UserId, chat_id: ChatId) -> None:
        key: Key = {"user_id": user_id, "blocked_id": chat_id}
        await self._database.transact([rows.delete(schema.BLOCKS, key)])

    @act
    async def refused_groups(
        self, user_id: UserId, *, after: ChatId | None, count_max: int
    ) -> list[ChatId]:
        """Chats sort below users, so they are the first rows."""
        found = await self._listed(user_id, after or CHAT_PREFIX, count_max)
        return [ChatId(one) for one in found if one.startswith(CHAT_PREFIX)]

    async def _listed(self, user_id: UserId, above: str, count_max: int) -> list[str]:
        found = await self._database.query(schema.BLOCKS, user_id, above=above, limit=count_max)
        return [row["blocked_id"] for row in found]

    async def _is_refused(self, keys: Sequence[Key]) -> bool:
        found = await self._database.get_many([(schema.BLOCKS, key) for key in keys])
        return any(row is not None for row in found)

    @act
    async def strangers(self, user_id: UserId, others: Sequence[UserId]) -> list[UserId]:
        """The users who are in none of the user's visible chats."""
        own = await self._database.query(schema.USER_CHATS, user_id)
        heads = await self._database.get_each(schema.CHATS, [row["chat_id"] for row in own])
        chats = {chat.chat_id for row in heads if (chat := values.chat_of(row)) is not None}
        if not chats:
            return list(others)

        async def is_stranger(other: UserId) -> bool:
            theirs = await self._database.query(schema.USER_CHATS, other, fields="#chat_id")
            return chats.isdisjoint(ChatId(row["chat_id"]) for row in theirs)

        found = await self._side_by_side([is_stranger(other) for other in others])
        return [other for other, is_one in zip(others, found, strict=True) if is_one]


def refusal_keys(
    user_ids: Sequence[UserId], *, actor: UserId, chat_id: ChatId | None = None
) -> list[Key]:
    """The keys of rows that would keep the actor from adding these users (to this group)."""
    by: list[str] = [actor] if chat_id is None else [actor, chat_id]
    return [{"user_id": user_id, "blocked_id": one} for user_id in user_ids for one in by]


def refusal_checks(keys: Sequence[Key]) -> list[Write]:
    """The conditions that none of these rows exists."""
    return [rows.check(schema.BLOCKS, key, "attribute_not_exists(#user_id)") for key in keys]


def refusal_write(user_id: UserId, chat_id: ChatId, now_ms: int) -> Write:
    row: Key = {"user_id": user_id, "blocked_id": chat_id, "created_at": now_ms}
    return rows.put(schema.BLOCKS, row)
