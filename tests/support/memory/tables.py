"""The data of the memory engine: one record for each chat, and the rows that belong to no chat.

The tables outlive the store that works on them, as a disk outlives a process: a simulated restart
opens another MemoryStorage on the same tables. Nothing here depends on time, chance or set order.
"""

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace

from tidewire.domain.access import Operation, may
from tidewire.domain.accounts import ExternalIdentity, Invite, RequestKey, StoredRequest
from tidewire.domain.amendments import Target, TargetFacts
from tidewire.domain.append import Author, ChatEnd
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
from tidewire.domain.fold import AS_WRITTEN, MessageNow, fold
from tidewire.domain.ids import SYSTEM, ChatId, ClientMessageId, MessageId, SessionId, UserId
from tidewire.domain.limits import UNREAD_MAX, UNREAD_SCAN_MAX
from tidewire.domain.messages import MENTION_ALL, EntryKind, Message, SendMessage
from tidewire.domain.sessions import StoredSession
from tidewire.domain.users import User


@dataclass(slots=True)
class PositionRow:
    """A user's positions in a chat and when they last moved; made when the user first joins.

    The row outlives the membership: a user who joins again has the positions of before.
    """

    positions: Positions
    updated_at_ms: int
    hidden_through: int | None = None


@dataclass(slots=True, kw_only=True)
class ChatRecord:
    """A chat with its messages, its members and their positions."""

    stored: Chat
    """Its head is not used: the messages say it."""
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
    reactions: dict[tuple[int, str, UserId], Message] = field(default_factory=dict)
    """By target, emoji and user: the reaction that counts now."""

    @property
    def head(self) -> int:
        return self.messages[-1].sequence if self.messages else 0

    @property
    def chat(self) -> Chat:
        return replace(self.stored, head=self.head)

    @property
    def chat_id(self) -> ChatId:
        return self.stored.chat_id

    @property
    def chat_type(self) -> ChatType:
        return self.stored.chat_type

    def add_member(self, member: Member) -> None:
        self.members[member.user_id] = member
        self.positions.setdefault(member.user_id, PositionRow(NOWHERE, member.joined_at_ms))

    def add_message(self, message: Message, commit: int) -> None:
        assert message.sequence > self.head == message.prev_sequence
        self.messages.append(message)
        self.commits.append(commit)
        self._index(message)

    def _index(self, message: Message) -> None:
        self.messages_by_key[message.client_message_id] = message
        self.messages_by_id[message.message_id] = message

    # Messages that change.

    def erase(self, target: int, deleted_by: int) -> None:
        """Take the content of a message and of its edits away; its reactions count no more."""
        for index, message in enumerate(self.messages):
            amends = message.amends
            if message.sequence == target or (
                amends is not None and (amends.kind, amends.target) == (EntryKind.EDIT, target)
            ):
                erased = replace(
                    message, content="", mentions=(), deleted_by=deleted_by, is_damaged=False
                )
                self.messages[index] = erased
                self._index(erased)
        self.reactions = {key: one for key, one in self.reactions.items() if key[0] != target}

    def edits_of(self, target: int) -> list[Message]:
        return [
            message
            for message in self.messages
            if message.amends is not None
            and (message.amends.kind, message.amends.target) == (EntryKind.EDIT, target)
        ]

    def target(self, sequence: int) -> Target | None:
        message = self.message_at(sequence)
        if message is None or message.amends is not None:
            return None
        edits = self.edits_of(sequence)
        on = {
            (user_id, emoji)
            for (target, emoji, user_id), one in self.reactions.items()
            if target == sequence and one.amends is not None and one.amends.is_on
        }
        return Target(
            message.sender_id,
            message.created_at_ms,
            (edits[-1] if edits else message).content,
            edited_by=edits[-1].sequence if edits else 0,
            edits=len(edits),
            deleted_by=message.deleted_by,
            is_damaged=message.is_damaged,
            counts=dict(Counter(emoji for _, emoji in on)),
            on=on,
        )

    def now(self, sequence: int, reader: UserId) -> MessageNow:
        """What a message is now: all entries about it, folded from the beginning."""
        now = AS_WRITTEN
        for message in self.messages:
            if message.amends is not None and message.amends.target == sequence:
                now = fold(now, message, reader)
        return now

    def last_message(self) -> Message | None:
        return next((one for one in reversed(self.messages) if one.amends is None), None)

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
        """Looks at every member: too slow for the port's contract, but enough for tests."""
        delivered = []
        read = []
        for user_id, member in self.members.items():
            positions = self.positions_of(user_id)
            delivered.append((user_id, effective(positions.delivered, member.joined_sequence)))
            read.append((user_id, effective(positions.read, member.joined_sequence)))
        version = self.stored.membership_version
        return Floors(self.chat_id, version, self.head, lowest_of(delivered), lowest_of(read))

    def unread(self, member: Member) -> int:
        """How many messages of others are above what the member has read, up to a limit."""
        return len(self._others(member, self.positions_of(member.user_id).read)[:UNREAD_MAX])

    def undelivered(self, member: Member) -> int:
        """The same above what the member has acknowledged as delivered."""
        return len(self._others(member, self.positions_of(member.user_id).delivered)[:UNREAD_MAX])

    def mentions_unread(self, member: Member) -> int:
        meant = {member.user_id, MENTION_ALL}
        unread = self._others(member, self.positions_of(member.user_id).read)
        return min(UNREAD_MAX, sum(not meant.isdisjoint(one.mentions) for one in unread))

    def _others(self, member: Member, position: int) -> list[Message]:
        """Messages of others above a position that are not deleted."""
        above = self.messages_above(effective(position, member.joined_sequence))
        messages = [one for one in above if one.amends is None][-UNREAD_SCAN_MAX:]
        return [one for one in messages if not one.is_deleted and one.sender_id != member.user_id]

    def activity_at_ms(self, member: Member, *, snapshot: int) -> int:
        """The time of the chat's last activity for a member, as of a place in the commit order."""
        count = bisect_right(self.commits, snapshot)
        messages = (one for one in reversed(self.messages[:count]) if one.amends is None)
        last = next(messages, None)
        last_ms = 0 if last is None else last.created_at_ms
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
            membership_version=self.stored.shown_version,
            joined_sequence=member.joined_sequence,
            delivered=positions.delivered,
            read=positions.read,
            others_delivered=floors.delivered.boundary(user_id, self.head),
            others_read=floors.read.boundary(user_id, self.head),
            unread=self.unread(member),
            is_hidden=self.is_hidden(user_id),
            mentions_unread=self.mentions_unread(member),
        )


