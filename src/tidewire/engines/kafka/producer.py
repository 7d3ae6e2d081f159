"""The writing end of the log: an idempotent producer, its thread, and what it reports to the loop.

The vendor's client sends on threads of its own and calls back on the thread that polls it. Reports
are gathered there and handed to the event loop in one go, however many there are. Nothing here
waits on the loop: a full queue refuses.
"""

import asyncio
import logging
import secrets
import threading
from collections import deque
from collections.abc import Sequence
from typing import Final

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from tidewire.domain.errors import LogUnavailable
from tidewire.domain.events import LoggedEvent
from tidewire.domain.ids import EVENT_PREFIX, UlidSource
from tidewire.engines.kafka import schema
from tidewire.engines.kafka.brokers import is_given_up
from tidewire.engines.kafka.options import KafkaOptions
from tidewire.ports.event_log import DeadLetters, EventLog, PublishDone
from tidewire.ports.runtime import Clock
from tidewire.wire.event_records import encode_record, record_of

POLL_S: Final = 0.1
STATISTICS_MS: Final = 5_000
CLOSE_S_MAX: Final = 2.0
"""Shorter than a process has for its end, also when the brokers are gone."""
PURGE_S_MAX: Final = 2.0
TRACE_BYTES: Final = 8

_logger = logging.getLogger(__name__)


class ProducerCounters:
    """What has happened so far, as plain numbers for whoever shows them."""

    __slots__ = ("acked", "failed", "fatal", "refused", "sent")

    def __init__(self) -> None:
        self.sent = 0
        self.acked = 0
        self.failed = 0
        """Records that the brokers did not take in time."""
        self.refused = 0
        """Records that found the queue of this process full."""
        self.fatal = 0
        """Times that the client was beyond help and had to be made anew."""


class _Waiting:
    """Records that are reported together."""

    __slots__ = ("done", "error", "left")

    def __init__(self, left: int, done: PublishDone) -> None:
        self.left = left
        self.error: LogUnavailable | None = None
        self.done = done


