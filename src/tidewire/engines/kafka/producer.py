"""The writing end of the log: an idempotent producer, its thread, its reports to the event loop.

The vendor's client sends on threads of its own and calls back on the thread that polls it. Reports
are gathered there and handed to the event loop together, however many there are. Nothing here
blocks the event loop: a full queue refuses records.
"""

import asyncio
import logging
import secrets
import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka import Message as Record

from tidewire.domain.errors import LogUnavailable
from tidewire.domain.events import LoggedEvent
from tidewire.domain.ids import EVENT_PREFIX, UlidSource
from tidewire.domain.lag import Behind, subject_of
from tidewire.domain.messages import Message
from tidewire.engines.kafka import schema
from tidewire.engines.kafka.offsets import GroupOffsets
from tidewire.engines.kafka.options import STATISTICS_MS, KafkaOptions
from tidewire.engines.kafka.reach import Reach
from tidewire.engines.kafka.statistics import decode_statistics
from tidewire.engines.kafka.texts import Owner, Texts, owner_of
from tidewire.engines.kafka.unread import Unread
from tidewire.ports.event_log import DeadLetters, EventLog, LateLog, PublishDone
from tidewire.ports.runtime import Clock, resolve
from tidewire.wire.event_records import encode_record, record_of

POLL_S: Final = 0.1
CLOSE_S_MAX: Final = 2.0
"""Shorter than the time that a process has to stop, also when the brokers are gone."""
PURGE_S_MAX: Final = 2.0
WITHDRAW_S: Final = 0.5
"""How long a deleted text may still be on its way: usually the brokers have it by then."""
CONFIRM_MS: Final = 1_000
"""How old a record is before the brokers are asked whether the readers have dealt with it."""
TRACE_BYTES: Final = 8

_logger = logging.getLogger(__name__)


class ProducerCounters:
    """Counts of records so far: the brokers did not accept those that `failed` in time; the client
    of this process did not accept those that were `refused`, as a rule because its queue was full.
    `fatal` counts how often the client could not go on and was replaced, `withdrawn` how often it
    was replaced because a text that waited in it was deleted."""

    sent = acked = failed = refused = fatal = withdrawn = 0


@dataclass(slots=True)
class _Waiting:
    """Records that are reported together."""

    left: int
    done: PublishDone
    texts: Sequence[Owner] = ()
    event: LoggedEvent | None = None
    """The event of the first record; None if the records are no events."""
    since_ms: int = 0
    error: LogUnavailable | None = None


