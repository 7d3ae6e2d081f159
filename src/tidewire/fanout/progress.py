"""How far a reader of the log has come: what was read, and what of it is dealt with. PURE.

Records are dealt with in any order, because a chat whose members are slow to read waits alone. The
log knows one number a partition, so what is told to it ends before the first that is not done.
"""

from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

from tidewire.ports.event_log import LogRecord, Place


class _Partition(NamedTuple):
    records: deque[LogRecord]
    """In the order of the log, from the first that is not done."""
    done: set[int]
    """Offsets of those that are."""


class Progress:
    """Of one reader, which bounds it by `len`."""

    def __init__(self) -> None:
        self._partitions: dict[Place, _Partition] = {}
        self._count = 0

    def __len__(self) -> int:
        """How many records were read and cannot be told to the log yet."""
        return self._count

    def began(self, records: Iterable[LogRecord]) -> None:
        """These were read."""
        for record in records:
            known = self._partitions.get(record.place)
            if known is not None and record.offset <= known.records[-1].offset:
                # It was given away and has come back: it is read from what the log was told.
                self.forget(record.place)
                known = None
            if known is None:
                known = self._partitions[record.place] = _Partition(deque(), set())
            known.records.append(record)
            self._count += 1

    def done(self, records: Iterable[LogRecord]) -> None:
        """These are dealt with. One whose partition was given away since is not asked for."""
        for record in records:
            known = self._partitions.get(record.place)
            if known is not None and record.offset >= known.records[0].offset:
                known.done.add(record.offset)

    def forget(self, place: Place) -> None:
        """Another reader deals with what was read here of a partition."""
        known = self._partitions.pop(place, None)
        if known is not None:
            self._count -= len(known.records)

    def take(self) -> list[LogRecord]:
        """What the log may be told now: all up to the first of each partition that is not done."""
        taken = []
        for place, (records, done) in list(self._partitions.items()):
            while records and records[0].offset in done:
                record = records.popleft()
                done.discard(record.offset)
                taken.append(record)
            if not records:
                del self._partitions[place]
        self._count -= len(taken)
        return taken
