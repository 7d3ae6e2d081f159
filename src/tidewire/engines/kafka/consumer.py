"""The reading end of the log: one reader of a group, on a thread of its own.

Only that thread touches the vendor's client. The group takes partitions away while the client
reads, and the client reports it then: records that were not committed now belong to other readers.
Nothing waits for a broker's answer: a client that has given up never gets one, and is replaced.
"""

import asyncio
import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from queue import SimpleQueue
from typing import Any, Final, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from tidewire.engines.kafka import schema
from tidewire.engines.kafka.options import HEARTBEATS_PER_SESSION, STATISTICS_MS, KafkaOptions
from tidewire.engines.kafka.reach import Reach
from tidewire.engines.kafka.statistics import decode_statistics
from tidewire.ports.event_log import LogReader, LogRecord, Place

READ_S_MAX: Final = 0.5
"""How long a read waits for the first record."""
TELL_S: Final = 0.1
"""Offsets are committed at most this often, because each commit is a write for the brokers. After
a crash, the next reader repeats up to this much more."""
CLOSE_S_MAX: Final = 3.0
FETCH_KILOBYTES_MAX: Final = 16_384
"""Limit of what is fetched ahead, because readers may be slower than the log."""

Result = TypeVar("Result")

_logger = logging.getLogger(__name__)


class ReaderCounters:
    """Counts of what has happened so far, and how many partitions this reader has now.

    `commits_failed` counts commits that the brokers did not accept; the next commit repeats them.
    `renewals` counts how often the client had given up on the brokers and was replaced.
    """

    partitions = commits = commits_failed = renewals = 0


class Unanswered:
    """How many commits of one client the brokers have not answered yet.

    Each client has its own: an answer to an earlier client must not count for this one.
    """

    count = 0


class LoopThread:
    """A thread that does one job after the other for an event loop.

    Unlike a thread of a pool, it never keeps the process from ending: the vendor's client blocks
    its thread for as long as a broker is gone.
    """

    def __init__(self, name: str) -> None:
        # Bounded by its callers: each waits for the result of its job.
        self._work: SimpleQueue[tuple[Callable[[], Any], Future[Any]] | None] = SimpleQueue()
        threading.Thread(target=self._run, name=name, daemon=True).start()

    async def do(self, work: Callable[[], Result]) -> Result:
        """Do the work on the thread; returns or raises what the work does."""
        done: Future[Result] = Future()
        # From here on it cannot be cancelled: the work is done even if the caller stops waiting.
        done.set_running_or_notify_cancel()
        self._work.put((work, done))
        return await asyncio.wrap_future(done)

    def end(self) -> None:
        """End the thread when the jobs in its queue are done."""
        self._work.put(None)

    def _run(self) -> None:
        while (asked := self._work.get()) is not None:
            work, done = asked
            try:
                done.set_result(work())
            except Exception as error:  # noqa: BLE001 - the caller gets it
                done.set_exception(error)


