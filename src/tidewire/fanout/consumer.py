"""Reads the event log and hands it to the fan-out: at least once, no record skipped silently.

A batch is read, its events are pushed, unreadable records are buried as dead letters, and only then
are its offsets committed. A record that waits for the members of its chat, or for the dead letters,
is held: it is not committed (K-03), while the other chats go on, until too much is held. After a
crash records are read again and pushed twice, which does no harm: clients recognise messages by
their sequences. A record of an unknown kind comes from a newer server, and its subject is in the
store all the same: the members of its chat sync again.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from tidewire.domain.errors import Unavailable
from tidewire.domain.events import LoggedEvent, MessageAppended
from tidewire.domain.ids import ChatId
from tidewire.fanout.options import FanoutOptions
from tidewire.fanout.plan import in_order_of_versions
from tidewire.fanout.progress import Progress
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
    """Pushes events (`fanout.worker.FanoutWorker`, made with `can_wait`)."""

    def committed(self, events: Sequence[LoggedEvent]) -> None: ...
    def missed(self, chat_id: ChatId) -> None: ...
    def is_waiting(self, chat_id: ChatId) -> bool: ...


class Pushes(Protocol):
    """Where pushes go (`ports.router.Router`)."""

    async def settled(self) -> None:
        """Wait until every push so far is handed on, or the users who miss it will be told."""
        ...


class ConsumerCounters:
    """Plain numbers for the metrics.

    `unknown` counts records of kinds that this version does not know: their chats are told (K-09).
    `buried` counts unreadable records, now dead letters. `pauses` counts how often no records were
    read because too many were held.
    """

    batches = last_batch_records = handled = unknown = buried = pauses = 0

    def __init__(self) -> None:
        self.records_by_topic: Counter[str] = Counter()


@dataclass(kw_only=True, eq=False)
class LogConsumer:
    """`run` is a task that lasts as long as the process."""

    reader: LogReader
    letters: DeadLetters
    worker: Worker
    pushes: Pushes
    clock: Clock
    options: FanoutOptions
    counters: ConsumerCounters = field(default_factory=ConsumerCounters, init=False)
    _progress: Progress = field(default_factory=Progress, init=False)
    _held: dict[ChatId, list[LogRecord]] = field(default_factory=dict, init=False)
    _unburied: list[tuple[LogRecord, str]] = field(default_factory=list, init=False)

    @property
    def held_count(self) -> int:
        """How many records were read and are not committed yet."""
        return len(self._progress)

    async def run(self) -> None:
        while True:
            await self.step()

    async def step(self) -> None:
        """Read a batch, if there is one and room for it; push, bury and commit what is possible."""
        is_full = self.held_count >= self.options.waiting_events_max
        if is_full:
            self.counters.pauses += 1
            await self.reader.stay()
        records = () if is_full else await self.reader.read()
        for place in self.reader.take_lost():
            self._progress.forget(place)
        # Before new events are handed over: a chat that no longer waits has pushed all so far.
        pushed = self._no_longer_held()
        if records:
            self.counters.batches += 1
            self.counters.last_batch_records = len(records)
            pushed += self._hand_over(records)
        if pushed:
            await self.pushes.settled()
            self._progress.done(pushed)
        # Last, so that records that are read again are usually buried only once.
        await self._bury()
        await self._commit()

    def _hand_over(self, records: Sequence[LogRecord]) -> list[LogRecord]:
        """Give the events of these records to the worker; return the records pushed already."""
        self._progress.began(records)
        events: list[LoggedEvent] = []
        unknown: dict[ChatId, None] = {}
        of_chats: list[tuple[ChatId, LogRecord]] = []
        for record in records:
            found = decode_record(record.value or b"")
            match found:
                case RecordRefusal():
                    self._unburied.append((record, found.reason))
                    continue
                case UnknownRecord():
                    self.counters.unknown += 1
                    unknown[found.chat_id] = None
                    of_chats.append((found.chat_id, record))
                case _:
                    event = event_of(found)
                    events.append(event)
                    of_chats.append((_chat_of(event), record))
        if events:
            self.worker.committed(in_order_of_versions(events))
        for chat_id in unknown:
            self.worker.missed(chat_id)
        self.counters.handled += len(events)
        pushed = []
        for chat_id, record in of_chats:
            if self.worker.is_waiting(chat_id):
                self._held.setdefault(chat_id, []).append(record)
            else:
                pushed.append(record)
        return pushed

    def _no_longer_held(self) -> list[LogRecord]:
        ready = [chat_id for chat_id in self._held if not self.worker.is_waiting(chat_id)]
        return [record for chat_id in ready for record in self._held.pop(chat_id)]

    async def _bury(self) -> None:
        while self._unburied:
            record, reason = self._unburied[0]
            try:
                await self.letters.bury(record.key, self._letter(record, reason))
            except Unavailable:
                await pause(self.options.retry_ms)
                return
            del self._unburied[0]
            self._progress.done([record])
            self.counters.buried += 1

    async def _commit(self) -> None:
        # The only commit of offsets: it must never cover a record that is not done.
        handled = self._progress.take()
        if handled:
            await self.reader.commit(handled)
            self.counters.records_by_topic.update(record.topic for record in handled)

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


def _chat_of(event: LoggedEvent) -> ChatId:
    if isinstance(event, MessageAppended):
        return event.message.chat_id
    return event.chat.chat_id
