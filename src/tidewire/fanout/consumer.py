"""Reads the event log and hands it to the fan-out: at least once, nothing passed over in silence.

A batch is read, its events are pushed, records that nobody can read are buried, and only then are
its offsets committed. If the store or the dead letters cannot be reached, the batch is read again
(K-03): a push that comes twice does no harm, because clients tell messages by their sequences.
"""

from collections.abc import Sequence
from typing import Protocol

from tidewire.domain.errors import Unavailable
from tidewire.domain.events import Event, LoggedEvent
from tidewire.fanout.options import FanoutOptions
from tidewire.fanout.plan import in_order_of_versions
from tidewire.ports.event_log import DeadLetters, LogReader, LogRecord
from tidewire.ports.pausing import pause
from tidewire.ports.runtime import Clock
from tidewire.wire.dead_letters import (
    DeadLetter,
    DeadLetterMetadata,
    attempts_so_far,
    encode_dead_letter,
    letter_time,
    original_record,
)
from tidewire.wire.event_records import RecordRefusal, UnknownRecord, decode_record, event_of


class Worker(Protocol):
    """Pushes events (`fanout.worker.FanoutWorker`, made with `can_replay`)."""

    def committed(self, events: Sequence[Event]) -> None: ...
    async def settled(self) -> None: ...


class Pushes(Protocol):
    """Where pushes go (`ports.router.Router`)."""

    async def settled(self) -> None:
        """Wait until every push so far is handed on, or whoever misses it will be told."""
        ...


class ConsumerCounters:
    """What has happened so far, as plain numbers for whoever shows them."""

    __slots__ = (
        "batches",
        "buried",
        "handled",
        "last_batch_records",
        "records_by_topic",
        "rewinds",
        "unknown",
    )

    def __init__(self) -> None:
        self.batches = 0
        self.last_batch_records = 0
        self.records_by_topic: dict[str, int] = {}
        self.handled = 0
        self.unknown = 0
        """Records of kinds that this version does not know: passed over (K-09)."""
        self.buried = 0
        """Records that nobody can read: dead letters."""
        self.rewinds = 0
        """Batches that had to be read again."""


class LogConsumer:
    """`run` is a task for as long as the process lives."""

    def __init__(
        self,
        *,
        reader: LogReader,
        letters: DeadLetters,
        worker: Worker,
        pushes: Pushes,
        clock: Clock,
        options: FanoutOptions,
    ) -> None:
        self.counters = ConsumerCounters()
        self._reader = reader
        self._letters = letters
        self._worker = worker
        self._pushes = pushes
        self._clock = clock
        self._options = options

    async def run(self) -> None:
        while True:
            await self.step()

    async def step(self) -> None:
        """Read a batch, if there is one, and deal with it."""
        records = await self._reader.read()
        if not records:
            return
        try:
            await self._handle(records)
        except Unavailable:
            self.counters.rewinds += 1
            await self._reader.rewind(records)
            await pause(self._options.retry_ms)
            return
        # Only here: what is not dealt with must never lie behind the offset.
        await self._reader.commit(records)
        self._count(records)

    async def _handle(self, records: Sequence[LogRecord]) -> None:
        """Raises Unavailable if something of it could not be done."""
        events: list[LoggedEvent] = []
        refused: list[tuple[LogRecord, RecordRefusal]] = []
        unknown = 0
        for record in records:
            found = decode_record(record.value or b"")
            match found:
                case RecordRefusal():
                    refused.append((record, found))
                case UnknownRecord():
                    unknown += 1
                case _:
                    events.append(event_of(found))
        if events:
            self._worker.committed(in_order_of_versions(events))
        await self._worker.settled()
        await self._pushes.settled()
        # Last, so that a batch that is read again buries them once, as a rule.
        for record, refusal in refused:
            await self._letters.bury(record.key, self._letter(record, refusal.reason))
        self.counters.handled += len(events)
        self.counters.unknown += unknown
        self.counters.buried += len(refused)

    def _letter(self, record: LogRecord, reason: str) -> bytes:
        metadata = DeadLetterMetadata(
            original_topic=record.topic,
            original_partition=record.partition,
            original_offset=record.offset,
            original_timestamp=letter_time(record.timestamp_ms),
            consumer_group=self._reader.group,
            consumer_id=self._reader.reader_id,
            failure_reason=reason,
            failure_timestamp=letter_time(self._clock.wall_ms()),
            processing_attempts=attempts_so_far(record.headers) + 1,
        )
        original = original_record(record.key, record.value, record.headers)
        return encode_dead_letter(DeadLetter(dlq_metadata=metadata, original_record=original))

    def _count(self, records: Sequence[LogRecord]) -> None:
        counters = self.counters
        counters.batches += 1
        counters.last_batch_records = len(records)
        for record in records:
            known = counters.records_by_topic.get(record.topic, 0)
            counters.records_by_topic[record.topic] = known + 1
