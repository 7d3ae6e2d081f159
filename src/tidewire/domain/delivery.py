"""Positions, ticks and what follows from them: two integers per user and chat. PURE.

`delivered` is the last sequence that one of the user's devices has stored, `read` the last one that
the user has seen. Both only grow. Everything a person sees (✓, ✓✓, blue, unread) comes from them.
"""

from collections.abc import Sequence
from enum import StrEnum
from typing import Final

import msgspec

from tidewire.domain.chats import ChatType
from tidewire.domain.errors import SequenceAboveHead, TidewireError
from tidewire.domain.ids import ChatId, UserId


class Positions(msgspec.Struct, frozen=True, gc=False):
    """How far one user has got in one chat, as acknowledged by the user's own devices."""

    delivered: int
    read: int

    def merged(self, other: "Positions") -> "Positions":
        """The higher of each: merges positions from several devices or messages."""
        return Positions(max(self.delivered, other.delivered), max(self.read, other.read))


NOWHERE: Final = Positions(0, 0)


class Advance(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A request to move a user's positions in a chat forward. A read also acknowledges delivery."""

    user_id: UserId
    chat_id: ChatId
    delivered: int = 0
    read: int = 0


class Advanced(msgspec.Struct, frozen=True, gc=False):
    """The positions after an advance; `moved` is False if nothing changed, which is no error."""

    positions: Positions
    moved: bool


AdvanceOutcome = Advanced | TidewireError
"""Advanced, or NotAMember, or SequenceAboveHead."""


class Tick(StrEnum):
    """What stands beside a sent message."""

    FAILED = "failed"
    SENDING = "sending"
    SENT = "sent"
    DELIVERED = "delivered"
    READ = "read"


TICK_MARKS: Final[dict[Tick, str]] = {
    Tick.FAILED: "✗",
    Tick.SENDING: "○",
    Tick.SENT: "✓",
    Tick.DELIVERED: "✓✓",
    Tick.READ: "✓✓",
}


def tick(sequence: int, *, others_delivered: int, others_read: int) -> Tick:
    """The tick of a stored message, by the others' boundaries as its author sees them."""
    assert sequence >= 1
    if sequence <= others_read:
        return Tick.READ
    if sequence <= others_delivered:
        return Tick.DELIVERED
    return Tick.SENT


def effective(position: int, joined_sequence: int) -> int:
    """The position that counts: a member need not acknowledge anything from before the joining."""
    return max(position, joined_sequence)


def read_by_reply(before: Positions, *, prev_sequence: int, seen_sequence: int | None) -> int:
    """The read position after a reply: what its author had seen when it was written.

    Never above what one of the author's devices acknowledged, and never above the message before
    the reply.
    """
    seen = prev_sequence if seen_sequence is None else seen_sequence
    return max(before.read, min(seen, before.delivered, prev_sequence))


def positions_after_append(
    before: Positions,
    *,
    joined_sequence: int,
    prev_sequence: int,
    sequence: int,
    seen_sequence: int | None,
) -> Positions:
    """The author's positions after the author's own message: the implicit read of a reply, and
    then, if the author was up to date, the message itself, which is not news to its author."""
    assert 0 <= prev_sequence < sequence
    delivered = before.delivered
    read = read_by_reply(before, prev_sequence=prev_sequence, seen_sequence=seen_sequence)
    if effective(delivered, joined_sequence) == prev_sequence:
        delivered = sequence
    if effective(read, joined_sequence) == prev_sequence:
        read = sequence
    return Positions(delivered, read)


class Lowest(msgspec.Struct, frozen=True):
    """The two lowest effective positions of a chat's current members, and who has the lowest.

    Two are enough to tell every author the minimum over the others, whatever the chat's size.
    `second` is None when there is one member only; then there is no other to wait for.
    """

    user_id: UserId | None
    first: int
    second: int | None

    def boundary(self, viewer: UserId, head: int) -> int:
        """The minimum over the members other than the viewer; with no other member, the head."""
        if self.user_id is None:
            return head
        if viewer != self.user_id:
            return self.first
        return head if self.second is None else self.second


class Floors(msgspec.Struct, frozen=True):
    """All that is needed to compute the boundaries of every member of a chat, and the membership
    version for which these positions are the lowest."""

    chat_id: ChatId
    membership_version: int
    head: int
    delivered: Lowest
    read: Lowest


def lowest_of(positions: Sequence[tuple[UserId, int]]) -> Lowest:
    """The two lowest of a list of (user, effective position); ties go to the smaller user id."""
    ordered = sorted(positions, key=lambda pair: (pair[1], pair[0]))[:2]
    if not ordered:
        return Lowest(None, 0, None)
    (user_id, first), *rest = ordered
    return Lowest(user_id, first, rest[0][1] if rest else None)


class MemberDelivery(msgspec.Struct, frozen=True, kw_only=True):
    """One current member's positions, as the delivery status lists them."""

    user_id: UserId
    joined_sequence: int
    positions: Positions
    updated_at_ms: int


class DeliverySummary(msgspec.Struct, frozen=True, kw_only=True):
    """How many of the awaited members have a message: delivered + pending = awaited."""

    sequence: int
    delivered_count: int
    read_count: int
    pending_count: int

    @property
    def all_delivered(self) -> bool:
        return self.pending_count == 0


def summarise(
    sequence: int, *, author_id: UserId | None, members: Sequence[MemberDelivery]
) -> DeliverySummary:
    """The awaited members are the current ones, without the author, who joined before the
    message."""
    awaited = [
        member.positions
        for member in members
        if member.user_id != author_id and member.joined_sequence < sequence
    ]
    delivered = sum(position.delivered >= sequence for position in awaited)
    return DeliverySummary(
        sequence=sequence,
        delivered_count=delivered,
        read_count=sum(position.read >= sequence for position in awaited),
        pending_count=len(awaited) - delivered,
    )


class DeliveryStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The delivery status of one message of a chat, with every current member's positions."""

    chat_id: ChatId
    chat_type: ChatType
    member_count: int
    summary: DeliverySummary
    members: Sequence[MemberDelivery]


def status_sequence(sequence: int | None, head: int) -> int:
    """The message whose status is asked for: the last one if none is named."""
    if sequence is None:
        return head
    if sequence > head:
        raise SequenceAboveHead(sequence=sequence, head=head)
    return sequence


def status_of(
    chat_id: ChatId,
    chat_type: ChatType,
    sequence: int,
    *,
    author_id: UserId | None,
    members: Sequence[MemberDelivery],
) -> DeliveryStatus:
    """`author_id` None: there is no such message, or its author is not known."""
    return DeliveryStatus(
        chat_id=chat_id,
        chat_type=chat_type,
        member_count=len(members),
        summary=summarise(sequence, author_id=author_id, members=members),
        members=members,
    )


def is_hidden(hidden_through: int | None, head: int) -> bool:
    """Whether a chat is hidden: the user hid it up to a message, and there is none above that."""
    return hidden_through is not None and head <= hidden_through


class DigestEntry(msgspec.Struct, frozen=True, omit_defaults=True):
    """The state of one chat for one user: all a device needs to know what it has missed.

    `membership_version` is the version that members are shown (`Chat.shown_version`).
    """

    chat_id: ChatId
    chat_type: ChatType
    head: int
    membership_version: int
    joined_sequence: int
    delivered: int
    read: int
    others_delivered: int
    others_read: int
    unread: int
    is_hidden: bool = False
    mentions_unread: int = 0
    """How many of the unread messages mention the user, or all; at most UNREAD_MAX."""


class DigestPage(msgspec.Struct, frozen=True):
    """Some of a user's chats, by chat id; `next_chat_id` is the `after` of the next page."""

    entries: Sequence[DigestEntry]
    next_chat_id: ChatId | None
