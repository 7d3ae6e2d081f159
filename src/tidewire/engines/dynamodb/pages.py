"""Cuts pages of entries where the chain breaks, so they are whole, and at their size limit. PURE.

A query is only read-committed against transactions: it may show the second message of a commit and
not the first. What follows a message that is not visible yet is left out until it is (P-01).
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
    """The messages, descending, from the one at `top`, which must be there, to the first missing
    one."""
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
    """The entries of one table between two sequences, both included."""

    entries: Sequence[Message]
    between: tuple[int, int]
    ascending: bool
    is_cut: bool
    """There may be more entries after the last one."""

    @property
    def covered(self) -> tuple[int, int]:
        """The first and last sequence between which no entry of the table is missing."""
        low, high = self.between
        if not self.is_cut:
            return self.between
        last = self.entries[-1].sequence
        return (low, last) if self.ascending else (last, high)

    @property
    def is_closed(self) -> bool:
        """True if no entry of another table that counts can lie beyond the last entry."""
        if self.is_cut:
            return True
        if not self.entries:
            return False
        last = self.entries[-1]
        return last.sequence == self.between[1] if self.ascending else not last.prev_sequence


def merged(messages: Piece, amendments: Piece) -> list[Message]:
    """The entries of both tables in order, as far as both are complete."""
    low, high = amendments.covered
    found = [one for one in (*messages.entries, *amendments.entries) if low <= one.sequence <= high]
    return sorted(found, key=_sequence_of, reverse=not messages.ascending)


def _sequence_of(message: Message) -> int:
    return message.sequence
