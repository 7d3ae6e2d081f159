"""Pages of entries that are whole: cut where the chain breaks, and where they get too large. PURE.

A query is only read-committed against transactions: it may show the second message of a commit and
not the first. What follows a message that is not there yet is left out until it is (P-01).
"""

from collections.abc import Sequence

import msgspec

from tidewire.domain.messages import Message


def chained_after(messages: Sequence[Message], after: int) -> list[Message]:
    """The messages, ascending, up to the first whose predecessor is missing."""
    chain: list[Message] = []
    last = after
    for message in messages:
        # The one before the first may lie anywhere at or below the cursor.
        if message.prev_sequence > last or (chain and message.prev_sequence != last):
            break
        chain.append(message)
        last = message.sequence
    return chain


def chained_before(messages: Sequence[Message], top: int) -> list[Message]:
    """The messages, descending, from the one that must be on top down to the first that is
    missing."""
    chain: list[Message] = []
    wanted = top
    for message in messages:
        if message.sequence != wanted:
            break
        chain.append(message)
        wanted = message.prev_sequence
    return chain


def cut(messages: Sequence[Message], count_max: int, bytes_max: int) -> list[Message]:
    """The first messages that fit, but at least one."""
    page: list[Message] = []
    size_bytes = 0
    for message in messages:
        size_bytes += len(message.content.encode())
        if page and (len(page) >= count_max or size_bytes > bytes_max):
            break
        page.append(message)
    return page


def is_enough(messages: Sequence[Message], count_max: int, bytes_max: int) -> bool:
    """True if reading on could not make the page longer."""
    return len(cut(messages, count_max, bytes_max)) < len(messages) or (len(messages) >= count_max)


class Piece(msgspec.Struct, frozen=True):
    """What one table has between two sequences, these included."""

    entries: Sequence[Message]
    between: tuple[int, int]
    ascending: bool
    is_cut: bool
    """There may be more beyond the last one."""

    @property
    def covered(self) -> tuple[int, int]:
        """Between which sequences all of it is there."""
        low, high = self.between
        if not self.is_cut:
            return self.between
        last = self.entries[-1].sequence
        return (low, last) if self.ascending else (last, high)

    @property
    def is_closed(self) -> bool:
        """True if nothing of another table can lie beyond the last entry, as far as it counts."""
        if self.is_cut:
            return True
        if not self.entries:
            return False
        last = self.entries[-1]
        return last.sequence == self.between[1] if self.ascending else not last.prev_sequence


def merged(messages: Piece, amendments: Piece) -> list[Message]:
    """The entries of both tables in their order, as far as all of both is there."""
    low, high = amendments.covered
    found = [one for one in (*messages.entries, *amendments.entries) if low <= one.sequence <= high]
    return sorted(found, key=_sequence_of, reverse=not messages.ascending)


def _sequence_of(message: Message) -> int:
    return message.sequence
