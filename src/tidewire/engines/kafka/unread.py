"""Which records of this process the readers of the log have not dealt with yet. PURE.

The brokers say where each record lies, and up to which offset the readers have dealt with each
partition: every record before that offset has been pushed.
"""

from collections import deque
from collections.abc import Mapping
from typing import Final

import msgspec

from tidewire.domain.ids import ChatId
from tidewire.domain.lag import Behind, Former, gathered
from tidewire.ports.event_log import Place

RECORDS_MAX: Final = 20_000


class _Record(msgspec.Struct, frozen=True):
    offset: int
    since_ms: int
    chat_id: ChatId
    former: Former


class Unread:
    """Bounded: beyond `records_max` only the partitions are known, not the chats that wait."""

    def __init__(self, *, records_max: int = RECORDS_MAX) -> None:
        self._records_max = records_max
        self._count = 0
        self._records: dict[Place, deque[_Record]] = {}
        # Records beyond the bound, by partition: the last offset, and since when the first waits.
        self._beyond: dict[Place, tuple[int, int]] = {}

    def __len__(self) -> int:
        return self._count

    def logged(
        self, place: Place, offset: int, chat_id: ChatId, former: Former, since_ms: int
    ) -> None:
        """A record is in the log at this place; it has waited for the readers since `since_ms`."""
        if self._count >= self._records_max:
            last, first_ms = self._beyond.get(place, (offset, since_ms))
            self._beyond[place] = max(last, offset), first_ms
            return
        self._records.setdefault(place, deque()).append(_Record(offset, since_ms, chat_id, former))
        self._count += 1

    def handled(self, next_offsets: Mapping[Place, int]) -> None:
        """The readers have dealt with everything before these offsets."""
        for place, next_offset in next_offsets.items():
            records = self._records.get(place)
            while records and records[0].offset < next_offset:
                records.popleft()
                self._count -= 1
            if not records:
                self._records.pop(place, None)
            if place in self._beyond and self._beyond[place][0] < next_offset:
                del self._beyond[place]

    def places(self, before_ms: int) -> list[Place]:
        """The partitions where a record has waited since `before_ms` or longer."""
        late = [place for place, records in self._records.items() if _is_late(records, before_ms)]
        beyond = [place for place, (_, first_ms) in self._beyond.items() if first_ms <= before_ms]
        return list(dict.fromkeys([*late, *beyond]))

    def since(self, before_ms: int) -> Behind | None:
        """The chats of records that have waited since `before_ms` or longer; None: may be any."""
        if any(first_ms <= before_ms for _, first_ms in self._beyond.values()):
            return None
        return gathered(
            (one.chat_id, one.former)
            for records in self._records.values()
            for one in records
            if one.since_ms <= before_ms
        )


def _is_late(records: deque[_Record], before_ms: int) -> bool:
    """Judged by the first record: those behind it came later, or at most a moment earlier."""
    return bool(records) and records[0].since_ms <= before_ms
