"""How far a reader of the log has come: which records were read, and which are done. PURE.

Records are done in any order, because a chat whose members are slow to read waits alone. The log
keeps one offset per partition, so commits end before the first record that is not done.
"""

from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

from tidewire.ports.event_log import LogRecord, Place


class _Partition(NamedTuple):
    records: deque[LogRecord]
    """In the order of the log, from the first that is not done."""
    done: set[int]
    """Offsets of the records that are done."""


class Progress:
    """The progress of one reader, which bounds it by `len`."""

    def __init__(self) -> None:
        self._partitions: dict[Place, _Partition] = {}
        self._count = 0

    def __len__(self) -> int:
        """How many records were read and cannot be committed to the log yet."""
        return self._count

    def began(self, records: Iterable[LogRecord]) -> None:
        """Note that these records were read."""
        for record in records:
            known = self._partitions.get(record.place)
            if known is not None and record.offset <= known.records[-1].offset:
                # The partition was lost and has come back: it is read from the committed offset.
                self.forget(record.place)
                known = None
            if known is None:
                known = self._partitions[record.place] = _Partition(deque(), set())
            known.records.append(record)
            self._count += 1

    def done(self, records: Iterable[LogRecord]) -> None:
        """Note that these records are done. A record of a partition lost since is ignored."""
        for record in records:
            known = self._partitions.get(record.place)
            if known is not None and record.offset >= known.records[0].offset:
                known.done.add(record.offset)

    def forget(self, place: Place) -> None:
        """Forget the records of a partition that another reader has now."""
        known = self._partitions.pop(place, None)
        if known is not None:
            self._count -= len(known.records)

    def take(self) -> list[LogRecord]:
        """Take the records to commit now: in each partition, all before the first not done."""
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