class KafkaLogReader:
    """Satisfies `ports.event_log.LogReader`. Made on the loop that it serves."""

    def __init__(self, options: KafkaOptions, *, reader_id: str) -> None:
        self.counters = ReaderCounters()
        self._options = options
        self._reader_id = reader_id
        self._thread = LoopThread("kafka-reader")
        self._consumer: Consumer | None = None
        self._is_closing = False
        # The next offset by partition, of what is dealt with but not yet committed.
        self._progress: dict[Place, int] = {}
        self._told_s = 0.0
        self._unanswered = Unanswered()
        self._held: set[Place] = set()
        self._given_away: set[Place] = set()
        self._is_paused = False
        self._is_given_up = False
        self._lag: Mapping[Place, int] = {}
        self._reach = Reach(meanwhile="the reader tries again", again="the event log is read again")

    @property
    def group(self) -> str:
        return self._options.topic_prefix + schema.GROUP

    @property
    def reader_id(self) -> str:
        return self._reader_id

    async def read(self) -> Sequence[LogRecord]:
        return await self._thread.do(self._read)

    async def commit(self, handled: Sequence[LogRecord]) -> None:
        await self._thread.do(lambda: self._commit(handled))

    async def stay(self) -> None:
        await self._thread.do(self._stay)

    def take_lost(self) -> Collection[Place]:
        # The thread is idle: nothing reads at the same time.
        lost, self._given_away = self._given_away, set()
        return lost

    def lag(self) -> Mapping[Place, int]:
        return self._lag

    @property
    def lag_by_topic(self) -> Mapping[str, int]:
        """How many records wait in each topic."""
        by_topic: Counter[str] = Counter()
        for (topic, _), count in self._lag.items():
            by_topic[topic] += count
        return by_topic

    async def close(self) -> None:
        """Leave the group at once, so that others need not wait for this reader's session to end.
        Call it when nothing reads any more."""
        if self._is_closing:
            return
        self._is_closing = True
        # Blocks the thread until the brokers have the last offsets; else the session times out.
        with suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_S_MAX):
                await self._thread.do(self._close)
        self._thread.end()

    # All that follows happens on the thread.

    def _joined(self) -> Consumer:
        if self._consumer is None:
            options = self._options
            unanswered = self._unanswered = Unanswered()
            settings: dict[str, object] = {
                **options.reader_settings(),
                "client.id": self._reader_id,
                "group.id": self.group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "enable.auto.offset.store": False,
                "isolation.level": "read_committed",
                # In turn over all partitions, so that each reader gets its share of every topic.
                # The sticky strategies balance only the number of partitions: one reader may get
                # all partitions of messages.
                "partition.assignment.strategy": "roundrobin",
                "session.timeout.ms": options.session_ms,
                "heartbeat.interval.ms": options.session_ms // HEARTBEATS_PER_SESSION,
                "max.poll.interval.ms": options.poll_interval_ms,
                "queued.max.messages.kbytes": FETCH_KILOBYTES_MAX,
                "statistics.interval.ms": STATISTICS_MS,
                "stats_cb": self._told_statistics,
                "on_commit": partial(self._told_answer, unanswered),
                "error_cb": self._told_error,
            }
            self._consumer = Consumer(settings)
            self._consumer.subscribe(
                [options.topic_prefix + name for name in schema.READ],
                on_assign=self._assigned,
                on_revoke=self._revoked,
                on_lost=self._lost,
            )
        return self._consumer

    def _read(self) -> list[LogRecord]:
        """Returns as soon as a first record is there, with the others that have arrived."""
        if self._is_given_up:
            self._renew()
        consumer = self._joined()
        if self._is_closing:
            return []
        if self._is_paused:
            consumer.resume(consumer.assignment())
            self._is_paused = False
        first = consumer.poll(TELL_S if self._progress else READ_S_MAX)
        if first is None:
            self._tell_all_progress()
            return []
        found = [first]
        if self._options.batch_records_max > 1:
            found += consumer.consume(self._options.batch_records_max - 1, timeout=0)
        records = []
        for message in found:
            error = message.error()
            if error is None:
                records.append(_record_of(message))
            else:
                self._pass_over(error)
        # A partition may have been taken away during the read: its records are another reader's.
        records = [one for one in records if one.place in self._held]
        if records:
            self._reach.succeeded()
        return records

    def _renew(self) -> None:
        """Replace a client that asks no broker any more; other readers have its partitions."""
        _logger.warning("the reader had given up on the brokers of the event log and is made anew")
        self.counters.renewals += 1
        self._is_given_up = False
        # Not closed, and freed on another thread: both may wait for brokers. Only the list refers
        # to it now. A client that is freed calls nothing back.
        old, self._consumer = [self._consumer], None
        threading.Thread(target=old.clear, name="kafka-renewal", daemon=True).start()
        self._given_away |= self._held
        self._is_paused = False
        self._hold(set())
        self._progress.clear()

    def _pass_over(self, error: KafkaError) -> None:
        """Note an error from which the client recovers; raise a fatal one: it ends the process."""
        if error.fatal():
            raise KafkaException(error)
        self._told_error(error)

    def _commit(self, handled: Sequence[LogRecord]) -> None:
        for one in handled:
            place = one.place
            if place in self._held:
                self._progress[place] = max(one.offset + 1, self._progress.get(place, 0))
        if time.monotonic() - self._told_s >= TELL_S:
            self._tell_all_progress()

    def _tell_all_progress(self) -> None:
        # One commit at a time: progress made meanwhile goes with the next one.
        if not self._unanswered.count:
            self._tell_progress(list(self._progress))

    def _tell_progress(self, places: Sequence[Place]) -> None:
        offsets = [
            TopicPartition(*place, self._progress[place])
            for place in places
            if place in self._progress
        ]
        if not offsets:
            return
        self._told_s = time.monotonic()
        self._joined().commit(offsets=offsets, asynchronous=True)
        self._unanswered.count += 1

    def _stay(self) -> None:
        """Polls without fetching, so that the client answers the group and stays in it."""
        if self._is_given_up:
            self._renew()
        consumer = self._joined()
        if self._is_closing:
            return
        consumer.pause(consumer.assignment())
        self._is_paused = True
        message = consumer.poll(READ_S_MAX)
        if message is None:
            self._tell_all_progress()
            return
        error = message.error()
        if error is not None:
            self._pass_over(error)
            return
        # From a partition that was assigned just now: it is read again when there is room.
        record = _record_of(message)
        consumer.seek(TopicPartition(*record.place, record.offset))

    def _close(self) -> None:
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = None

    # Called by the client while it reads or closes.

    def _assigned(self, _consumer: Consumer, places: list[TopicPartition]) -> None:
        """These partitions are read from the last committed offset on."""
        self._hold(self._held | {_place_of(one) for one in places})

    def _revoked(self, _consumer: Consumer, places: list[TopicPartition]) -> None:
        self._tell_progress([_place_of(one) for one in places])
        self._lost(_consumer, places)

    def _lost(self, _consumer: Consumer, places: list[TopicPartition]) -> None:
        gone = {_place_of(one) for one in places}
        self._given_away |= gone
        self._hold(self._held - gone)
        self._progress = {
            place: offset for place, offset in self._progress.items() if place not in gone
        }

    def _hold(self, held: set[Place]) -> None:
        self._held = held
        self.counters.partitions = len(held)

    def _told_answer(
        self, unanswered: Unanswered, error: KafkaError | None, offsets: list[TopicPartition]
    ) -> None:
        """The answer to a commit; offsets that the brokers did not accept are committed again."""
        unanswered.count -= 1
        if error is not None:
            self.counters.commits_failed += 1
            _logger.warning("offsets could not be committed: %s", error.name())
            return
        self.counters.commits += 1
        for one in offsets:
            if self._progress.get(_place_of(one)) == one.offset and one.error is None:
                del self._progress[_place_of(one)]

    def _told_statistics(self, statistics: str) -> None:
        told = decode_statistics(statistics)
        self._is_given_up = told.is_given_up
        self._lag = {place: count for place, count in told.lag.items() if place in self._held}

    def _told_error(self, error: KafkaError) -> None:
        if error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
            _logger.error("a topic is missing; see 'tidewire cluster check'")
            return
        self._reach.failed(error)


def _place_of(one: TopicPartition) -> Place:
    return one.topic, one.partition


def _record_of(message: Message) -> LogRecord:
    topic, partition, offset = message.topic(), message.partition(), message.offset()
    assert topic is not None
    assert partition is not None
    assert offset is not None
    headers = message.headers() or []
    pairs = headers.items() if isinstance(headers, dict) else headers
    return LogRecord(
        topic=topic,
        partition=partition,
        offset=offset,
        timestamp_ms=message.timestamp()[1],
        key=message.key(),
        value=message.value(),
        headers=tuple(
            (name, value.encode() if isinstance(value, str) else value) for name, value in pairs
        ),
    )


_CONFORMS: type[LogReader] = KafkaLogReader
