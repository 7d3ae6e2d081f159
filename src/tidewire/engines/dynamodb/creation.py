"""Makes chats. A direct chat, or a group that fits, takes one transaction; a larger group is filled
in several and becomes visible with the last of them (M-03)."""

from collections.abc import Sequence
from typing import Final

from tidewire.domain import access, chat_changes
from tidewire.domain.chats import (
    Chat,
    ChatType,
    CreatedChat,
    CreateDirect,
    CreateGroup,
    DirectPolicy,
    Member,
    pair_key,
)
from tidewire.domain.errors import StoreUnavailable
from tidewire.domain.events import ChatCreated
from tidewire.domain.ids import ChatId, UserId
from tidewire.engines.dynamodb import marks, rows, schema, values
from tidewire.engines.dynamodb.acts import act, until_committed
from tidewire.engines.dynamodb.blocks import Blocks, refusal_checks, refusal_keys
from tidewire.engines.dynamodb.changes import Changes, event_write
from tidewire.engines.dynamodb.database import WRITES_MAX
from tidewire.engines.dynamodb.errors import Cancelled
from tidewire.engines.dynamodb.rows import Row, Value, Write

MEMBERS_PER_TRANSACTION_MAX: Final = (WRITES_MAX - 3) // 4
"""A member takes three rows and a condition that there is no block; further items are the chat, its
counter and the outbox row."""

IN_THE_WAY: Final = "the database is busy; the same request may be sent again"

Created = tuple[CreatedChat, ChatCreated | None]
"""The answer, and the event if the chat was made by this very call."""


