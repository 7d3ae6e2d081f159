"""The numbers of a chat: its counter is moved ahead for the next writer (decision 0015). PURE.

The counter is the last number that was given out (ADR-004). Numbers above `open_above` were given
to the chat and not to one process: the next is the one after the head, and the fence decides which
process gets it, so a number that a slower or dead process did not use is not lost. A counter
without that attribute (just made, or put back by an operator) has given out all numbers up to its
own.
"""

from typing import Final

import msgspec

from tidewire.domain.ids import ChatId
from tidewire.domain.limits import RECOVERY_SEQUENCE_JUMP, SEQUENCE_MAX
from tidewire.engines.dynamodb import rows, schema
from tidewire.engines.dynamodb.options import SENDS_PER_TRANSACTION_MAX
from tidewire.engines.dynamodb.rows import Row, Write

AHEAD_MIN: Final = 10
AHEAD_MAX: Final = 100
"""How many numbers are open at once in a busy chat; for so many entries a missing counter may stay
unnoticed."""
SEEN_SECONDS: Final = 60.0
"""How long a counter that was read counts as existing."""

assert AHEAD_MAX + SENDS_PER_TRANSACTION_MAX < RECOVERY_SEQUENCE_JUMP


class Counter(msgspec.Struct, frozen=True):
    """A chat's counter as it was read."""

    last: int
    open_above: int
    moved_at_ms: int = 0

    def first(self, head: int) -> int:
        """The next number of a chat with this head, if it is open."""
        return max(head, self.open_above) + 1

    def has(self, count: int, head: int) -> bool:
        """Whether `count` numbers are open."""
        return self.first(head) + count - 1 <= self.last

    def step(self, count: int, head: int, now_ms: int) -> int | None:
        """How many numbers to add so that `count` are open; at least ten, or twice as many as the
        last time, in a chat that has used one a minute since then. None: there are none left, or
        the counter is below the head."""
        missing = self.first(head) + count - 1 - self.last
        room = SEQUENCE_MAX - self.last
        if self.last < head or missing > room:
            return None
        ahead, used = 0, self.last - self.open_above
        if 0 <= now_ms - self.moved_at_ms < SEEN_SECONDS * 1000 * used:
            ahead = min(AHEAD_MAX, max(AHEAD_MIN, 2 * used))
        return min(max(missing, ahead), room)


def counter_of(row: Row | None) -> Counter | None:
    if row is None:
        return None
    last: int = row["sequence_counter"]
    return Counter(last, min(last, row.get("open_above", last)), row.get("updated_at", 0))


def move_ahead(chat_id: ChatId, seen: Counter, step: int, *, head: int, now_ms: int) -> Write:
    """Phase 1: add `step` numbers, if the counter is where it was read. A missing counter is never
    made here."""
    return rows.update(
        schema.COUNTERS,
        {"chat_id": chat_id},
        "ADD #sequence_counter :step SET #open_above = :above, #updated_at = :now",
        condition="#sequence_counter = :seen",
        step=step,
        above=seen.first(head) - 1,
        now=now_ms,
        seen=seen.last,
    )
