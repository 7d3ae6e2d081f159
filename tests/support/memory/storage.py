"""The memory engine: the storage port on dicts and lists.

No method ever waits, so each is one atomic act by itself, and a run of the same calls gives the
same answers and events. It is durable for as long as its tables exist.
"""

import asyncio
from collections.abc import Sequence

import msgspec

from tests.support.memory.accounts import MemoryAccounts
from tests.support.memory.chat_list import list_chats
from tests.support.memory.tables import ChatRecord, MemoryTables
from tidewire.domain import access, chat_changes
from tidewire.domain.advance import decide_advances
from tidewire.domain.append import decide_append
from tidewire.domain.chat_changes import (
    Changed,
    ChangeFacts,
    ChangeRequest,
    ChatChange,
    NewChat,
    changed,
)
from tidewire.domain.chat_list import ChatListCursor, ChatListPage
from tidewire.domain.chats import (
    Chat,
    ChatAccess,
    CreatedChat,
    CreateDirect,
    CreateGroup,
    Member,
    Roster,
    pair_key,
    roster_of,
)
from tidewire.domain.delivery import (
    Advance,
    AdvanceOutcome,
    DeliveryStatus,
    DigestEntry,
    DigestPage,
    Floors,
    status_of,
    status_sequence,
)
from tidewire.domain.errors import (
    CursorAhead,
    MessageNotFound,
    UsernameTaken,
)
from tidewire.domain.events import (
    Event,
)
from tidewire.domain.fold import AS_WRITTEN, MessageNow
from tidewire.domain.ids import ChatId, MessageId, UserId
from tidewire.domain.limits import APPEND_SENDS_MAX
from tidewire.domain.messages import AppendOutcome, Message, MessagePage, SendMessage, cut_page
from tidewire.domain.users import User, as_renamed
from tidewire.ports.event_log import CommitListener, ignore_commits
from tidewire.ports.storage import AppendDone, ChatStore, MessageStore, Storage


