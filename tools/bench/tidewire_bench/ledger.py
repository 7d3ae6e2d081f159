"""Records who got what, and finds messages that were lost, came twice or out of order. PURE.

Messages of a sender are numbered from 0; the number travels in the `client_message_id`. A receiver
notes what it got in the order of arrival; the `prev_sequence` chain shows at once if one is
missing. After the run, what was acknowledged is compared with what arrived.
"""

from array import array
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

from tidewire_bench.frames import Item, number_of

OFFENDERS_MAX: Final = 10
"""How many faults are reported; the rest are only counted."""


class Faults:
    """What went wrong: all faults are counted, the first few are reported."""

    def __init__(self) -> None:
        self.count = 0
        self.first: list[str] = []

    def add(self, sentence: str) -> None:
        self.count += 1
        if len(self.first) < OFFENDERS_MAX:
            self.first.append(sentence)


class Sent:
    """What one sender has sent to its chat; the index is the message's number."""

    __slots__ = ("at_s", "name", "sequences")

    def __init__(self, name: str) -> None:
        self.name = name
        self.at_s = array("d")
        """When it was first sent."""
        self.sequences = array("q")
        """Its sequence; 0 until it is acknowledged."""

    @property
    def unacked(self) -> int:
        return self.sequences.count(0)


class Stream:
    """What one receiver got of one chat, in the order in which it was taken."""

    __slots__ = (
        "_faults",
        "_is_at_least_once",
        "held",
        "is_syncing",
        "last",
        "name",
        "numbers",
        "repeats",
        "sequences",
    )

    def __init__(self, name: str, faults: Faults, *, is_at_least_once: bool = False) -> None:
        """`is_at_least_once`: pushes may come again, and out of order, as in a cluster."""
        self.name = name
        self.last = 0
        """The end of the contiguous prefix."""
        self.sequences = array("q")
        self.numbers = array("q")
        self.is_syncing = False
        """The server has said that something may be missing, so pushes may overlap with pages."""
        self.held: dict[int, tuple[int, int]] = {}
        """Messages that wait for their predecessor, by sequence: (predecessor, number)."""
        self.repeats = 0
        self._is_at_least_once = is_at_least_once
        self._faults = faults

    def take(self, sequence: int, prev_sequence: int, number: int) -> bool:
        """A message has arrived; True if it was the next one."""
        if prev_sequence == self.last:
            self.last = sequence
            self.sequences.append(sequence)
            self.numbers.append(number)
            if self.held and not self.is_syncing:
                self.synced()
            return True
        if self.is_syncing or self._is_at_least_once:
            if sequence > self.last:
                self.held[sequence] = prev_sequence, number
            else:
                self.repeats += 1
        elif sequence <= self.last:
            self._faults.add(f"{self.name} got sequence {sequence} again after {self.last}")
        else:
            self._faults.add(
                f"{self.name} got sequence {sequence}, whose predecessor is {prev_sequence}, "
                f"after {self.last}"
            )
            self.last = sequence
            self.sequences.append(sequence)
            self.numbers.append(number)
        return False

    def take_all(self, items: Iterable[Item]) -> None:
        """A page has arrived."""
        for item in items:
            self.take(item.sequence, item.prev_sequence, number_of(item.client_message_id))

    def synced(self) -> None:
        """The pages are complete: take what was held back. From now on order is strict again."""
        self.is_syncing = False
        held, self.held = self.held, {}
        for sequence, (prev_sequence, number) in sorted(held.items()):
            if sequence > self.last:
                self.take(sequence, prev_sequence, number)


def check_stream(stream: Stream, sent: Sent, faults: Faults) -> None:
    """Check that each acknowledged message has arrived once, under the sequence of its ack.

    A message whose ack never came may have arrived or not: nothing was promised.
    """
    got = dict(zip(stream.numbers, stream.sequences, strict=True))
    if len(got) != len(stream.numbers):
        twice = [number for number, times in Counter(stream.numbers).items() if times > 1]
        for number in twice:
            faults.add(f"{stream.name} got message {number} of {sent.name} more than once")
    for number, sequence in enumerate(sent.sequences):
        if sequence == 0:
            continue
        arrived = got.get(number)
        if arrived is None:
            faults.add(
                f"{stream.name} never got message {number} of {sent.name}, acknowledged as "
                f"sequence {sequence}"
            )
        elif arrived != sequence:
            faults.add(
                f"{stream.name} got message {number} of {sent.name} as sequence {arrived}, but "
                f"it was acknowledged as {sequence}"
            )
    strangers = sum(number >= len(sent.sequences) for number in got)
    if strangers:
        faults.add(f"{stream.name} got {strangers} messages that {sent.name} never sent")


def is_equal(stream: Stream, sent: Sent) -> bool:
    """The quick answer for a run in which nothing went wrong: all acked, all there, in order."""
    numbers = stream.numbers
    return (
        len(numbers) == len(sent.sequences)
        and stream.sequences == sent.sequences
        and numbers == array("q", range(len(numbers)))
    )


def check_streams(streams: Sequence[Stream], sent: Sent, faults: Faults) -> None:
    for stream in streams:
        if not is_equal(stream, sent):
            check_stream(stream, sent, faults)
