"""The reading end on a real broker: at least once, whoever comes, goes, stalls or dies."""

import asyncio
import base64
import json
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.engines.kafka.conftest import OpenLog, OpenReader
from tests.engines.kafka.gateway import eventually
from tests.support.kafka import fresh_topics
from tests.support.pushing import published
from tests.unit.ingest.events import a_message, a_rename
from tidewire.domain.events import Event, MessageAppended
from tidewire.domain.ids import ChatId
from tidewire.engines.kafka import consumer as kafka_consumer
from tidewire.engines.kafka.consumer import KafkaLogReader
from tidewire.engines.kafka.options import KafkaOptions
from tidewire.engines.kafka.producer import KafkaEventLog
from tidewire.fanout.consumer import LogConsumer
from tidewire.fanout.options import FanoutOptions
from tidewire.ports.event_log import LogRecord
from tidewire.runtime.clock import SystemClock
from tidewire.runtime.supervise import TaskSupervisor

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]
"""A group of readers takes a second or two to find itself."""

CHATS = [ChatId(f"chat_{number}") for number in range(12)]


class Fanout:
    """Stands for worker and router: keeps what it is given, waits and fails as a test says."""

    def __init__(self) -> None:
        self.handled: list[tuple[ChatId, int]] = []
        self.pending: list[tuple[ChatId, int]] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.has_batch = asyncio.Event()
        self.slow: set[ChatId] = set()
        self.held: list[tuple[ChatId, int]] = []

    def committed(self, events: Sequence[Event]) -> None:
        for event in events:
            if isinstance(event, MessageAppended):
                message = event.message
                kept = self.held if message.chat_id in self.slow else self.pending
                kept.append((message.chat_id, message.sequence))
        self.has_batch.set()

    def is_waiting(self, chat_id: ChatId) -> bool:
        return chat_id in self.slow

    def hurry(self) -> None:
        """The members of all chats are known."""
        self.slow.clear()
        self.pending += self.held
        self.held = []

    def missed(self, chat_id: ChatId) -> None:
        raise AssertionError("every record is of a kind that is known")

    async def settled(self) -> None:
        pending, self.pending = self.pending, []
        await self.gate.wait()
        self.handled += pending


def consumer_of(
    reader: KafkaLogReader,
    log: KafkaEventLog,
    fanout: Fanout,
    kind: type[LogConsumer] = LogConsumer,
    **bounds: int,
) -> LogConsumer:
    return kind(
        reader=reader,
        letters=log,
        worker=fanout,
        pushes=fanout,
        clock=SystemClock(),
        options=FanoutOptions(retry_ms=1, **bounds),
    )


async def publish(log: KafkaEventLog, count: int, first: int = 1) -> set[tuple[ChatId, int]]:
    """So many messages in each chat."""
    events = [
        a_message(sequence, chat) for chat in CHATS for sequence in range(first, first + count)
    ]
    await published(log, events)
    return {(one.message.chat_id, one.message.sequence) for one in events}


async def committed_offsets(options: KafkaOptions, reader: KafkaLogReader) -> int:
    """How many records of messages the group has dealt with, as the broker knows it."""
    topic = options.topic_prefix + "messages.persisted"
    places = [TopicPartition(topic, number) for number in range(options.message_partitions)]

    def ask() -> int:
        asking = Consumer({**options.common_settings(), "group.id": reader.group})
        try:
            return sum(max(0, one.offset) for one in asking.committed(places, timeout=10))
        finally:
            asking.close()

    return await asyncio.to_thread(ask)


async def test_batch_is_bounded_and_what_is_not_committed_is_read_again(
    open_log: OpenLog, open_reader: OpenReader
) -> None:
    options = fresh_topics(batch_records_max=7)
    log = open_log(options)
    sent = await publish(log, 3)
    reader = open_reader(options)
    read = list(await reader.read())
    while len(read) < len(sent):
        batch = await reader.read()
        assert len(batch) <= 7
        read += batch
    await reader.commit(read[:10])
    await reader.close()
    again = KafkaLogReader(options, reader_id="next")
    left = list(await again.read())
    while len(left) < len(sent) - 10:
        left += await again.read()
    await again.close()
    committed = {(one.partition, one.offset) for one in read[:10]}
    assert {(one.partition, one.offset) for one in left} == {
        (one.partition, one.offset) for one in read
    } - committed


class Unanswered(Consumer):
    """A client whose brokers never answer to offsets."""

    def commit(self, *_: Any, asynchronous: bool = True, **__: Any) -> Any:
        assert asynchronous, "the reader would wait for ever"


