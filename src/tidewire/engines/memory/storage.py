"""The memory engine: the storage port on dicts and lists.

No method ever waits, so each is one atomic act by itself, and a run of the same calls gives the
same answers and events. It is durable for as long as its tables are held.
"""

from collections.abc import Iterable, Sequence

import msgspec

from tidewire.domain import access
from tidewire.domain.chat_list import ChatListCursor, ChatListPage
from tidewire.domain.chats import (
    Chat,
    ChatAccess,
    ChatType,
    CreatedChat,
    CreateDirect,
    CreateGroup,
    Member,
    Role,
    Roster,
    check_chat_name,
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
    summarise,
)
from tidewire.domain.errors import (
    ChatIsFull,
    CursorAhead,
    InvalidOperation,
    MessageNotFound,
    NotAMember,
    SequenceAboveHead,
    UsernameTaken,
    UserNotFound,
)
from tidewire.domain.events import (
    ChatClosed,
    ChatCreated,
    ChatRenamed,
    Event,
    MembershipChange,
    MembershipChanged,
)
from tidewire.domain.ids import ChatId, MessageId, UserId
from tidewire.domain.limits import APPEND_SENDS_MAX
from tidewire.domain.messages import AppendOutcome, Message, MessagePage, SendMessage
from tidewire.domain.users import User
from tidewire.engines.memory.accounts import MemoryAccounts
from tidewire.engines.memory.chat_list import list_chats
from tidewire.engines.memory.moves import advance_one, append_one
from tidewire.engines.memory.tables import ChatRecord, MemoryTables
from tidewire.ports.event_log import CommitListener, ignore_commits
from tidewire.ports.storage import Storage


