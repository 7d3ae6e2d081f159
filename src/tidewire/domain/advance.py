"""How a user's positions move: by acknowledgements, and by the user's own messages. PURE.

An engine reads the facts, calls these functions inside its transaction, and writes the decision.
"""

from collections.abc import Mapping, Sequence

import msgspec

from tidewire.domain.delivery import (
    Advance,
    Advanced,
    AdvanceOutcome,
    Positions,
    positions_after_append,
    read_by_reply,
)
from tidewire.domain.errors import NotAMember, SequenceAboveHead
from tidewire.domain.events import PositionsAdvanced
from tidewire.domain.ids import ChatId, UserId
from tidewire.domain.messages import Message


class AdvanceDecision(msgspec.Struct, frozen=True):
    """The decision on some advances: one answer each, and the positions that move, with their new
    values."""

    outcomes: list[AdvanceOutcome]
    moved: dict[tuple[ChatId, UserId], Positions]

    @property
    def events(self) -> list[PositionsAdvanced]:
        return [PositionsAdvanced(*key, after) for key, after in self.moved.items()]


def decide_advances(
    advances: Sequence[Advance],
    members: Mapping[tuple[ChatId, UserId], tuple[Positions, int]],
) -> AdvanceDecision:
    """Decide advances one after the other: membership first, then the bound.

    `members` are the users who are members: the positions of each, and the head of the chat.
    """
    decision = AdvanceDecision([], {})
    for wish in advances:
        key = (wish.chat_id, wish.user_id)
        found = members.get(key)
        outcome: AdvanceOutcome
        if found is None:
            outcome = NotAMember()
        else:
            outcome = _advanced(wish, decision.moved.get(key, found[0]), found[1])
            if isinstance(outcome, Advanced) and outcome.moved:
                decision.moved[key] = outcome.positions
        decision.outcomes.append(outcome)
    return decision


def _advanced(wish: Advance, before: Positions, head: int) -> AdvanceOutcome:
    """Positions never fall and never pass the head; a read also acknowledges delivery (D-04)."""
    delivered = max(wish.delivered, wish.read)
    if delivered > head:
        return SequenceAboveHead(sequence=delivered, head=head)
    after = before.merged(Positions(delivered, wish.read))
    return Advanced(after, moved=after != before)


def author_move(
    before: Positions, joined_sequence: int, message: Message, seen_sequence: int | None
) -> tuple[Positions, PositionsAdvanced | None]:
    """An author's positions after the author's own entry, and the event that others are told.

    There is an event only if the author has read messages of others. A message implies that, an
    amendment does not: an author who corrects an old message may not have read what came since.
    """
    prev_sequence = message.prev_sequence
    if message.amends is not None:
        seen_sequence = 0
    if before.delivered == before.read == prev_sequence >= joined_sequence:
        # An author is usually up to date: the same result as below, at a fifth of its cost.
        return Positions(message.sequence, message.sequence), None
    after = positions_after_append(
        before,
        joined_sequence=joined_sequence,
        prev_sequence=prev_sequence,
        sequence=message.sequence,
        seen_sequence=seen_sequence,
    )
    read = read_by_reply(before, prev_sequence=prev_sequence, seen_sequence=seen_sequence)
    if read == before.read:
        return after, None
    return after, PositionsAdvanced(message.chat_id, message.sender_id, after)