class KafkaEventLog:
    """Satisfies `ports.event_log.EventLog`, `LateLog` and `DeadLetters`. Made on the loop that it
    serves."""

    def __init__(self, options: KafkaOptions, *, clock: Clock, producer_id: str) -> None:
        self.counters = ProducerCounters()
        self._options = options
        self._clock = clock
        self._producer_id = producer_id
        self._ids = UlidSource(secrets.randbits)
        self._loop = asyncio.get_running_loop()
        self._lock = threading.Lock()
        # Guarded by the lock: reports on their way to the loop.
        self._reports: deque[tuple[_Waiting, KafkaError | None, Record]] = deque()
        self._is_closed = False
        self._is_fatal = False
        self._reach = Reach(
            meanwhile="events wait in the outbox", again="the event log takes events again"
        )
        self._texts = Texts()
        self._unread = Unread()
        self._offsets = GroupOffsets(options)
        self._withdrawing: asyncio.TimerHandle | None = None
        self._producer = self._made()
        self._thread = threading.Thread(target=self._poll, name="kafka-producer", daemon=True)
        self._thread.start()

    def _made(self) -> Producer:
        settings: dict[str, object] = {
            **self._options.producer_settings(),
            "client.id": self._producer_id,
            "error_cb": self._failed,
            "statistics.interval.ms": STATISTICS_MS,
            "stats_cb": self._told_statistics,
        }
        return Producer(settings)

    # On the loop.

    def publish_nowait(self, events: Sequence[LoggedEvent], done: PublishDone) -> None:
        assert events
        now_ms = self._clock.wall_ms()
        trace_id = secrets.token_hex(TRACE_BYTES)
        records = []
        texts = []
        for event in map(self._texts.current, events):
            owner = owner_of(event)
            if owner is not None:
                texts.append(owner)
            record = record_of(
                event,
                event_id=EVENT_PREFIX + self._ids.next_ulid(now_ms),
                now_ms=now_ms,
                producer_id=self._producer_id,
                trace_id=trace_id,
            )
            topic = self._options.topic_prefix + schema.topic_of(event)
            records.append((topic, record.partition_key.encode(), encode_record(record)))
        self._produce(records, done, texts, events[0])

    def withdraw(self, deletions: Sequence[Message]) -> None:
        for deletion in deletions:
            self._texts.deleted(deletion)
        if self._texts.is_deleted_waiting and self._withdrawing is None:
            self._withdrawing = self._loop.call_later(WITHDRAW_S, self._take_back)

    def _take_back(self) -> None:
        """Replace the vendor's client: it cannot take back one record, only all. If a text is still
        in it, nothing gets through it anyway; the relays publish its records as the store has them
        by then."""
        self._withdrawing = None
        if self._texts.is_deleted_waiting and not self._is_closed:
            self.counters.withdrawn += 1
            self._replace_client()

    async def bury(self, key: bytes | None, letter: bytes) -> None:
        buried: asyncio.Future[None] = self._loop.create_future()
        topic = self._options.topic_prefix + schema.DEAD_LETTERS
        self._produce([(topic, key, letter)], partial(resolve, buried))
        await buried

    def _produce(
        self,
        records: Sequence[tuple[str, bytes | None, bytes]],
        done: PublishDone,
        texts: Sequence[Owner] = (),
        event: LoggedEvent | None = None,
    ) -> None:
        waiting = _Waiting(len(records), done, texts, event, self._clock.monotonic_ms())

        def delivered(error: KafkaError | None, record: Record) -> None:
            self._report(waiting, error, record)

        if self._is_closed:
            self._loop.call_soon(done, LogUnavailable("the event log is closed"))
            return
        if self._is_fatal:
            self._renew()
        self.counters.sent += len(records)
        for owner in texts:
            self._texts.leaves(owner)
        for index, (topic, key, value) in enumerate(records):
            try:
                self._producer.produce(topic, value, key, on_delivery=delivered)
            except (BufferError, KafkaException) as error:
                self.counters.refused += len(records) - index
                waiting.error = LogUnavailable(_why_refused(error))
                # Records before it are on their way; the others are not, and are reported here.
                waiting.left -= len(records) - index
                if not waiting.left:
                    self._loop.call_soon(self._end, waiting)
                return

    def _take_reports(self) -> None:
        with self._lock:
            reports, self._reports = self._reports, deque()
        for waiting, error, record in reports:
            if error is None:
                self.counters.acked += 1
                self._await_readers(waiting, record)
                self._reach.succeeded()
            else:
                self.counters.failed += 1
                waiting.error = LogUnavailable(f"the event log took too long: {error.name()}")
            waiting.left -= 1
            if not waiting.left:
                self._end(waiting)

    def _await_readers(self, waiting: _Waiting, record: Record) -> None:
        topic, partition, offset = record.topic(), record.partition(), record.offset()
        # The offset is not known if a retry found that the brokers had the record already.
        if (
            waiting.event is None
            or topic is None
            or partition is None
            or offset is None
            or offset < 0
        ):
            return
        chat_id, former = subject_of(waiting.event)
        self._unread.logged((topic, partition), offset, chat_id, former, waiting.since_ms)

    async def late(self, late_ms: int) -> Behind | None:
        now_ms = self._clock.monotonic_ms()
        # Asked long before a record is late: brokers that have gone away cannot answer.
        places = self._unread.places(now_ms - min(late_ms, CONFIRM_MS))
        if places:
            try:
                self._unread.handled(await self._offsets.next_offsets(places))
            except LogUnavailable as error:
                _logger.debug("%s", error)
        return self._unread.since(now_ms - late_ms)

    def _end(self, waiting: _Waiting) -> None:
        for owner in waiting.texts:
            self._texts.arrived(owner)
        waiting.done(waiting.error)

    def _renew(self) -> None:
        """After a fatal error a client accepts no records, and a client that has given up on the
        brokers sends none."""
        self.counters.fatal += 1
        self._replace_client()

    def _replace_client(self) -> None:
        """Records in the old client are reported as failed, even if the brokers have them."""
        self._is_fatal = False
        old, self._producer = self._producer, self._made()
        threading.Thread(target=_let_go, args=(old,), name="kafka-renewal", daemon=True).start()

    @property
    def is_reached(self) -> bool:
        """False while no broker can be reached, as far as is known."""
        return self._reach.is_reached

    @property
    def queued(self) -> int:
        """Records of which it is not known yet whether the brokers have them."""
        counters = self.counters
        return counters.sent - counters.acked - counters.failed - counters.refused

    async def close(self) -> None:
        """Accept nothing more, and wait a moment for the records on their way. Those that do not
        arrive are reported as failed: they are in the outbox."""
        if self._is_closed:
            return
        self._is_closed = True
        if self._withdrawing is not None:
            self._withdrawing.cancel()
        self._offsets.close()
        patience_s = 0.0 if self._texts.is_deleted_waiting else CLOSE_S_MAX
        await self._loop.run_in_executor(None, self._finish, patience_s)
        self._take_reports()

    def _finish(self, patience_s: float) -> None:
        self._producer.flush(patience_s)
        _let_go(self._producer)
        self._thread.join()

    # On the thread that polls, and on those that the vendor calls back on.

    def _poll(self) -> None:
        while not self._is_closed:
            self._producer.poll(POLL_S)

    def _report(self, waiting: _Waiting, error: KafkaError | None, record: Record) -> None:
        with self._lock:
            is_first = not self._reports
            self._reports.append((waiting, error, record))
        if is_first and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._take_reports)

    def _failed(self, error: KafkaError) -> None:
        """An error that the client reports; it goes on trying unless the error is fatal."""
        if error.fatal():
            self._is_fatal = True
            _logger.error("the event log's producer is made anew: %s", error.name())
        else:
            self._reach.failed(error)

    def _told_statistics(self, statistics: str) -> None:
        if not self._is_fatal and decode_statistics(statistics).is_given_up:
            self._is_fatal = True
            _logger.warning(
                "the producer had given up on the brokers of the event log and is made anew"
            )


def _let_go(producer: Producer) -> None:
    """Have the client report its records; it is freed when nothing refers to it any more."""
    producer.purge()
    producer.flush(PURGE_S_MAX)


def _why_refused(error: BufferError | KafkaException) -> str:
    if isinstance(error, BufferError):
        return "too many events wait for the log"
    return f"the event log takes nothing: {error.args[0].name()}"


_CONFORMS: type[EventLog] = KafkaEventLog
_CONFORMS_AS_DEAD_LETTERS: type[DeadLetters] = KafkaEventLog
_CONFORMS_AS_LATE_LOG: type[LateLog] = KafkaEventLog