class KafkaEventLog:
    """Satisfies `ports.event_log.EventLog` and `DeadLetters`. Made on the loop that it serves."""

    def __init__(self, options: KafkaOptions, *, clock: Clock, producer_id: str) -> None:
        self.counters = ProducerCounters()
        self._options = options
        self._clock = clock
        self._producer_id = producer_id
        self._ids = UlidSource(secrets.randbits)
        self._loop = asyncio.get_running_loop()
        self._lock = threading.Lock()
        # Guarded by the lock: reports on their way to the loop.
        self._reports: deque[tuple[_Waiting, KafkaError | None]] = deque()
        self._is_closed = False
        self._is_fatal = False
        self._is_reached = True
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
        for event in events:
            record = record_of(
                event,
                event_id=EVENT_PREFIX + self._ids.next_ulid(now_ms),
                now_ms=now_ms,
                producer_id=self._producer_id,
                trace_id=trace_id,
            )
            topic = self._options.topic_prefix + schema.topic_of(event)
            records.append((topic, record.partition_key.encode(), encode_record(record)))
        self._produce(records, done)

    async def publish(self, events: Sequence[LoggedEvent]) -> None:
        published, done = self._promise()
        self.publish_nowait(events, done)
        await published

    async def bury(self, key: bytes | None, letter: bytes) -> None:
        buried, done = self._promise()
        topic = self._options.topic_prefix + schema.DEAD_LETTERS
        self._produce([(topic, key, letter)], done)
        await buried

    def _promise(self) -> tuple[asyncio.Future[None], PublishDone]:
        promise: asyncio.Future[None] = self._loop.create_future()

        def done(error: LogUnavailable | None) -> None:
            if promise.done():
                return  # Whoever waited has given up.
            if error is None:
                promise.set_result(None)
            else:
                promise.set_exception(error)

        return promise, done

    def _produce(
        self, records: Sequence[tuple[str, bytes | None, bytes]], done: PublishDone
    ) -> None:
        waiting = _Waiting(len(records), done)

        def delivered(error: KafkaError | None, _message: Message) -> None:
            self._report(waiting, error)

        if self._is_closed:
            self._loop.call_soon(done, LogUnavailable("the event log is closed"))
            return
        if self._is_fatal:
            self._renew()
        self.counters.sent += len(records)
        for index, (topic, key, value) in enumerate(records):
            try:
                self._producer.produce(topic, value, key, on_delivery=delivered)
            except (BufferError, KafkaException) as error:
                self.counters.refused += len(records) - index
                waiting.error = LogUnavailable(_why_refused(error))
                # Those before it are on their way; the rest is not, and is reported here.
                waiting.left -= len(records) - index
                if not waiting.left:
                    self._loop.call_soon(waiting.done, waiting.error)
                return

    def _take_reports(self) -> None:
        with self._lock:
            reports, self._reports = self._reports, deque()
        for waiting, error in reports:
            if error is None:
                self.counters.acked += 1
                if not self._is_reached:
                    self._is_reached = True
                    _logger.warning("the event log takes events again")
            else:
                self.counters.failed += 1
                waiting.error = LogUnavailable(f"the event log took too long: {error.name()}")
            waiting.left -= 1
            if not waiting.left:
                waiting.done(waiting.error)

    def _renew(self) -> None:
        """After a fatal error a client takes nothing any more, and one that has given up
        on the brokers sends nothing; what it holds is reported failed."""
        self.counters.fatal += 1
        self._is_fatal = False
        old, self._producer = self._producer, self._made()
        threading.Thread(target=_let_go, args=(old,), name="kafka-renewal", daemon=True).start()

    @property
    def is_reached(self) -> bool:
        """False while no broker can be reached, as far as is known."""
        return self._is_reached

    @property
    def queued(self) -> int:
        """Records of which nobody knows yet whether the brokers have them."""
        counters = self.counters
        return counters.sent - counters.acked - counters.failed - counters.refused

    async def close(self) -> None:
        """Take nothing more, and wait a moment for what is on its way. What does not arrive is
        reported as failed: it is in the outbox."""
        if self._is_closed:
            return
        self._is_closed = True
        await self._loop.run_in_executor(None, self._finish)
        self._take_reports()

    def _finish(self) -> None:
        self._producer.flush(CLOSE_S_MAX)
        _let_go(self._producer)
        self._thread.join()

    # On the thread that polls, and on those that the vendor calls back on.

    def _poll(self) -> None:
        while not self._is_closed:
            self._producer.poll(POLL_S)

    def _report(self, waiting: _Waiting, error: KafkaError | None) -> None:
        with self._lock:
            is_first = not self._reports
            self._reports.append((waiting, error))
        if is_first and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._take_reports)

    def _failed(self, error: KafkaError) -> None:
        """The client tells of brokers that it cannot reach, and goes on trying."""
        if error.fatal():
            self._is_fatal = True
            _logger.error("the event log's producer is made anew: %s", error.name())
        # Told once, not each time that the client tries again.
        elif error.code() == KafkaError._ALL_BROKERS_DOWN and self._is_reached:
            self._is_reached = False
            _logger.error("no broker of the event log can be reached; events wait in the outbox")

    def _told_statistics(self, statistics: str) -> None:
        if not self._is_fatal and is_given_up(statistics.encode()):
            self._is_fatal = True
            _logger.warning(
                "the producer had given up on the brokers of the event log and is made anew"
            )


def _let_go(producer: Producer) -> None:
    """Have it report what it held; it is gone when nobody holds it any more."""
    producer.purge()
    producer.flush(PURGE_S_MAX)


def _why_refused(error: BufferError | KafkaException) -> str:
    if isinstance(error, BufferError):
        return "too many events wait for the log"
    return f"the event log takes nothing: {error.args[0].name()}"


_CONFORMS: type[EventLog] = KafkaEventLog
_CONFORMS_AS_DEAD_LETTERS: type[DeadLetters] = KafkaEventLog
