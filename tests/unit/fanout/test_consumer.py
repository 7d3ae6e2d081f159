"""The loop that feeds the fan-out: offsets behind what is done, poison buried, nothing skipped."""

import asyncio
import base64
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import msgspec

from tests.unit.ingest.events import CHAT, a_message, a_rename
from tests.unit.ingest.house import JumpingClock
from tidewire.domain.errors import LogUnavailable
from tidewire.domain.events import Event, LoggedEvent
from tidewire.domain.ids import ChatId
from tidewire.fanout.consumer import LogConsumer
from tidewire.fanout.options import FanoutOptions
from tidewire.ports.event_log import LogRecord, Place
from tidewire.wire.event_records import encode_record, record_of

TOPIC = "messages.persisted"


def encoded(event: LoggedEvent) -> bytes:
    record = record_of(event, event_id="evt_1", now_ms=1, producer_id="p", trace_id="t")
    return encode_record(record)


class Log:
    """Reader, worker, router and dead letters in one, writing down in which order they are used."""

    group = "fanout-workers"
    reader_id = "fanout-1"

    def __init__(self, *values: bytes | None, headers: tuple[tuple[str, bytes], ...] = ()) -> None:
        self.records = [
            LogRecord(TOPIC, 3, offset, 5, CHAT.encode(), value, headers)
            for offset, value in enumerate(values)
        ]
        self.position = 0
        self.committed_offset = 0
        self.acts: list[str] = []
        self.events: list[Event] = []
        self.missed_chats: list[ChatId] = []
        self.letters: list[dict[str, Any]] = []
        self.lost: set[Place] = set()
        self.slow: set[ChatId] = set()
        self.bury_faults: list[Exception] = []

    async def read(self) -> Sequence[LogRecord]:
        batch = self.records[self.position : self.position + 3]
        self.position += len(batch)
        return batch

    async def commit(self, handled: Sequence[LogRecord]) -> None:
        self.acts.append("commit")
        self.committed_offset = handled[-1].offset + 1

    async def stay(self) -> None:
        self.acts.append("stay")

    def take_lost(self) -> Collection[Place]:
        lost, self.lost = self.lost, set()
        return lost

    def lag(self) -> Mapping[Place, int]:
        return {}

    def committed(self, events: Sequence[Event]) -> None:
        self.acts.append("push")
        self.events += events

    def missed(self, chat_id: ChatId) -> None:
        self.acts.append("missed")
        self.missed_chats.append(chat_id)

    def is_waiting(self, chat_id: ChatId) -> bool:
        return chat_id in self.slow

    async def settled(self) -> None:
        self.acts.append("settled")

    async def bury(self, key: bytes | None, letter: bytes) -> None:
        if self.bury_faults:
            raise self.bury_faults.pop()
        self.acts.append("bury")
        assert key == CHAT.encode()
        self.letters.append(msgspec.json.decode(letter))

    def consumer(self) -> LogConsumer:
        return LogConsumer(
            reader=self,
            letters=self,
            worker=self,
            pushes=self,
            clock=JumpingClock(),
            options=FanoutOptions(retry_ms=1, waiting_events_max=6),
        )


async def test_changes_of_a_batch_are_pushed_in_the_order_of_their_versions() -> None:
    log = Log(encoded(a_rename(5)), encoded(a_message(1)), encoded(a_rename(4)))
    await log.consumer().step()
    assert log.events == [a_rename(4), a_message(1), a_rename(5)]


async def test_offsets_are_committed_after_everything_is_pushed_and_handed_on() -> None:
    log = Log(encoded(a_message(1)), encoded(a_rename(2)))
    consumer = log.consumer()
    await consumer.step()
    assert log.acts == ["push", "settled", "commit"]
    assert log.events == [a_message(1), a_rename(2)]
    assert log.committed_offset == 2
    await consumer.step()
    assert log.acts[3:] == []
    assert consumer.counters.batches == 1
    assert consumer.counters.last_batch_records == 2
    assert consumer.counters.records_by_topic == {TOPIC: 2}


OTHER = ChatId("chat_2")


async def test_slow_chat_holds_the_offsets_and_no_other_chat() -> None:
    log = Log(
        encoded(a_message(1)),
        *(encoded(a_message(sequence, OTHER)) for sequence in range(1, 6)),
    )
    log.slow = {CHAT}
    consumer = log.consumer()
    for _ in range(2):
        await consumer.step()
    assert log.events[1:] == [a_message(sequence, OTHER) for sequence in range(1, 6)]
    assert (log.committed_offset, consumer.held_count) == (0, 6)
    log.slow = set()
    await consumer.step()
    assert (log.committed_offset, consumer.held_count) == (6, 0)
    assert len(log.events) == 6