class MemoryStorage(MemoryAccounts):
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

    async def append(self, sends: Sequence[SendMessage], *, now_ms: int) -> list[AppendOutcome]:
        tables = self._open_tables()
        assert len(sends) <= APPEND_SENDS_MAX
        assert len({(send.chat_id, send.client_message_id) for send in sends}) == len(sends)
        events: list[Event] = []
        outcomes = [append_one(tables, send, now_ms, events) for send in sends]
        self._committed(*events)
        return outcomes

    async def messages_after(
        self, reader: UserId, chat_id: ChatId, after: int, *, count_max: int, bytes_max: int
    ) -> MessagePage:
        record, _ = self._access(reader, chat_id)
        if after > record.head:
            raise CursorAhead(cursor=after, head=record.head)
        waiting = record.messages_above(after)
        page = _cut(waiting, count_max=count_max, bytes_max=bytes_max)
        return MessagePage(
            messages=page,
            synced_through=page[-1].sequence if page else after,
            has_more=len(page) < len(waiting),
            head=record.head,
        )

    async def messages_before(
        self, reader: UserId, chat_id: ChatId, before: int | None, *, count_max: int, bytes_max: int
    ) -> MessagePage:
        record, _ = self._access(reader, chat_id)
        older = record.messages if before is None else record.messages_below(before)
        page = _cut(reversed(older), count_max=count_max, bytes_max=bytes_max)[::-1]
        return MessagePage(
            messages=page,
            synced_through=page[-1].sequence if page else 0,
            has_more=len(page) < len(older),
            head=record.head,
        )

    async def message(self, reader: UserId, chat_id: ChatId, message_id: MessageId) -> Message:
        record, _ = self._access(reader, chat_id)
        message = record.messages_by_id.get(message_id)
        if message is None:
            raise MessageNotFound
        return message

    # Chats.

    async def create_direct(self, command: CreateDirect, *, now_ms: int) -> CreatedChat:
        tables = self._open_tables()
        if command.actor_id == command.other_id:
            raise InvalidOperation("a direct chat has two members; nobody chats with himself")
        pair = pair_key(command.actor_id, command.other_id)
        if pair in tables.direct_chats:
            record = tables.chats[tables.direct_chats[pair]]
            record.positions[command.actor_id].hidden_through = None
            return CreatedChat(record.as_chat(), created=False)
        self._check_users_exist(command.actor_id, command.other_id)
        one, other = command.actor_id, command.other_id
        access.check_begin_direct(
            command.policy,
            blocks_other=tables.accounts.is_blocked(user_id=one, blocked_id=other),
            is_blocked=tables.accounts.is_blocked(user_id=other, blocked_id=one),
            shares_group=tables.shares_group(one, other),
        )
        tables.direct_chats[pair] = command.chat_id
        roles = {command.actor_id: Role.MEMBER, command.other_id: Role.MEMBER}
        return self._create(
            command.chat_id, ChatType.DIRECT, None, command.actor_id, roles=roles, now_ms=now_ms
        )

    async def create_group(
        self, command: CreateGroup, *, members_max: int, now_ms: int
    ) -> CreatedChat:
        record = self._open_tables().chats.get(command.chat_id)
        if record is not None:
            if record.created_by != command.actor_id or record.chat_type is not ChatType.GROUP:
                raise InvalidOperation("this chat id is taken")
            if record.is_closed:
                raise NotAMember
            return CreatedChat(record.as_chat(), created=False)
        check_chat_name(command.name)
        roles = dict.fromkeys(command.member_ids, Role.MEMBER)
        if command.actor_id in roles or len(roles) < len(command.member_ids):
            raise InvalidOperation("name each of the other members once")
        if 1 + len(roles) > members_max:
            raise ChatIsFull(members_max)
        self._check_users_exist(command.actor_id, *command.member_ids)
        refuses = self._tables.refuses
        access.check_founders(
            refuse=any(refuses(one, actor=command.actor_id) for one in command.member_ids)
        )
        roles = {command.actor_id: Role.OWNER} | roles
        return self._create(
            command.chat_id,
            ChatType.GROUP,
            command.name,
            command.actor_id,
            roles=roles,
            now_ms=now_ms,
        )

    def _create(
        self,
        chat_id: ChatId,
        chat_type: ChatType,
        name: str | None,
        actor: UserId,
        *,
        roles: dict[UserId, Role],
        now_ms: int,
    ) -> CreatedChat:
        tables = self._open_tables()
        assert chat_id not in tables.chats
        record = ChatRecord(
            chat_id=chat_id,
            chat_type=chat_type,
            name=name,
            created_by=actor,
            created_at_ms=now_ms,
            updated_at_ms=now_ms,
        )
        for user_id, role in roles.items():
            record.add_member(
                Member(
                    user_id=user_id,
                    role=role,
                    joined_at_ms=now_ms,
                    joined_sequence=0,
                    added_by=actor,
                )
            )
        tables.chats[chat_id] = record
        tables.counters[chat_id] = 0
        chat = record.as_chat()
        self._committed(ChatCreated(chat, tuple(roles)))
        return CreatedChat(chat, created=True)

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
        tables = self._open_tables()
        record = tables.chats.get(chat_id)
        access.check_add(
            _chat(record),
            _member(record, actor),
            target=_member(record, user_id),
            target_exists=self._can_join(user_id),
            target_id=user_id,
            target_refuses=tables.refuses(user_id, actor=actor, chat_id=chat_id),
            role=role,
            members_max=members_max,
        )
        assert record is not None
        member = Member(
            user_id=user_id,
            role=role,
            joined_at_ms=now_ms,
            joined_sequence=record.head,
            added_by=actor,
        )
        record.add_member(member)
        self._membership_changed(record, member, MembershipChange.ADDED, actor, now_ms)
        return member

    async def remove_member(
        self, actor: UserId, chat_id: ChatId, user_id: UserId, *, now_ms: int
    ) -> None:
        record = self._open_tables().chats.get(chat_id)
        access.check_remove(
            _chat(record),
            _member(record, actor),
            target=_member(record, user_id),
            target_id=user_id,
        )
        assert record is not None
        member = record.members.pop(user_id)
        self._membership_changed(record, member, MembershipChange.REMOVED, actor, now_ms)

    async def leave(
        self, actor: UserId, chat_id: ChatId, *, for_good: bool = False, now_ms: int
    ) -> None:
        tables = self._open_tables()
        record = tables.chats.get(chat_id)
        access.check_leave(_chat(record), _member(record, actor))
        assert record is not None
        member = record.members.pop(actor)
        if for_good:
            tables.refusals[actor, chat_id] = None
        self._membership_changed(record, member, MembershipChange.REMOVED, actor, now_ms)

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

    async def change_role(
        self, actor: UserId, chat_id: ChatId, user_id: UserId, role: Role, *, now_ms: int
    ) -> Member:
        record = self._open_tables().chats.get(chat_id)
        access.check_change_role(
            _chat(record),
            _member(record, actor),
            target=_member(record, user_id),
            target_id=user_id,
            role=role,
        )
        assert record is not None
        member = record.members[user_id]
        if member.role is not role:
            member = msgspec.structs.replace(member, role=role)
            record.members[user_id] = member
            self._membership_changed(record, member, MembershipChange.ROLE_CHANGED, actor, now_ms)
        return member

    async def hand_over(
        self, actor: UserId, chat_id: ChatId, user_id: UserId, *, now_ms: int
    ) -> Member:
        record = self._open_tables().chats.get(chat_id)
        me, target = _member(record, actor), _member(record, user_id)
        if access.check_hand_over(_chat(record), me, target=target, target_id=user_id):
            assert record is not None
            assert me is not None
            assert target is not None
            events: list[Event] = []
            for member, role in ((target, Role.OWNER), (me, Role.ADMIN)):
                changed = msgspec.structs.replace(member, role=role)
                record.members[member.user_id] = changed
                kind = MembershipChange.ROLE_CHANGED
                events.append(_membership_event(record, changed, kind, actor, now_ms))
            self._committed(*events)
        assert record is not None
        return record.members[user_id]

    async def close_group(self, actor: UserId, chat_id: ChatId, *, now_ms: int) -> None:
        record = self._open_tables().chats.get(chat_id)
        access.check_close(_chat(record), _member(record, actor))
        assert record is not None
        member_ids = tuple(sorted(record.members))
        record.members.clear()
        record.is_closed = True
        _raise_version(record, now_ms)
        self._committed(ChatClosed(record.as_chat(), member_ids, actor, now_ms))

    async def rename(self, actor: UserId, chat_id: ChatId, name: str, *, now_ms: int) -> ChatAccess:
        check_chat_name(name)
        record = self._open_tables().chats.get(chat_id)
        access.check_rename(_chat(record), _member(record, actor))
        assert record is not None
        if record.name != name:
            record.name = name
            _raise_version(record, now_ms)
            self._committed(ChatRenamed(record.as_chat(), actor, now_ms))
        return ChatAccess(record.as_chat(), record.members[actor])

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
        return ChatAccess(record.as_chat(), member)

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
            record.membership_version,
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
        events: list[Event] = []
        outcomes = [advance_one(tables, advance, now_ms, events) for advance in advances]
        self._committed(*events)
        return outcomes

    async def floors(self, chat_ids: Sequence[ChatId]) -> list[Floors | None]:
        records = self._open_tables().chats
        found = [records.get(chat_id) for chat_id in chat_ids]
        return [None if one is None or one.is_closed else one.floors() for one in found]

    async def delivery_status(
        self, reader: UserId, chat_id: ChatId, sequence: int | None
    ) -> DeliveryStatus:
        record, _ = self._access(reader, chat_id)
        if sequence is None:
            sequence = record.head
        if sequence > record.head:
            raise SequenceAboveHead(sequence=sequence, head=record.head)
        message = record.message_at(sequence)
        members = record.deliveries()
        author_id = None if message is None else message.sender_id
        return DeliveryStatus(
            chat_id=chat_id,
            chat_type=record.chat_type,
            member_count=len(members),
            summary=summarise(sequence, author_id=author_id, members=members),
            members=members,
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
        tables = self._open_tables()
        user = self._the_user(user_id)
        if not user.can_join:
            raise UserNotFound(user_id)
        tables.users[user_id] = msgspec.structs.replace(
            user, display_name=display_name, updated_at_ms=now_ms
        )
        return tables.users[user_id]

    # The gates and the exit.

    def _access(self, reader: UserId, chat_id: ChatId) -> tuple[ChatRecord, Member]:
        record = self._open_tables().chats.get(chat_id)
        member = access.check_member(_chat(record), _member(record, reader))
        assert record is not None
        return record, member

    def _check_users_exist(self, *user_ids: UserId) -> None:
        missing = [user_id for user_id in user_ids if not self._can_join(user_id)]
        if missing:
            raise UserNotFound(*missing)

    def _can_join(self, user_id: UserId) -> bool:
        user = self._tables.users.get(user_id)
        return user is not None and user.can_join

    def _membership_changed(
        self,
        record: ChatRecord,
        member: Member,
        change: MembershipChange,
        actor: UserId,
        now_ms: int,
    ) -> None:
        self._committed(_membership_event(record, member, change, actor, now_ms))

    def _committed(self, *events: Event) -> None:
        if events:
            self._listener(events)


def _cut(messages: Iterable[Message], *, count_max: int, bytes_max: int) -> list[Message]:
    """The first messages that fit, but at least one."""
    page: list[Message] = []
    size_bytes = 0
    for message in messages:
        size_bytes += len(message.content.encode())
        if page and (len(page) >= count_max or size_bytes > bytes_max):
            break
        page.append(message)
    return page


def _chat(record: ChatRecord | None) -> Chat | None:
    return None if record is None else record.as_chat()


def _member(record: ChatRecord | None, user_id: UserId) -> Member | None:
    return None if record is None else record.members.get(user_id)


def _membership_event(
    record: ChatRecord, member: Member, change: MembershipChange, actor: UserId, now_ms: int
) -> MembershipChanged:
    _raise_version(record, now_ms)
    return MembershipChanged(
        chat=record.as_chat(),
        user_id=member.user_id,
        change=change,
        role=member.role,
        joined_sequence=member.joined_sequence,
        changed_by=actor,
        changed_at_ms=now_ms,
    )


def _raise_version(record: ChatRecord, now_ms: int) -> None:
    record.membership_version += 1
    record.updated_at_ms = now_ms


_CONFORMS: type[Storage] = MemoryStorage