@dataclass(slots=True)
class AccountTables:
    """Everything about accounts that a MemoryStorage stores."""

    passwords: dict[UserId, str] = field(default_factory=dict)
    places: dict[UserId, tuple[str, ...]] = field(default_factory=dict)
    external_users: dict[ExternalIdentity, UserId] = field(default_factory=dict)
    invites: dict[bytes, Invite] = field(default_factory=dict)
    used_invites: dict[bytes, UserId] = field(default_factory=dict)
    sessions: dict[SessionId, StoredSession] = field(default_factory=dict)
    pending_deletions: dict[UserId, bool] = field(default_factory=dict)
    blocks: dict[UserId, dict[UserId, None]] = field(default_factory=dict)
    requests: dict[RequestKey, StoredRequest] = field(default_factory=dict)

    def is_blocked(self, *, user_id: UserId, blocked_id: UserId) -> bool:
        return blocked_id in self.blocks.get(user_id, {})


@dataclass(slots=True)
class MemoryTables:
    """Everything that a MemoryStorage stores."""

    chats: dict[ChatId, ChatRecord] = field(default_factory=dict)
    counters: dict[ChatId, int] = field(default_factory=dict)
    """By chat: the last sequence given out; apart, so that it can be missing (ADR-004)."""
    direct_chats: dict[str, ChatId] = field(default_factory=dict)
    refusals: dict[tuple[UserId, ChatId], None] = field(default_factory=dict)
    """Groups that users do not want to be added to again."""
    commits: int = 0
    """How many messages were stored, in all chats."""
    users: dict[UserId, User] = field(default_factory=dict)
    user_ids_by_name: dict[str, UserId] = field(default_factory=dict)
    accounts: AccountTables = field(default_factory=AccountTables)

    def add_user(self, user: User) -> None:
        """Add a user, whose name must be free."""
        assert user.username.casefold() not in self.user_ids_by_name
        self.users[user.user_id] = user
        self.user_ids_by_name[user.username.casefold()] = user.user_id

    def user_named(self, username: str) -> User | None:
        user_id = self.user_ids_by_name.get(username.casefold())
        return None if user_id is None else self.users[user_id]

    def authors(self, sends: Sequence[SendMessage]) -> dict[tuple[ChatId, UserId], Author]:
        """The senders who are members, as they and their chats are now."""
        ends: dict[ChatId, ChatEnd] = {}
        authors = {}
        for send in sends:
            record = self.chats.get(send.chat_id)
            if record is None:
                continue
            version, counter = record.stored.membership_version, self.counters.get(send.chat_id)
            end = ends.setdefault(send.chat_id, ChatEnd(version, counter, record.head))
            key = (send.chat_id, send.sender_id)
            if send.sender_id == SYSTEM:
                authors[key] = Author(end, 0, NOWHERE, is_blocked=False, is_admin=True)
            elif (member := record.members.get(send.sender_id)) is not None:
                authors[key] = Author(
                    end,
                    member.joined_sequence,
                    record.positions_of(send.sender_id),
                    is_blocked=send.sender_id in record.blocked,
                    is_admin=may(member.role, Operation.MODERATE),
                )
        return authors

    def facts(self, sends: Sequence[SendMessage]) -> TargetFacts:
        """The messages and members that the sends are about, if they are not plain."""
        targets: dict[tuple[ChatId, int], Target] = {}
        members: set[tuple[ChatId, UserId]] = set()
        for send in sends:
            record = self.chats.get(send.chat_id)
            if record is None or send.is_plain:
                continue
            amended = None if send.amends is None else send.amends.target
            for sequence in (send.reply_to, amended):
                if sequence is not None and (target := record.target(sequence)) is not None:
                    targets.setdefault((send.chat_id, sequence), target)
            members |= {(send.chat_id, one) for one in send.mentions if one in record.members}
        return TargetFacts(targets, members)

    def move(self, moved: Mapping[tuple[ChatId, UserId], Positions], now_ms: int) -> None:
        for (chat_id, user_id), positions in moved.items():
            row = self.chats[chat_id].positions[user_id]
            row.positions, row.updated_at_ms = positions, now_ms

    def refuses(self, user_id: UserId, *, actor: UserId, chat_id: ChatId | None = None) -> bool:
        """Whether the user blocks the actor who would add them, or has left the group for good."""
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