async def test_no_more_is_read_while_too_much_is_held() -> None:
    log = Log(*(encoded(a_message(sequence)) for sequence in range(1, 12)))
    log.slow = {CHAT}
    consumer = log.consumer()
    for _ in range(5):
        await consumer.step()
    assert (log.position, log.committed_offset) == (6, 0)
    assert log.acts == ["push", "push", "stay", "stay", "stay"]
    assert consumer.counters.pauses == 3
    log.slow = set()
    for _ in range(3):
        await consumer.step()
    assert (log.committed_offset, consumer.held_count) == (11, 0)
    assert log.events == [a_message(sequence) for sequence in range(1, 12)]


async def test_partition_that_goes_to_another_reader_is_held_no_longer() -> None:
    log = Log(*(encoded(a_message(sequence)) for sequence in range(1, 3)))
    log.slow = {CHAT}
    consumer = log.consumer()
    await consumer.step()
    log.lost = {(TOPIC, 3)}
    await consumer.step()
    assert consumer.held_count == 0
    log.slow = set()
    await consumer.step()
    assert "commit" not in log.acts


async def test_poison_is_buried_with_all_that_is_known_of_it_and_the_next_is_handled() -> None:
    headers = (("x-processing-attempts", b"2"), ("traceparent", b"t"))
    log = Log(b"{not json", encoded(a_message(1)), None, headers=headers)
    consumer = log.consumer()
    await consumer.step()
    assert log.events == [a_message(1)]
    assert log.acts == ["push", "settled", "bury", "bury", "commit"]
    assert consumer.counters.buried == 2
    first, second = log.letters
    metadata = first["dlq_metadata"]
    assert metadata.pop("failure_reason")
    assert metadata == {
        "original_topic": TOPIC,
        "original_partition": 3,
        "original_offset": 0,
        "original_timestamp": "1970-01-01T00:00:00.005Z",
        "consumer_group": "fanout-workers",
        "consumer_id": "fanout-1",
        "failure_timestamp": "2023-11-14T22:13:20.000Z",
        "processing_attempts": 3,
    }
    assert base64.b64decode(first["original_record"]["value"]) == b"{not json"
    assert second["dlq_metadata"]["original_offset"] == 2
    assert second["original_record"]["value"] is None


async def test_offsets_stay_when_poison_cannot_be_buried() -> None:
    """K-06: whoever cannot write the dead letter has not dealt with the record."""
    log = Log(b"poison")
    log.bury_faults = [LogUnavailable("the test says so")]
    consumer = log.consumer()
    await consumer.step()
    assert log.committed_offset == 0
    assert consumer.counters.buried == 0
    await consumer.step()
    assert log.committed_offset == 1
    assert len(log.letters) == consumer.counters.buried == 1


async def test_unknown_kinds_are_told_to_their_chat_once_a_batch_and_counted() -> None:
    unknown = encoded(a_rename(1)).replace(b"ChatUpdated", b"ChatPainted")
    log = Log(unknown, encoded(a_message(1)), unknown)
    consumer = log.consumer()
    await consumer.step()
    assert log.missed_chats == [CHAT]
    assert log.acts == ["push", "missed", "settled", "commit"]
    assert consumer.counters.unknown == 2
    assert log.events == [a_message(1)]
    assert log.letters == []
    assert log.committed_offset == 3


async def test_unknown_kind_is_held_until_its_chat_is_told() -> None:
    log = Log(encoded(a_rename(1)).replace(b"ChatUpdated", b"ChatPainted"))
    log.slow = {CHAT}
    consumer = log.consumer()
    await consumer.step()
    assert (log.committed_offset, log.missed_chats) == (0, [CHAT])
    log.slow = set()
    await consumer.step()
    assert (log.committed_offset, log.missed_chats) == (1, [CHAT])


async def test_run_goes_on_until_it_is_cancelled() -> None:
    log = Log(*(encoded(a_message(sequence)) for sequence in range(1, 8)))
    done = asyncio.Event()

    class Last(Log):
        async def read(self) -> Sequence[LogRecord]:
            batch = await super().read()
            if not batch:
                done.set()
                await asyncio.Event().wait()
            return batch

    last = Last()
    last.records = log.records
    running = asyncio.gather(last.consumer().run())
    async with asyncio.timeout(30):
        await done.wait()
    running.cancel()
    assert last.committed_offset == 7
