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
    lowest_of,
)
from tidewire.domain.ids import ChatId, ClientMessageId, MessageId, UserId
from tidewire.domain.limits import UNREAD_MAX, UNREAD_SCAN_MAX
from tidewire.domain.messages import Message
from tidewire.domain.users import User


@dataclass(slots=True)
class PositionRow:
    """A user's positions in a chat and when they last moved; made when he first joins.

    The row outlives the membership: who comes back goes on from where he was.
    """

    positions: Positions
    updated_at_ms: int


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
    members: dict[UserId, Member] = field(default_factory=dict)
    positions: dict[UserId, PositionRow] = field(default_factory=dict)
    messages: list[Message] = field(default_factory=list)
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
        )

    def add_member(self, member: Member) -> None:
        self.members[member.user_id] = member
        self.positions.setdefault(member.user_id, PositionRow(NOWHERE, member.joined_at_ms))

    def add_message(self, message: Message) -> None:
        assert message.sequence > self.head == message.prev_sequence
        self.messages.append(message)
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
        read = effective(self.positions_of(member.user_id).read, member.joined_sequence)
        scanned = self.messages_above(read)[:UNREAD_SCAN_MAX]
        return min(UNREAD_MAX, sum(message.sender_id != member.user_id for message in scanned))

    def digest_entry(self, user_id: UserId) -> DigestEntry:
        member = self.members[user_id]
        positions = self.positions_of(user_id)
        floors = self.floors()
        return DigestEntry(
            chat_id=self.chat_id,
            chat_type=self.chat_type,
            head=self.head,
            membership_version=self.membership_version,
            joined_sequence=member.joined_sequence,
            delivered=positions.delivered,
            read=positions.read,
            others_delivered=floors.delivered.boundary(user_id, self.head),
            others_read=floors.read.boundary(user_id, self.head),
            unread=self.unread(member),
        )


@dataclass(slots=True)
class MemoryTables:
    """Everything that a MemoryStorage stores."""

    chats: dict[ChatId, ChatRecord] = field(default_factory=dict)
    counters: dict[ChatId, int] = field(default_factory=dict)
    """The last sequence given out, per chat; apart, so that it can be missing (ADR-004)."""
    direct_chats: dict[str, ChatId] = field(default_factory=dict)
    users: dict[UserId, User] = field(default_factory=dict)
    user_ids_by_name: dict[str, UserId] = field(default_factory=dict)


def _sequence_of(message: Message) -> int:
    return message.sequence