class Creation(Changes, Blocks):
    async def _missing(self, user_ids: Sequence[UserId]) -> list[UserId]:
        """The users who cannot join a chat. Rows of users are never deleted. An account that is
        deleted meanwhile leaves its groups once more, later (`accounts.deletion`)."""
        found = await self._database.get_each(schema.USERS, user_ids)
        return [one for one, row in zip(user_ids, found, strict=True) if not values.can_join(row)]

    # Direct chats.

    @act
    async def create_direct(self, command: CreateDirect, *, now_ms: int) -> CreatedChat:
        chat_changes.check_pair(command)
        created, event = await self._direct(command, now_ms)
        if event is None:
            await self._unhide(command.actor_id, created.chat.chat_id)
        else:
            self._committed([event])
        return created

    @until_committed
    async def _direct(self, command: CreateDirect, now_ms: int) -> Created:
        one, other = command.actor_id, command.other_id
        pair: dict[str, Value] = {"pair_key": pair_key(one, other)}
        existing = await self._database.get(schema.DIRECT_CHATS, pair)
        if existing is not None:
            found = await self._chat(ChatId(existing["chat_id"]))
            assert found is not None
            return CreatedChat(found, created=False), None
        missing = await self._missing([one, other])
        keys = refusal_keys([one], actor=other) + refusal_keys([other], actor=one)
        blocks = await self._database.get_many([(schema.BLOCKS, key) for key in keys])
        group = None
        if command.policy is DirectPolicy.SHARED_GROUP:
            group = await self._shared_group(one, other)
        new = chat_changes.new_direct(
            command,
            missing=missing,
            blocks_other=blocks[0] is not None,
            is_blocked=blocks[1] is not None,
            shares_group=group is not None,
            now_ms=now_ms,
        )
        # The transaction checks the facts of the decision again.
        conditions = refusal_checks(keys)
        if group is not None:
            conditions += [
                rows.check(
                    schema.MEMBERSHIPS,
                    {"chat_id": group, "user_id": user_id},
                    "attribute_exists(#user_id)",
                )
                for user_id in (one, other)
            ]
        pair |= {"chat_id": command.chat_id, "created_at": now_ms}
        await self._database.transact(
            [rows.put_new(schema.DIRECT_CHATS, pair), *conditions, *_new_writes(new)]
        )
        return CreatedChat(new.chat, created=True), new.event

    @act
    async def share_group(self, one: UserId, other: UserId) -> bool:
        return await self._shared_group(one, other) is not None

    async def _shared_group(self, one: UserId, other: UserId) -> ChatId | None:
        """A group that both are in; None if there is none."""
        own = await self._database.query(schema.USER_CHATS, one)
        theirs = await self._database.query(schema.USER_CHATS, other)
        common = {row["chat_id"] for row in theirs}
        candidates = [
            row["chat_id"]
            for row in own
            if row["chat_type"] == ChatType.GROUP and row["chat_id"] in common
        ]
        chats = [chat for chat in await self._chats(candidates) if chat is not None]
        return chats[0].chat_id if chats else None

    # Groups.

    @act
    async def create_group(
        self, command: CreateGroup, *, members_max: int, now_ms: int
    ) -> CreatedChat:
        async with self._locks.held(command.chat_id):
            created, event = await self._group(command, members_max, now_ms)
            if event is not None:
                self._committed([event])
        return created

    async def _group(self, command: CreateGroup, members_max: int, now_ms: int) -> Created:
        row = await self._database.get(schema.CHATS, {"chat_id": command.chat_id})
        if row is not None:
            return await self._resume(command, row, now_ms=now_ms)
        chat_changes.check_group(command, members_max=members_max)
        missing = await self._missing([command.actor_id, *command.member_ids])
        refusals = refusal_keys(command.member_ids, actor=command.actor_id)
        refuse = await self._is_refused(refusals)
        new = chat_changes.new_group(command, missing=missing, refuse=refuse, now_ms=now_ms)
        is_small = len(new.members) <= MEMBERS_PER_TRANSACTION_MAX
        if is_small:
            writes = [*_new_writes(new), *refusal_checks(refusals)]
        else:
            pending = values.chat_row(new.chat, status=values.PENDING)
            pending["pending_members"] = list(command.member_ids)
            writes = [rows.put_new(schema.CHATS, pending), _counter(new.chat)]
        if not await self._database.commit(writes):
            row = await self._database.get(schema.CHATS, {"chat_id": command.chat_id})
            if row is None:
                # There is a new block; or another writer was in the way, and the same request may
                # be sent again.
                access.check_founders(refuse=await self._is_refused(refusals))
                raise StoreUnavailable(IN_THE_WAY)
            # A retry was faster.
            return await self._resume(command, row, now_ms=now_ms)
        if is_small:
            return CreatedChat(new.chat, created=True), new.event
        return await self._fill(new, now_ms=now_ms)

    async def _resume(self, command: CreateGroup, row: Row, *, now_ms: int) -> Created:
        """Answer a retry with the group that the first try made; finish the group if needed."""
        chat_changes.check_found_group(
            command,
            created_by=UserId(row["created_by"]),
            chat_type=row["chat_type"],
            is_closed=row["status"] == values.CLOSED,
        )
        chat = values.CHAT.value(row)
        if row["status"] == values.ACTIVE:
            return CreatedChat(chat, created=False), None
        roles = chat_changes.group_roles(
            chat.created_by, [UserId(one) for one in row["pending_members"]]
        )
        return await self._fill(
            chat_changes.NewChat(chat, chat_changes.founding_members(chat, roles)), now_ms=now_ms
        )

    async def _fill(self, new: chat_changes.NewChat, *, now_ms: int) -> Created:
        """Write the members of a group that is not visible yet, then show it with all of them.

        Every transaction requires that the group is still hidden: a late one cannot bring back a
        member who has left meanwhile (M-04). If there is a new block, the group ends unseen.
        """
        chat, members, event = new.chat, new.members, new.event
        key = {"chat_id": chat.chat_id}
        is_hidden = rows.check(schema.CHATS, key, "#status = :pending", pending=values.PENDING)
        show = rows.change(
            schema.CHATS,
            key,
            {"status": values.ACTIVE, "pending_members": None},
            where={"status": values.PENDING},
        )
        try:
            for start in range(0, len(members), MEMBERS_PER_TRANSACTION_MAX):
                chunk = members[start : start + MEMBERS_PER_TRANSACTION_MAX]
                others = [one.user_id for one in chunk if one.user_id != chat.created_by]
                checks = refusal_checks(refusal_keys(others, actor=chat.created_by))
                with self._database.within_budget():
                    await self._database.transact(
                        [is_hidden, *checks, *_member_writes(chat, chunk)]
                    )
            with self._database.within_budget():
                await self._database.transact([show, event_write(event, now_ms)])
        except Cancelled:
            return await self._found_or_refused(new)
        return CreatedChat(chat, created=True), event

    async def _found_or_refused(self, new: chat_changes.NewChat) -> Created:
        """A group could not be filled: a retry was faster, or a member now blocks its founder."""
        chat, founder = new.chat, new.chat.created_by
        others = [one.user_id for one in new.members if one.user_id != founder]
        with self._database.within_budget():
            is_in_the_way = await self._is_refused(refusal_keys(others, actor=founder))
            has_ended = is_in_the_way and await self._abandon(chat)
            shown = await self._chat(chat.chat_id)
        if has_ended:
            await self._sweep_members(chat.chat_id, last=founder, now_ms=chat.created_at_ms)
            raise access.cannot_add()
        if shown is None:
            raise StoreUnavailable(IN_THE_WAY)
        return CreatedChat(shown, created=False), None

    async def _abandon(self, chat: Chat) -> bool:
        """End a group that is still being filled and not visible; False: it is visible already."""
        end = rows.change(
            schema.CHATS,
            {"chat_id": chat.chat_id},
            {"status": values.CLOSED, "member_count": 0, "pending_members": None},
            where={"status": values.PENDING},
        )
        # If that fails, another try has ended it, or has shown it.
        return await self._database.commit([end]) or await self._chat(chat.chat_id) is None


def _new_writes(new: chat_changes.NewChat) -> list[Write]:
    """A chat and everything that belongs to it, in one transaction."""
    return [
        rows.put_new(schema.CHATS, values.chat_row(new.chat)),
        _counter(new.chat),
        *_member_writes(new.chat, new.members),
        event_write(new.event, new.chat.created_at_ms),
    ]


def _counter(chat: Chat) -> Write:
    """The counter, made with its chat only: no writer ever replaces a missing one (ADR-004)."""
    at = chat.created_at_ms
    counter: dict[str, Value] = {
        "chat_id": chat.chat_id,
        "sequence_counter": 0,
        "created_at": at,
        "updated_at": at,
    }
    return rows.put_new(schema.COUNTERS, counter)


def _member_writes(chat: Chat, members: Sequence[Member]) -> list[Write]:
    return [
        write
        for member in members
        for write in (
            rows.put(schema.MEMBERSHIPS, values.member_row(chat.chat_id, member)),
            rows.put(schema.USER_CHATS, values.user_chat_row(chat, member)),
            rows.put(schema.POSITIONS, marks.first_row(chat.chat_id, member)),
        )
    ]
