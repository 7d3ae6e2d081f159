"""Reads the event log and hands it to the fan-out: at least once, nothing passed over in silence.

A batch is read, its events are pushed, records that cannot be read are buried, and only then are
its offsets committed. If the store or the dead letters cannot be reached, the batch is read again
(K-03): a push that comes twice does no harm, because clients tell messages by their sequences.
What a record of an unknown kind tells of is in the store all the same, written by a newer server:
those who read its chat sync again.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from tidewire.domain.errors import Unavailable
from tidewire.domain.events import LoggedEvent
from tidewire.domain.ids import ChatId
from tidewire.fanout.options import FanoutOptions
from tidewire.fanout.plan import in_order_of_versions
from tidewire.ports.event_log import DeadLetters, LogReader, LogRecord
from tidewire.ports.runtime import Clock, pause
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

    def committed(self, events: Sequence[LoggedEvent]) -> None: ...
    def missed(self, chat_id: ChatId) -> None: ...
    async def settled(self) -> None: ...


class Pushes(Protocol):
    """Where pushes go (`ports.router.Router`)."""

    async def settled(self) -> None:
        """Wait until every push so far is handed on, or those who miss it will be told."""
        ...


class ConsumerCounters:
    """What has happened so far, as plain numbers for the metrics.

    Of records of kinds that this version does not know the chats are told (K-09), those that cannot
    be read are buried as dead letters. `rewinds` are batches that had to be read again.
    """

    batches = last_batch_records = handled = unknown = buried = rewinds = 0

    def __init__(self) -> None:
        self.records_by_topic: Counter[str] = Counter()


@dataclass(kw_only=True, eq=False)
class LogConsumer:
    """`run` is a task for as long as the process lives."""

    reader: LogReader
    letters: DeadLetters
    worker: Worker
    pushes: Pushes
    clock: Clock
    options: FanoutOptions
    counters: ConsumerCounters = field(default_factory=ConsumerCounters, init=False)

    async def run(self) -> None:
        while True:
            await self.step()

    async def step(self) -> None:
        """Read a batch, if there is one, and deal with it."""
        records = await self.reader.read()
        if not records:
            return
        try:
            await self._handle(records)
        except Unavailable:
            self.counters.rewinds += 1
            await self.reader.rewind(records)
            await pause(self.options.retry_ms)
            return
        # Only here: what is not dealt with must never lie behind the offset.
        await self.reader.commit(records)
        self._count(records)

    async def _handle(self, records: Sequence[LogRecord]) -> None:
        """Raises Unavailable if something of it could not be done."""
        events: list[LoggedEvent] = []
        refused: list[tuple[LogRecord, RecordRefusal]] = []
        unknown: list[UnknownRecord] = []
        for record in records:
            found = decode_record(record.value or b"")
            match found:
                case RecordRefusal():
                    refused.append((record, found))
                case UnknownRecord():
                    unknown.append(found)
                case _:
                    events.append(event_of(found))
        if events:
            self.worker.committed(in_order_of_versions(events))
        for chat_id in dict.fromkeys(one.chat_id for one in unknown):
            self.worker.missed(chat_id)
        await self.worker.settled()
        await self.pushes.settled()
        # Last, so that a batch that is read again buries them once, as a rule.
        for record, refusal in refused:
            await self.letters.bury(record.key, self._letter(record, refusal.reason))
        self.counters.handled += len(events)
        self.counters.unknown += len(unknown)
        self.counters.buried += len(refused)

    def _letter(self, record: LogRecord, reason: str) -> bytes:
        metadata = DeadLetterMetadata(
            original_topic=record.topic,
            original_partition=record.partition,
            original_offset=record.offset,
            original_timestamp=letter_time(record.timestamp_ms),
            consumer_group=self.reader.group,
            consumer_id=self.reader.reader_id,
            failure_reason=reason,
            failure_timestamp=letter_time(self.clock.wall_ms()),
            processing_attempts=attempts_so_far(record.headers) + 1,
        )
        original = original_record(record.key, record.value, record.headers)
        return encode_dead_letter(DeadLetter(dlq_metadata=metadata, original_record=original))

    def _count(self, records: Sequence[LogRecord]) -> None:
        counters = self.counters
        counters.batches += 1
        counters.last_batch_records = len(records)
        counters.records_by_topic.update(record.topic for record in records)
