"""The DynamoDB engine as a whole: every method of the storage port, and what is told of commits.

Commits of one chat happen one at a time within this process, and are told in that order before
whoever asked for them is answered.
"""

from collections.abc import Sequence
from contextlib import AsyncExitStack

from tidewire.domain.chat_list import ChatListCursor, ChatListPage
from tidewire.domain.chats import (
    ChatAccess,
    CreatedChat,
    CreateDirect,
    CreateGroup,
    Member,
    Role,
    Roster,
)
from tidewire.domain.delivery import (
    Advance,
    AdvanceOutcome,
    DeliveryStatus,
    DigestEntry,
    DigestPage,
    Floors,
)
from tidewire.domain.events import ChatCreated, Event, LoggedEvent, MembershipChanged
from tidewire.domain.ids import ChatId, MessageId, UserId
from tidewire.domain.limits import APPEND_SENDS_MAX
from tidewire.domain.messages import AppendOutcome, Message, MessagePage, SendMessage
from tidewire.domain.outbox import LeaseTable, OutboxKey, OutboxRow
from tidewire.domain.users import User
from tidewire.engines.dynamodb import (
    changes,
    chat_list,
    closing,
    creation,
    outbox,
    positions,
    reading,
    refusals,
    tables,
    users,
)
from tidewire.engines.dynamodb.accounts import DynamoAccounts
from tidewire.engines.dynamodb.append import Batch, Stored, move_authors
from tidewire.engines.dynamodb.changes import Change, Decide, change_chat
from tidewire.engines.dynamodb.database import Database
from tidewire.engines.dynamodb.locks import Locks
from tidewire.engines.dynamodb.options import SENDS_PER_TRANSACTION_MAX, DynamoOptions
from tidewire.engines.dynamodb.refusals import Key, refusal_keys
from tidewire.engines.dynamodb.roster_cache import RosterCache
from tidewire.engines.dynamodb.rosters import read_members, read_roster
from tidewire.engines.dynamodb.sender_cache import SenderCache
from tidewire.engines.dynamodb.tables import read_epoch
from tidewire.ports.event_log import CommitListener, Outbox, ignore_commits
from tidewire.ports.storage import Storage


