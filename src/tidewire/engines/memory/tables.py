"""What the memory engine keeps: one record a chat, and the rows that are not a chat's.

The tables outlive the store that works on them, as a disk outlives a process: a simulated restart
opens another MemoryStorage on the same tables. Nothing here depends on time, chance or set order.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field

from tidewire.domain.chats import Chat, ChatType, Member
from tidewire.domain.delivery import (
    NOWHERE,
    DigestEntry,
    Floors,
    MemberDelivery,
    Positions,
    effective,
    is_hidden,
    lowest_of,
)
from tidewire.domain.ids import ChatId, ClientMessageId, MessageId, UserId
from tidewire.domain.limits import UNREAD_MAX, UNREAD_SCAN_MAX
from tidewire.domain.messages import Message
from tidewire.domain.users import User
from tidewire.engines.memory.account_tables import AccountTables


@dataclass(slots=True)
class PositionRow:
    """A user's positions in a chat and when they last moved; made when he first joins.

    The row outlives the membership: who comes back goes on from where he was.
    """

    positions: Positions
    updated_at_ms: int
    hidden_through: int | None = None


@dataclass(slots=True, kw_only=True)
class ChatRecord:
    """A chat with its messages, its members and their positions."""

    chat_id: ChatId
    chat_type: ChatType
    name: str | None
    created_by: UserId
    created_at_ms: int
    updated_at_ms: int
    membership_version: int = 1
    block_changes: int = 0
    members: dict[UserId, Member] = field(default_factory=dict)
    positions: dict[UserId, PositionRow] = field(default_factory=dict)
    blocked: dict[UserId, None] = field(default_factory=dict)
    """Members whose sends are refused, because the other one of this direct chat blocks them."""
    is_closed: bool = False
    """A closed group has no members."""
    messages: list[Message] = field(default_factory=list)
    commits: list[int] = field(default_factory=list)
    """The place of each message in the order of commits over all chats."""
    messages_by_key: dict[ClientMessageId, Message] = field(default_factory=dict)
    messages_by_id: dict[MessageId, Message] = field(default_factory=dict)

    @property
    def head(self) -> int:
        return self.messages[-1].sequence if self.messages else 0

    def as_chat(self) -> Chat:
        return Chat(
            chat_id=self.chat_id,
            chat_type=self.chat_type,
            name=self.name,
            created_by=self.created_by,
            created_at_ms=self.created_at_ms,
            updated_at_ms=self.updated_at_ms,
            membership_version=self.membership_version,
            member_count=len(self.members),
            head=self.head,
            block_changes=self.block_changes,
        )

    def add_member(self, member: Member) -> None:
        self.members[member.user_id] = member
        self.positions.setdefault(member.user_id, PositionRow(NOWHERE, member.joined_at_ms))

    def move(self, user_id: UserId, positions: Positions, now_ms: int) -> None:
        row = self.positions[user_id]
        row.positions, row.updated_at_ms = positions, now_ms

    def add_message(self, message: Message, commit: int) -> None:
        assert message.sequence > self.head == message.prev_sequence
        self.messages.append(message)
        self.commits.append(commit)
        self.messages_by_key[message.client_message_id] = message
        self.messages_by_id[message.message_id] = message

    def messages_above(self, sequence: int) -> Sequence[Message]:
        return self.messages[bisect_right(self.messages, sequence, key=_sequence_of) :]

    def messages_below(self, sequence: int) -> Sequence[Message]:
        return self.messages[: bisect_left(self.messages, sequence, key=_sequence_of)]

    def message_at(self, sequence: int) -> Message | None:
        index = bisect_left(self.messages, sequence, key=_sequence_of)
        if index < len(self.messages) and self.messages[index].sequence == sequence:
            return self.messages[index]
        return None

    def positions_of(self, user_id: UserId) -> Positions:
        return self.positions[user_id].positions

    def deliveries(self) -> list[MemberDelivery]:
        """Every member's positions, by user id."""
        return [
            MemberDelivery(
                user_id=user_id,
                joined_sequence=self.members[user_id].joined_sequence,
                positions=self.positions_of(user_id),
                updated_at_ms=self.positions[user_id].updated_at_ms,
            )
            for user_id in sorted(self.members)
        ]

    def floors(self) -> Floors:
        """Looks at every member, unlike what the port asks of an engine that serves people."""
        delivered = []
        read = []
        for user_id, member in self.members.items():
            positions = self.positions_of(user_id)
            delivered.append((user_id, effective(positions.delivered, member.joined_sequence)))
            read.append((user_id, effective(positions.read, member.joined_sequence)))
        return Floors(self.chat_id, self.head, lowest_of(delivered), lowest_of(read))

    def unread(self, member: Member) -> int:
        """Messages of others above what the member has read, as far as it is worth counting."""
        return self._count_others(member, self.positions_of(member.user_id).read)

    def undelivered(self, member: Member) -> int:
        """The same above what one of his devices has."""
        return self._count_others(member, self.positions_of(member.user_id).delivered)

    def _count_others(self, member: Member, position: int) -> int:
        above = self.messages_above(effective(position, member.joined_sequence))
        others = sum(message.sender_id != member.user_id for message in above[:UNREAD_SCAN_MAX])
        return min(UNREAD_MAX, others)

    def activity_at_ms(self, member: Member, *, snapshot: int) -> int:
        """When something last happened here for a member, as of a place in the order of commits."""
        count = bisect_right(self.commits, snapshot)
        last_ms = self.messages[count - 1].created_at_ms if count else 0
        return max(member.joined_at_ms, last_ms)

    def is_hidden(self, user_id: UserId) -> bool:
        return is_hidden(self.positions[user_id].hidden_through, self.head)

    def digest_entry(self, user_id: UserId) -> DigestEntry:
        member = self.members[user_id]
        positions = self.positions_of(user_id)
        floors = self.floors()
        return DigestEntry(
            chat_id=self.chat_id,
            chat_type=self.chat_type,
            head=self.head,
            membership_version=self.as_chat().shown_version,
            joined_sequence=member.joined_sequence,
            delivered=positions.delivered,
            read=positions.read,
            others_delivered=floors.delivered.boundary(user_id, self.head),
            others_read=floors.read.boundary(user_id, self.head),
            unread=self.unread(member),
            is_hidden=self.is_hidden(user_id),
        )