class MemoryStorage(MemoryAccounts, MessageStore, ChatStore):
    """A whole store in memory."""

    def __init__(
        self,
        listener: CommitListener = ignore_commits,
        epoch: str = "memory",
        tables: MemoryTables | None = None,
    ) -> None:
        super().__init__(MemoryTables() if tables is None else tables)
        self._listener = listener
        self._epoch = epoch

    @property
    def epoch(self) -> str:
        return self._epoch

    async def check_room(self) -> None:
        """There is always room."""

    @property
    def appends_per_chat(self) -> bool:
        return False

    async def close(self) -> None:
        self._is_closed = True

    # Messages.

    def append_nowait(self, sends: Sequence[SendMessage], *, now_ms: int, done: AppendDone) -> None:
        asyncio.get_running_loop().call_soon(done, self._append(sends, now_ms))

    async def append(self, sends: Sequence[SendMessage], *, now_ms: int) -> list[AppendOutcome]:
        return self._append(sends, now_ms)

    def _append(self, sends: Sequence[SendMessage], now_ms: int) -> list[AppendOutcome]:
        tables = self._open_tables()
        assert len(sends) <= APPEND_SENDS_MAX
        assert len({(send.chat_id, send.client_message_id) for send in sends}) == len(sends)
        earlier = {
            index: message
            for index, send in enumerate(sends)
            if (record := tables.chats.get(send.chat_id)) is not None
            if (message := record.messages_by_key.get(send.client_message_id)) is not None
        }
        decision = decide_append(sends, earlier, tables.authors(sends), now_ms, tables.facts(sends))
        tables.counters |= decision.counters
        for message in decision.messages:
            tables.commits += 1
            tables.chats[message.chat_id].add_message(message, tables.commits)
        for (chat_id, target, emoji, user_id), message in decision.reactions.items():
            tables.chats[chat_id].reactions[target, emoji, user_id] = message
        for erasure in decision.erasures:
            tables.chats[erasure.chat_id].erase(erasure.target, erasure.deleted_by)
        tables.move(decision.positions, now_ms)
        self._committed(*decision.events)
        return decision.outcomes

    async def messages_after(
        self, reader: UserId, chat_id: ChatId, after: int, *, count_max: int, bytes_max: int
    ) -> MessagePage:
        record, _ = self._access(reader, chat_id)
        if after > record.head:
            raise CursorAhead(cursor=after, head=record.head)
        waiting = record.messages_above(after)
        page, has_more = cut_page(waiting, count_max=count_max, bytes_max=bytes_max)
        through = page[-1].sequence if page else after
        return MessagePage(page, synced_through=through, has_more=has_more, head=record.head)

    async def messages_before(
        self, reader: UserId, chat_id: ChatId, before: int | None, *, count_max: int, bytes_max: int
    ) -> MessagePage:
        record, _ = self._access(reader, chat_id)
        older = record.messages if before is None else record.messages_below(before)
        page, has_more = cut_page(reversed(older), count_max=count_max, bytes_max=bytes_max)
        through = page[0].sequence if page else 0
        return MessagePage(page[::-1], synced_through=through, has_more=has_more, head=record.head)

    async def message(self, reader: UserId, chat_id: ChatId, message_id: MessageId) -> Message:
        record, _ = self._access(reader, chat_id)
        message = record.messages_by_id.get(message_id)
        if message is None:
            raise MessageNotFound
        return message

    async def messages_now(
        self, reader: UserId, chat_id: ChatId, sequences: Sequence[int]
    ) -> dict[int, MessageNow]:
        record, _ = self._access(reader, chat_id)
        found = {sequence: record.now(sequence, reader) for sequence in sequences}
        return {sequence: now for sequence, now in found.items() if now != AS_WRITTEN}

    async def chats_of_author(
        self, user_id: UserId, *, after: ChatId | None, count_max: int
    ) -> list[ChatId]:
        chats = self._open_tables().chats
        written = sorted(chat_id for chat_id in chats if user_id in chats[chat_id].positions)
        return [one for one in written if after is None or one > after][:count_max]

    async def messages_by(
        self, user_id: UserId, chat_id: ChatId, *, after: int, count_max: int
    ) -> list[int]:
        above = self._open_tables().chats[chat_id].messages_above(after)
        own = [one for one in above if one.sender_id == user_id and one.amends is None]
        return [one.sequence for one in own if not one.is_deleted][:count_max]

    # Chats.

    async def create_direct(self, command: CreateDirect, *, now_ms: int) -> CreatedChat:
        tables = self._open_tables()
        chat_changes.check_pair(command)
        one, other = command.actor_id, command.other_id
        pair = pair_key(one, other)
        if pair in tables.direct_chats:
            record = tables.chats[tables.direct_chats[pair]]
            record.positions[one].hidden_through = None
            return CreatedChat(record.chat, created=False)
        new = chat_changes.new_direct(
            command,
            missing=self._missing(one, other),
            blocks_other=tables.accounts.is_blocked(user_id=one, blocked_id=other),
            is_blocked=tables.accounts.is_blocked(user_id=other, blocked_id=one),
            shares_group=tables.shares_group(one, other),
            now_ms=now_ms,
        )
        tables.direct_chats[pair] = command.chat_id
        return self._create(new)

    async def create_group(
        self, command: CreateGroup, *, members_max: int, now_ms: int
    ) -> CreatedChat:
        record = self._open_tables().chats.get(command.chat_id)
        if record is not None:
            chat_changes.check_found_group(
                command,
                created_by=record.stored.created_by,
                chat_type=record.chat_type,
                is_closed=record.is_closed,
            )
            return CreatedChat(record.chat, created=False)
        chat_changes.check_group(command, members_max=members_max)
        refuses = self._tables.refuses
        new = chat_changes.new_group(
            command,
            missing=self._missing(command.actor_id, *command.member_ids),
            refuse=any(refuses(one, actor=command.actor_id) for one in command.member_ids),
            now_ms=now_ms,
        )
        return self._create(new)

    def _create(self, new: NewChat) -> CreatedChat:
        tables, chat = self._open_tables(), new.chat
        assert chat.chat_id not in tables.chats
        tables.chats[chat.chat_id] = record = ChatRecord(stored=chat)
        for member in new.members:
            record.add_member(member)
        tables.counters[chat.chat_id] = 0
        self._committed(new.event)
        return CreatedChat(chat, created=True)

    async def change_chat(self, request: ChangeRequest, *, now_ms: int) -> Changed:
        facts = self._facts(request)
        change = request.decide(facts)
        if request.refuses:
            self._tables.refusals[request.actor_id, request.chat_id] = None
        self._carry_out(change)
        return changed(facts, change)

    async def readmit(self, user_id: UserId, chat_id: ChatId) -> None:
        self._open_tables().refusals.pop((user_id, chat_id), None)

    async def refused_groups(
        self, user_id: UserId, *, after: ChatId | None, count_max: int
    ) -> list[ChatId]:
        refusals = self._open_tables().refusals
        found = sorted(chat_id for user, chat_id in refusals if user == user_id)
        return [chat_id for chat_id in found if after is None or chat_id > after][:count_max]

    async def strangers(self, user_id: UserId, others: Sequence[UserId]) -> list[UserId]:
        tables = self._open_tables()
        return [other for other in others if not tables.shares_chat(user_id, other)]

    def _facts(self, request: ChangeRequest) -> ChangeFacts:
        tables = self._open_tables()
        actor, chat_id = request.actor_id, request.chat_id
        user_id = request.target_id or actor
        record = tables.chats.get(chat_id)
        return ChangeFacts(
            _chat(record),
            _member(record, actor),
            _member(record, user_id),
            target_exists=not self._missing(user_id),
            target_refuses=tables.refuses(user_id, actor=actor, chat_id=chat_id),
            member_ids=[] if record is None else sorted(record.members),
        )

    def _carry_out(self, change: ChatChange | None) -> None:
        if change is None:
            return
        chat = change.chat
        record = self._tables.chats[chat.chat_id]
        if change.joined is not None:
            record.add_member(change.joined)
        record.members |= {member.user_id: member for member in change.roles}
        if change.left is not None:
            del record.members[change.left]
        if change.is_closed:
            record.members.clear()
            record.is_closed = True
        record.stored = chat
        assert chat.member_count == len(record.members)
        self._committed(*change.events)

    async def mute(self, actor: UserId, chat_id: ChatId, muted_until_ms: int | None) -> Member:
        record, member = self._access(actor, chat_id)
        record.members[actor] = msgspec.structs.replace(member, muted_until_ms=muted_until_ms)
        return record.members[actor]

    async def hide(self, actor: UserId, chat_id: ChatId, *, wanted: bool) -> None:
        record = self._open_tables().chats.get(chat_id)
        chat = access.check_hide(_chat(record), _member(record, actor))
        assert record is not None
        record.positions[actor].hidden_through = chat.head if wanted else None

    async def access_chat(self, reader: UserId, chat_id: ChatId) -> ChatAccess:
        record, member = self._access(reader, chat_id)
        return ChatAccess(record.chat, member)

    async def members(
        self, reader: UserId, chat_id: ChatId, *, after: UserId | None, count_max: int
    ) -> list[Member]:
        record, _ = self._access(reader, chat_id)
        user_ids = sorted(user for user in record.members if after is None or user > after)
        return [record.members[user_id] for user_id in user_ids[:count_max]]

    async def roster(self, chat_id: ChatId) -> Roster | None:
        record = self._open_tables().chats.get(chat_id)
        if record is None or record.is_closed:
            return None
        return roster_of(
            chat_id,
            record.stored.membership_version,
            {
                user_id: record.members[user_id].joined_sequence
                for user_id in sorted(record.members)
            },
            has_block=bool(record.blocked),
        )

    async def share_group(self, one: UserId, other: UserId) -> bool:
        return self._open_tables().shares_group(one, other)

    async def chat_list(
        self,
        reader: UserId,
        *,
        cursor: ChatListCursor | None,
        count_max: int,
        active_since_ms: int = 0,
    ) -> ChatListPage:
        return list_chats(self._open_tables(), reader, cursor, count_max, active_since_ms)

    # Positions.

    async def advance(self, advances: Sequence[Advance], *, now_ms: int) -> list[AdvanceOutcome]:
        tables = self._open_tables()
        members = {
            (wish.chat_id, wish.user_id): (record.positions_of(wish.user_id), record.head)
            for wish in advances
            if (record := tables.chats.get(wish.chat_id)) is not None
            if wish.user_id in record.members
        }
        decision = decide_advances(advances, members)
        tables.move(decision.moved, now_ms)
        self._committed(*decision.events)
        return decision.outcomes

    async def floors(self, chat_ids: Sequence[ChatId]) -> list[Floors | None]:
        records = self._open_tables().chats
        found = [records.get(chat_id) for chat_id in chat_ids]
        return [None if one is None or one.is_closed else one.floors() for one in found]

    async def delivery_status(
        self, reader: UserId, chat_id: ChatId, sequence: int | None
    ) -> DeliveryStatus:
        record, _ = self._access(reader, chat_id)
        wanted = status_sequence(sequence, record.head)
        message = record.message_at(wanted)
        author_id = None if message is None else message.sender_id
        return status_of(
            chat_id, record.chat_type, wanted, author_id=author_id, members=record.deliveries()
        )

    async def digest(self, user_id: UserId, *, after: ChatId | None, count_max: int) -> DigestPage:
        own = sorted(
            chat_id
            for chat_id, record in self._open_tables().chats.items()
            if user_id in record.members and (after is None or chat_id > after)
        )
        page = own[:count_max]
        entries = [self._tables.chats[chat_id].digest_entry(user_id) for chat_id in page]
        return DigestPage(entries, page[-1] if len(page) < len(own) else None)

    async def standing(self, user_id: UserId, chat_id: ChatId) -> DigestEntry | None:
        record = self._open_tables().chats.get(chat_id)
        if record is None or user_id not in record.members:
            return None
        return record.digest_entry(user_id)

    async def moved_at(self, user_id: UserId, chat_ids: Sequence[ChatId]) -> dict[ChatId, int]:
        chats = self._open_tables().chats
        return {
            chat_id: chats[chat_id].positions[user_id].updated_at_ms
            for chat_id in chat_ids
            if chat_id in chats and user_id in chats[chat_id].positions
        }

    # Users.

    async def add_user(self, user: User) -> User:
        tables = self._open_tables()
        if user.user_id in tables.users:
            return tables.users[user.user_id]
        if tables.user_named(user.username) is not None:
            raise UsernameTaken(user.username)
        tables.add_user(user)
        return user

    async def users(self, user_ids: Sequence[UserId]) -> list[User]:
        users = self._open_tables().users
        return [users[user_id] for user_id in dict.fromkeys(user_ids) if user_id in users]

    async def user_named(self, username: str) -> User | None:
        return self._open_tables().user_named(username)

    async def users_named(self, usernames: Sequence[str]) -> list[User]:
        tables = self._open_tables()
        names = dict.fromkeys(username.casefold() for username in usernames)
        return [user for name in names if (user := tables.user_named(name)) is not None]

    async def list_users(self, *, after: str | None, count_max: int) -> list[User]:
        tables = self._open_tables()
        last = "" if after is None else after.casefold()
        names = sorted(name for name in tables.user_ids_by_name if name > last)
        return [tables.users[tables.user_ids_by_name[name]] for name in names[:count_max]]

    async def set_display_name(self, user_id: UserId, display_name: str, *, now_ms: int) -> User:
        user = as_renamed(self._the_user(user_id), display_name, now_ms=now_ms)
        self._tables.users[user_id] = user
        return user

    # The gates and the exit.

    def _access(self, reader: UserId, chat_id: ChatId) -> tuple[ChatRecord, Member]:
        record = self._open_tables().chats.get(chat_id)
        member = access.check_member(_chat(record), _member(record, reader))
        assert record is not None
        return record, member

    def _missing(self, *user_ids: UserId) -> list[UserId]:
        users = self._tables.users
        return [one for one in user_ids if one not in users or not users[one].can_join]

    def _committed(self, *events: Event) -> None:
        if events:
            self._listener(events)


def _chat(record: ChatRecord | None) -> Chat | None:
    return None if record is None else record.chat


def _member(record: ChatRecord | None, user_id: UserId) -> Member | None:
    return None if record is None else record.members.get(user_id)


_CONFORMS: type[Storage] = MemoryStorage