async def test_reader_whose_client_has_given_up_on_the_brokers_reads_on_with_a_new_one(
    options: KafkaOptions,
    open_log: OpenLog,
    open_reader: OpenReader,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As seen after a broker had stood still: it was left out of the list of brokers, and the
    client never asked again. What it could not tell of is read again."""
    monkeypatch.setattr(kafka_consumer, "Consumer", Unanswered)
    log, reader = open_log(options), open_reader(options)
    sent = await publish(log, 2)
    await read_all(reader, len(sent))
    monkeypatch.undo()
    assert (reader.counters.commits, reader.counters.renewals) == (0, 0)
    await reader._thread.do(lambda: reader._told_statistics('{"brokers": {}}'))
    sent |= await publish(log, 2, first=3)
    await read_all(reader, len(sent))
    assert reader.counters.renewals == 1
    assert reader.counters.partitions == 8
    await reader.close()
    assert await committed_offsets(options, reader) == len(sent)


class Held(Consumer):
    """A client without brokers: it notes its commits, and a test answers them."""

    def __init__(self, settings: dict[str, Any]) -> None:
        super().__init__(settings)
        self.answer = settings["on_commit"]
        self.told: list[list[TopicPartition]] = []

    def commit(self, *_: Any, offsets: Any = (), **__: Any) -> Any:
        self.told.append(list(offsets))


async def test_answer_of_a_client_that_was_replaced_does_not_count_for_the_new_one(
    open_reader: OpenReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client that is freed calls nothing back; one that is closed does. The reader frees it, but
    a count that went below zero would keep all progress from being committed."""
    monkeypatch.setattr(kafka_consumer, "Consumer", Held)
    monkeypatch.setattr(kafka_consumer, "TELL_S", 0.0)
    reader = open_reader(KafkaOptions(bootstrap_servers=("127.0.0.1:1",)))
    record = LogRecord("tidewire.messages.persisted", 0, 4, 0, None, b"", ())

    def commits() -> Held:
        reader._hold({record.place})
        reader._commit([record])
        assert isinstance(reader._consumer, Held)
        return reader._consumer

    late = commits().answer
    reader._renew()
    late(None, [])
    assert len(commits().told) == 1
    reader._consumer = None


async def read_all(reader: KafkaLogReader, count: int) -> None:
    """Read and commit so many records."""
    async with asyncio.timeout(40):
        while count > 0:
            records = await reader.read()
            await reader.commit(records)
            count -= len(records)


async def test_poison_is_buried_with_every_field_and_the_next_record_is_handled(
    options: KafkaOptions, open_log: OpenLog, open_reader: OpenReader
) -> None:
    topic = options.topic_prefix + "messages.persisted"
    writer = Producer(options.common_settings())
    headers: list[tuple[str, str | bytes | None]] = [("traceparent", b"00-x"), ("odd", None)]
    writer.produce(topic, b"\xff{", b"chat_0", partition=2, headers=headers, timestamp=1_000)
    assert writer.flush(10) == 0
    log, reader, fanout = open_log(options), open_reader(options), Fanout()
    sent = await publish(log, 1)
    await published(log, [a_rename(1)])
    consumer = consumer_of(reader, log, fanout)
    while consumer.counters.buried + consumer.counters.handled < len(sent) + 2:
        await consumer.step()
    assert set(fanout.handled) == sent
    assert consumer.counters.buried == 1
    await reader.close()
    assert await committed_offsets(options, reader) == len(sent) + 1

    letters = Consumer(
        {
            **options.common_settings(),
            "group.id": "people",
            "auto.offset.reset": "earliest",
        }
    )
    letters.assign([TopicPartition(options.topic_prefix + "dead_letters", 0, 0)])
    message = await asyncio.to_thread(letters.poll, 20)
    letters.close()
    assert message is not None
    assert message.key() == b"chat_0"
    value = message.value()
    assert value is not None
    letter = json.loads(value)
    metadata = letter["dlq_metadata"]
    assert metadata.pop("failure_reason")
    assert metadata.pop("failure_timestamp") > "2020"
    assert metadata == {
        "original_topic": topic,
        "original_partition": 2,
        "original_offset": 0,
        "original_timestamp": "1970-01-01T00:00:01.000Z",
        "consumer_group": reader.group,
        "consumer_id": "reader",
        "processing_attempts": 1,
    }
    original = letter["original_record"]
    assert base64.b64decode(original["value"]) == b"\xff{"
    assert base64.b64decode(original["key"]) == b"chat_0"
    assert original["headers"] == [
        ["traceparent", base64.b64encode(b"00-x").decode()],
        ["odd", None],
    ]


async def test_slow_chat_is_held_before_the_offsets_while_all_others_go_on(
    open_log: OpenLog, open_reader: OpenReader
) -> None:
    options = fresh_topics(batch_records_max=5)
    log, reader, fanout = open_log(options), open_reader(options), Fanout()
    slow = CHATS[0]
    fanout.slow = {slow}
    sent = await publish(log, 3)
    consumer = consumer_of(reader, log, fanout)
    others = {one for one in sent if one[0] != slow}
    while not set(fanout.handled) >= others or len(fanout.held) < 3:
        await consumer.step()
    assert fanout.held == [(slow, 1), (slow, 2), (slow, 3)]
    held_count = consumer.held_count
    assert 3 <= held_count < len(sent)
    while reader._progress:
        await consumer.step()
    assert await committed_offsets(options, reader) == len(sent) - held_count
    fanout.hurry()
    while consumer.held_count:
        await consumer.step()
    assert set(fanout.handled) == sent
    assert len(fanout.handled) == len(sent)
    await reader.close()
    assert await committed_offsets(options, reader) == len(sent)


async def test_reader_that_has_no_room_stays_in_the_group_and_loses_nothing(
    open_log: OpenLog, open_reader: OpenReader, tasks: TaskSupervisor
) -> None:
    """For longer than a reader may be silent; the other, which has room, joins meanwhile."""
    options = fresh_topics(batch_records_max=5, poll_interval_ms=6_000)
    log = open_log(options)
    full, other = open_reader(options, reader_id="one"), open_reader(options, reader_id="two")
    fanouts = [Fanout(), Fanout()]
    fanouts[0].slow = set(CHATS)
    sent = await publish(log, 5)
    consumers = [
        consumer_of(full, log, fanouts[0], waiting_events_max=10),
        consumer_of(other, log, fanouts[1]),
    ]
    tasks.start_service("one", consumers[0].run())
    await eventually(lambda: consumers[0].counters.pauses >= 1)
    held = len(fanouts[0].held)
    assert 10 <= held < 15
    tasks.start_service("two", consumers[1].run())
    pauses = consumers[0].counters.pauses
    await eventually(lambda: full.counters.partitions == 4 and other.counters.partitions == 4)
    # Half a second each.
    await eventually(lambda: consumers[0].counters.pauses > pauses + 14)
    fanouts[0].hurry()
    await eventually(lambda: {*fanouts[0].handled, *fanouts[1].handled} >= sent)
    await eventually(_committed_all(options, full, len(sent)))
    assert full.counters.partitions == 4


async def test_brokers_are_told_of_progress_now_and_then_and_of_the_rest_when_it_is_quiet(
    open_log: OpenLog, open_reader: OpenReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kafka_consumer, "TELL_S", 1.0)
    options = fresh_topics(batch_records_max=1)
    log, reader, fanout = open_log(options), open_reader(options), Fanout()
    sent = await publish(log, 2)
    consumer = consumer_of(reader, log, fanout)
    began_s = time.monotonic()
    while not set(fanout.handled) >= sent or reader._progress:
        await consumer.step()
    assert 2 <= reader.counters.commits <= 2 + (time.monotonic() - began_s)
    assert reader.counters.commits < len(sent)
    assert await committed_offsets(options, reader) == len(sent)


async def test_progress_that_is_not_told_yet_is_told_on_leaving(
    open_log: OpenLog, open_reader: OpenReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kafka_consumer, "TELL_S", 60.0)
    options = fresh_topics(batch_records_max=1)
    log, reader, fanout = open_log(options), open_reader(options), Fanout()
    sent = await publish(log, 1)
    consumer = consumer_of(reader, log, fanout)
    while not set(fanout.handled) >= sent:
        await consumer.step()
    await eventually(_committed_all(options, reader, 1))
    await reader.close()
    assert await committed_offsets(options, reader) == len(sent)


class Hasty(LogConsumer):
    """What must not be: the offsets go first."""

    async def step(self) -> None:
        records = await self.reader.read()
        if records:
            await self.reader.commit(records)
            self._hand_over(records)
            await self.pushes.settled()


async def seen_after_a_death(
    options: KafkaOptions, log: KafkaEventLog, kind: type[LogConsumer]
) -> tuple[set[tuple[ChatId, int]], set[tuple[ChatId, int]]]:
    """What was sent, and what the next reader got after the first died over its first batch."""
    sent = await publish(log, 1)
    first, fanout = KafkaLogReader(options, reader_id="first"), Fanout()
    fanout.gate.clear()
    tasks = TaskSupervisor()
    tasks.start_service("consumer", consumer_of(first, log, fanout, kind).run())
    await fanout.has_batch.wait()
    await tasks.close()
    await first.close()
    last = await publish(log, 1, first=2)
    heir, fanout = KafkaLogReader(options, reader_id="heir"), Fanout()
    consumer = consumer_of(heir, log, fanout)
    while not set(fanout.handled) >= last:
        await consumer.step()
    await heir.close()
    return sent | last, set(fanout.handled)


async def test_records_of_a_reader_that_died_over_them_are_handled_by_the_next(
    options: KafkaOptions, open_log: OpenLog
) -> None:
    sent, seen = await seen_after_a_death(options, open_log(options), LogConsumer)
    assert seen == sent


async def test_offsets_committed_before_the_work_would_lose_records(
    options: KafkaOptions, open_log: OpenLog
) -> None:
    """The test above turns red when the commit is moved."""
    sent, seen = await seen_after_a_death(options, open_log(options), Hasty)
    assert seen < sent


async def test_nothing_is_lost_when_a_second_reader_joins_in_mid_batch(
    open_log: OpenLog, open_reader: OpenReader, tasks: TaskSupervisor
) -> None:
    options = fresh_topics(batch_records_max=20)
    log = open_log(options)
    sent = await publish(log, 20)
    readers = [open_reader(options, reader_id=name) for name in ("one", "two")]
    fanouts = [Fanout(), Fanout()]
    consumers = [
        consumer_of(reader, log, fanout) for reader, fanout in zip(readers, fanouts, strict=True)
    ]
    fanouts[0].gate.clear()
    tasks.start_service("one", consumers[0].run())
    await fanouts[0].has_batch.wait()
    tasks.start_service("two", consumers[1].run())
    # The second asks for its share while the first holds a batch; the first goes on after a while.
    await asyncio.wait([asyncio.ensure_future(fanouts[1].has_batch.wait())], timeout=1)
    fanouts[0].gate.set()
    await eventually(lambda: all(reader.counters.partitions for reader in readers))
    sent |= await publish(log, 20, first=21)
    await eventually(lambda: {*fanouts[0].handled, *fanouts[1].handled} >= sent)
    assert fanouts[1].handled
    await eventually(_committed_all(options, readers[0], len(sent)))
    assert sum(reader.counters.partitions for reader in readers) == 4 + 2 + 2


def _committed_all(
    options: KafkaOptions, reader: KafkaLogReader, count: int
) -> Callable[[], Awaitable[bool]]:
    async def holds() -> bool:
        return await committed_offsets(options, reader) == count

    return holds


async def test_reader_that_stalls_too_long_loses_its_batch_to_the_other_and_comes_back(
    open_log: OpenLog, open_reader: OpenReader, tasks: TaskSupervisor
) -> None:
    """Its offsets come too late: they must not hide what the other has yet to handle."""
    options = fresh_topics(poll_interval_ms=6_000)
    log = open_log(options)
    sent = await publish(log, 5)
    stalled, other = open_reader(options, reader_id="one"), open_reader(options, reader_id="two")
    fanouts = [Fanout(), Fanout()]
    fanouts[0].gate.clear()
    tasks.start_service("one", consumer_of(stalled, log, fanouts[0]).run())
    await fanouts[0].has_batch.wait()
    tasks.start_service("two", consumer_of(other, log, fanouts[1]).run())
    await eventually(lambda: set(fanouts[1].handled) >= sent)
    assert fanouts[0].handled == []
    fanouts[0].gate.set()
    await eventually(lambda: stalled.counters.commits_failed > 0)
    await eventually(lambda: 0 < stalled.counters.partitions < 8)
    await eventually(lambda: 0 < other.counters.partitions < 8)
    sent |= await publish(log, 1, first=6)
    await eventually(lambda: {*fanouts[0].handled, *fanouts[1].handled} >= sent)


async def test_lag_tells_what_waits(
    options: KafkaOptions,
    open_log: OpenLog,
    open_reader: OpenReader,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(kafka_consumer, "STATISTICS_MS", 100)
    log, reader = open_log(options), open_reader(options)
    sent = await publish(log, 2)
    read = list(await reader.read())
    while len(read) < len(sent):
        read += await reader.read()

    async def lag() -> int:
        await reader.read()
        return sum(reader.lag().values())

    await eventually(_is(lag, len(sent)))
    await reader.commit(read)
    await eventually(_is(lag, 0))

    # Of a partition in which nothing ever was the client hears a little later.
    async def partitions() -> int:
        await reader.read()
        return len(reader.lag())

    await eventually(_is(partitions, 8))
    assert reader.counters.partitions == 8


def _is(count: Callable[[], Awaitable[int]], wanted: int) -> Callable[[], Awaitable[bool]]:
    async def holds() -> bool:
        return await count() == wanted

    return holds