@dataclass(slots=True)
class MemoryTables:
    """Everything that a MemoryStorage stores."""

    chats: dict[ChatId, ChatRecord] = field(default_factory=dict)
    counters: dict[ChatId, int] = field(default_factory=dict)
    """The last sequence given out, per chat; apart, so that it can be missing (ADR-004)."""
    direct_chats: dict[str, ChatId] = field(default_factory=dict)
    refusals: dict[tuple[UserId, ChatId], None] = field(default_factory=dict)
    """Groups that users do not want to be added to again."""
    commits: int = 0
    """How many messages were stored, in all chats."""
    users: dict[UserId, User] = field(default_factory=dict)
    user_ids_by_name: dict[str, UserId] = field(default_factory=dict)
    accounts: AccountTables = field(default_factory=AccountTables)

    def add_user(self, user: User) -> None:
        """A user whose name is free."""
        assert user.username.casefold() not in self.user_ids_by_name
        self.users[user.user_id] = user
        self.user_ids_by_name[user.username.casefold()] = user.user_id

    def user_named(self, username: str) -> User | None:
        user_id = self.user_ids_by_name.get(username.casefold())
        return None if user_id is None else self.users[user_id]

    def refuses(self, user_id: UserId, *, actor: UserId, chat_id: ChatId | None = None) -> bool:
        """Whether the user blocks the one who would add, or has left that group for good."""
        is_blocked = self.accounts.is_blocked(user_id=user_id, blocked_id=actor)
        return is_blocked or (chat_id is not None and (user_id, chat_id) in self.refusals)

    def shares_chat(self, one: UserId, other: UserId) -> bool:
        return any(
            one in record.members and other in record.members for record in self.chats.values()
        )

    def shares_group(self, one: UserId, other: UserId) -> bool:
        return any(
            record.chat_type is ChatType.GROUP and one in record.members and other in record.members
            for record in self.chats.values()
        )


def _sequence_of(message: Message) -> int:
    return message.sequence