class DynamoStorage(DynamoAccounts):
    """A whole store in DynamoDB."""

    def __init__(
        self,
        database: Database,
        exit_stack: AsyncExitStack,
        *,
        epoch: str,
        listener: CommitListener = ignore_commits,
    ) -> None:
        super().__init__(database, exit_stack)
        self._epoch = epoch
        self._listener = listener
        self._locks = Locks()
        self._senders = SenderCache()
        self._rosters = RosterCache()

    @classmethod
    async def open(
        cls, options: DynamoOptions, *, listener: CommitListener = ignore_commits
    ) -> "DynamoStorage":
        """Connect to tables that exist. Raises StoreUnusable if they do not."""
        async with AsyncExitStack() as stack:
            database = await stack.enter_async_context(Database.connect(options))
            epoch = await read_epoch(database)
            return cls(database, stack.pop_all(), epoch=epoch, listener=listener)
        raise AssertionError("unreachable")

    @property
    def epoch(self) -> str:
        return self._epoch

    async def check_room(self) -> None:
        """There is always room."""

    async def agree(self, name: str, value: str) -> str:
        """Note a value that all processes must share; the one that was noted first."""
        return await self._act(tables.agree, name, value)

    async def agree_anew(self, name: str, expected: str, value: str) -> None:
        """Note another such value, if it is still the expected one."""
        await self._act(tables.agree_anew, name, expected, value)

    @property
    def appends_per_chat(self) -> bool:
        return True

    def _committed(self, *events: Event) -> None:
        if events:
            self._listener(events)

    # Messages.

    async def append(self, sends: Sequence[SendMessage], *, now_ms: int) -> list[AppendOutcome]:
        assert len(sends) <= APPEND_SENDS_MAX
        assert len({(send.chat_id, send.client_message_id) for send in sends}) == len(sends)
        return await self._finish(self._append(sends, now_ms))

    async def _append(self, sends: Sequence[SendMessage], now_ms: int) -> list[AppendOutcome]:
        """Chat by chat; the planes give sends of one chat, and no more than one transaction's."""
        by_chat: dict[ChatId, list[int]] = {}
        for index, send in enumerate(sends):
            by_chat.setdefault(send.chat_id, []).append(index)
        outcomes: dict[int, AppendOutcome] = {}
        stored: dict[int, Stored] = {}
        async with AsyncExitStack() as locks:
            # In one order everywhere, so that two batches never wait for each other.
            for chat_id in sorted(by_chat):
                await locks.enter_async_context(self._locks.held(chat_id))
            for indexes in by_chat.values():
                await self._append_chat(sends, indexes, now_ms, outcomes, stored)
            for chat_id, indexes in by_chat.items():
                own = [stored[index] for index in indexes if index in stored]
                with self._database.within_budget():
                    self._committed(*await move_authors(self._database, chat_id, own, now_ms))
        return [outcomes[index] for index in range(len(sends))]

    async def _append_chat(
        self,
        sends: Sequence[SendMessage],
        indexes: Sequence[int],
        now_ms: int,
        outcomes: dict[int, AppendOutcome],
        stored: dict[int, Stored],
    ) -> None:
        for start in range(0, len(indexes), SENDS_PER_TRANSACTION_MAX):
            chunk = indexes[start : start + SENDS_PER_TRANSACTION_MAX]
            batch = Batch(self._database, self._senders, [sends[index] for index in chunk], now_ms)
            with self._database.within_budget():
                outcomes |= zip(chunk, await batch.append(), strict=True)
            # Told at once, whatever becomes of the rest, and by itself: a commit is one outbox row.
            committed = sorted(batch.stored, key=lambda one: one.index)
            self._committed(*(one.event for one in committed))
            stored |= {chunk[one.index]: one for one in committed}

    async def messages_after(
        self, reader: UserId, chat_id: ChatId, after: int, *, count_max: int, bytes_max: int
    ) -> MessagePage:
        return await self._act(
            reading.messages_after, reader, chat_id, after, count_max=count_max, bytes_max=bytes_max
        )

    async def messages_before(
        self, reader: UserId, chat_id: ChatId, before: int | None, *, count_max: int, bytes_max: int
    ) -> MessagePage:
        return await self._act(
            reading.messages_before,
            reader,
            chat_id,
            before,
            count_max=count_max,
            bytes_max=bytes_max,
        )

    async def message(self, reader: UserId, chat_id: ChatId, message_id: MessageId) -> Message:
        return await self._act(reading.message_by_id, reader, chat_id, message_id)

    # Chats.

    async def create_direct(self, command: CreateDirect, *, now_ms: int) -> CreatedChat:
        return await self._finish(self._create_direct(command, now_ms))

    async def _create_direct(self, command: CreateDirect, now_ms: int) -> CreatedChat:
        created, event = await creation.create_direct(self._database, command, now_ms=now_ms)
        if not created.created:
            await changes.unhide(self._database, command.actor_id, created.chat.chat_id)
        return self._created(created, event)

    async def create_group(
        self, command: CreateGroup, *, members_max: int, now_ms: int
    ) -> CreatedChat:
        return await self._finish(self._create_group(command, members_max, now_ms))

    async def _create_group(
        self, command: CreateGroup, members_max: int, now_ms: int
    ) -> CreatedChat:
        async with self._locks.held(command.chat_id):
            created, event = await creation.create_group(
                self._database, command, members_max=members_max, now_ms=now_ms
            )
            return self._created(created, event)

    def _created(self, created: CreatedChat, event: ChatCreated | None) -> CreatedChat:
        if event is not None:
            self._committed(event)
        return created

    async def _change(
        self,
        chat_id: ChatId,
        concerned: Sequence[UserId],
        decide: Decide,
        now_ms: int,
        *,
        keys: Sequence[Key] = (),
    ) -> Change | None:
        async with self._locks.held(chat_id):
            with self._database.within_budget():
                change = await change_chat(
                    self._database, chat_id, concerned, decide, refusals=keys, now_ms=now_ms
                )
            for event in () if change is None else change.events:
                # Each by itself: each has an outbox row of its own.
                self._committed(event)
        return change

    async def add_member(
        self,
        actor: UserId,
        chat_id: ChatId,
        user_id: UserId,
        role: Role,
        *,
        members_max: int,
        now_ms: int,
    ) -> Member:
        decide = changes.decide_add(actor, user_id, role, members_max=members_max, now_ms=now_ms)
        keys = refusal_keys([user_id], actor=actor, chat_id=chat_id)
        change = await self._finish(
            self._change(chat_id, [actor, user_id], decide, now_ms, keys=keys)
        )
        assert change is not None
        [event] = change.events
        assert isinstance(event, MembershipChanged)
        return Member(
            user_id=user_id,
            role=role,
            joined_at_ms=now_ms,
            joined_sequence=event.joined_sequence,
            added_by=actor,
        )

    async def remove_member(
        self, actor: UserId, chat_id: ChatId, user_id: UserId, *, now_ms: int
    ) -> None:
        decide = changes.decide_remove(actor, user_id, now_ms=now_ms)
        await self._finish(self._change(chat_id, [actor, user_id], decide, now_ms))

    async def leave(
        self, actor: UserId, chat_id: ChatId, *, for_good: bool = False, now_ms: int
    ) -> None:
        decide = changes.decide_leave(actor, for_good=for_good, now_ms=now_ms)
        await self._finish(self._change(chat_id, [actor], decide, now_ms))

    async def readmit(self, user_id: UserId, chat_id: ChatId) -> None:
        await self._act(refusals.readmit, user_id, chat_id)

    async def refused_groups(
        self, user_id: UserId, *, after: ChatId | None, count_max: int
    ) -> list[ChatId]:
        return await self._act(refusals.refused_groups, user_id, after=after, count_max=count_max)

    async def strangers(self, user_id: UserId, others: Sequence[UserId]) -> list[UserId]:
        return await self._act(refusals.strangers, user_id, others)

    async def change_role(
        self, actor: UserId, chat_id: ChatId, user_id: UserId, role: Role, *, now_ms: int
    ) -> Member:
        decide = changes.decide_role(actor, user_id, role, now_ms=now_ms)
        await self._finish(self._change(chat_id, [actor, user_id], decide, now_ms))
        return await self._act(reading.check_member, chat_id, user_id)

    async def hand_over(
        self, actor: UserId, chat_id: ChatId, user_id: UserId, *, now_ms: int
    ) -> Member:
        decide = changes.decide_hand_over(actor, user_id, now_ms=now_ms)
        await self._finish(self._change(chat_id, [actor, user_id], decide, now_ms))
        return await self._act(reading.check_member, chat_id, user_id)

    async def close_group(self, actor: UserId, chat_id: ChatId, *, now_ms: int) -> None:
        await self._finish(self._close_group(actor, chat_id, now_ms))

    async def _close_group(self, actor: UserId, chat_id: ChatId, now_ms: int) -> None:
        async with self._locks.held(chat_id):
            with self._database.within_budget():
                event = await closing.close_group(self._database, actor, chat_id, now_ms=now_ms)
            if event is not None:
                self._committed(event)
            await closing.sweep_members(self._database, chat_id, last=actor)

    async def rename(self, actor: UserId, chat_id: ChatId, name: str, *, now_ms: int) -> ChatAccess:
        decide = changes.decide_rename(actor, name, now_ms=now_ms)
        await self._finish(self._change(chat_id, [actor], decide, now_ms))
        return await self.access_chat(actor, chat_id)

    async def mute(self, actor: UserId, chat_id: ChatId, muted_until_ms: int | None) -> Member:
        return await self._act(changes.mute, actor, chat_id, muted_until_ms)

    async def hide(self, actor: UserId, chat_id: ChatId, *, wanted: bool) -> None:
        await self._act(changes.hide, actor, chat_id, wanted=wanted)

    async def access_chat(self, reader: UserId, chat_id: ChatId) -> ChatAccess:
        return await self._act(changes.access_chat, reader, chat_id)

    async def members(
        self, reader: UserId, chat_id: ChatId, *, after: UserId | None, count_max: int
    ) -> list[Member]:
        found = await self._act(read_members, chat_id, after=after, count_max=count_max)
        await self.access_chat(reader, chat_id)
        return [state.member for state in found.values()]

    async def roster(self, chat_id: ChatId) -> Roster | None:
        return await self._act(read_roster, self._rosters, chat_id)

    async def share_group(self, one: UserId, other: UserId) -> bool:
        return await self._act(creation.shared_group, one, other) is not None

    async def chat_list(
        self,
        reader: UserId,
        *,
        cursor: ChatListCursor | None,
        count_max: int,
        active_since_ms: int = 0,
    ) -> ChatListPage:
        return await self._act(
            chat_list.list_chats,
            reader,
            cursor=cursor,
            count_max=count_max,
            active_since_ms=active_since_ms,
        )

    # What the event log has not got yet.

    async def outbox_rows(
        self, shard: int, *, after: str | None, count_max: int
    ) -> list[OutboxRow]:
        return await self._act(outbox.read_outbox, shard, after=after, count_max=count_max)

    async def outbox_events(self, row: OutboxRow) -> list[LoggedEvent] | None:
        return await self._act(outbox.read_events, row)

    async def forget_published(self, keys: Sequence[OutboxKey]) -> None:
        await self._act(outbox.forget_published, keys)

    async def lease_table(self, relay_id: str, *, until_ms: int, now_ms: int) -> LeaseTable:
        return await self._act(outbox.lease_table, relay_id, until_ms=until_ms, now_ms=now_ms)

    async def lease_shard(self, shard: int, relay_id: str, *, until_ms: int, now_ms: int) -> bool:
        return await self._act(
            outbox.lease_shard, shard, relay_id, until_ms=until_ms, now_ms=now_ms
        )

    async def release_shards(self, shards: Sequence[int], relay_id: str) -> None:
        await self._act(outbox.release_shards, shards, relay_id)

    async def leave_relays(self, relay_id: str) -> None:
        await self._act(outbox.leave_relays, relay_id)

    # Positions.

    async def advance(self, advances: Sequence[Advance], *, now_ms: int) -> list[AdvanceOutcome]:
        return await self._finish(self._advance(advances, now_ms))

    async def _advance(self, advances: Sequence[Advance], now_ms: int) -> list[AdvanceOutcome]:
        batch = positions.Advances(self._database, advances, now_ms)
        try:
            return await batch.carry_out()
        finally:
            self._committed(*batch.events)

    async def floors(self, chat_ids: Sequence[ChatId]) -> list[Floors | None]:
        return await self._act(positions.read_floors, self._rosters, chat_ids)

    async def delivery_status(
        self, reader: UserId, chat_id: ChatId, sequence: int | None
    ) -> DeliveryStatus:
        return await self._act(positions.read_status, self._rosters, reader, chat_id, sequence)

    async def digest(self, user_id: UserId, *, after: ChatId | None, count_max: int) -> DigestPage:
        return await self._act(
            positions.read_digest, self._rosters, user_id, after=after, count_max=count_max
        )

    async def standing(self, user_id: UserId, chat_id: ChatId) -> DigestEntry | None:
        return await self._act(positions.read_standing, self._rosters, user_id, chat_id)

    async def moved_at(self, user_id: UserId, chat_ids: Sequence[ChatId]) -> dict[ChatId, int]:
        return await self._act(positions.read_moved_at, user_id, chat_ids)

    # Users.

    async def add_user(self, user: User) -> User:
        return await self._act(users.add_user, user)

    async def users(self, user_ids: Sequence[UserId]) -> list[User]:
        return await self._act(users.users, user_ids)

    async def user_named(self, username: str) -> User | None:
        found = await self.users_named([username])
        return found[0] if found else None

    async def users_named(self, usernames: Sequence[str]) -> list[User]:
        return await self._act(users.users_named, usernames)

    async def list_users(self, *, after: str | None, count_max: int) -> list[User]:
        return await self._act(users.list_users, after=after, count_max=count_max)

    async def set_display_name(self, user_id: UserId, display_name: str, *, now_ms: int) -> User:
        return await self._act(
            users.change_user,
            user_id,
            "SET #display_name = :name, #updated_at = :now",
            name=display_name,
            now=now_ms,
        )


_CONFORMS: type[Storage] = DynamoStorage
_CONFORMS_AS_OUTBOX: type[Outbox] = DynamoStorage
