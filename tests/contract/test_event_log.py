"""What every event log promises to those who write into it, and what becomes of what it refuses."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Protocol

import pytest

from tests.support import stack
from tests.support.kafka import fresh_topics, local_options
from tests.support.memory.event_log import MemoryEventLog
from tests.support.pushing import published
from tests.unit.ingest.events import a_message, a_rename
from tidewire.domain.errors import LogUnavailable
from tidewire.domain.events import LoggedEvent
from tidewire.engines.kafka.consumer import KafkaLogReader
from tidewire.engines.kafka.producer import KafkaEventLog
from tidewire.ports.event_log import EventLog
from tidewire.runtime.clock import SystemClock
from tidewire.wire.event_records import RecordRefusal, UnknownRecord, decode_record, event_of

PORT_OF_NOBODY = 1


class LogHarness(Protocol):
    @property
    def log(self) -> EventLog: ...

    @property
    def broken(self) -> EventLog:
        """One that reaches nobody."""
        ...

    async def found(self, count: int) -> list[LoggedEvent]:
        """What is in the log, by a reader: at least so many events."""
        ...

    async def close(self) -> None: ...


class MemoryLogHarness:
    def __init__(self) -> None:
        self.log = MemoryEventLog()
        self.broken = MemoryEventLog()
        self.broken.is_down = True

    async def found(self, count: int) -> list[LoggedEvent]:
        return self.log.events

    async def close(self) -> None: ...


class KafkaLogHarness:
    def __init__(self) -> None:
        self._options = fresh_topics()
        unreachable = local_options(PORT_OF_NOBODY, delivery_ms=300)
        self.log = KafkaEventLog(self._options, clock=SystemClock(), producer_id="one")
        self.broken = KafkaEventLog(unreachable, clock=SystemClock(), producer_id="two")

    async def found(self, count: int) -> list[LoggedEvent]:
        reader = KafkaLogReader(self._options, reader_id="reader")
        events: list[LoggedEvent] = []
        while len(events) < count:
            for one in await reader.read():
                record = decode_record(one.value or b"")
                assert not isinstance(record, UnknownRecord | RecordRefusal)
                events.append(event_of(record))
        await reader.close()
        return events

    async def close(self) -> None:
        await self.log.close()
        await self.broken.close()


HARNESSES: list[Callable[[], LogHarness]] = [
    MemoryLogHarness,
]
if not stack.IS_OFF:
    HARNESSES.append(KafkaLogHarness)


@pytest.fixture(params=HARNESSES, ids=lambda kind: kind.__name__)
async def harness(request: pytest.FixtureRequest) -> AsyncIterator[LogHarness]:
    harness: LogHarness = request.param()
    yield harness
    await harness.close()


class Answer:
    def __init__(self) -> None:
        self.given: asyncio.Queue[LogUnavailable | None] = asyncio.Queue()

    def __call__(self, error: LogUnavailable | None) -> None:
        self.given.put_nowait(error)


def as_set(events: Sequence[LoggedEvent]) -> set[str]:
    return {str(event) for event in events}


async def test_events_are_in_the_log_when_they_are_published(harness: LogHarness) -> None:
    events: list[LoggedEvent] = [a_message(1), a_message(2), a_rename(3)]
    await published(harness.log, events)
    assert as_set(await harness.found(3)) == as_set(events)


async def test_answer_comes_once_and_after_the_call(harness: LogHarness) -> None:
    answers = [Answer() for _ in range(20)]
    for number, answer in enumerate(answers):
        harness.log.publish_nowait([a_message(2 * number + 1), a_message(2 * number + 2)], answer)
        assert answer.given.empty()
    for answer in answers:
        assert await answer.given.get() is None
    await published(harness.log, [a_message(99)])
    assert all(answer.given.empty() for answer in answers)
    assert len(await harness.found(41)) == 41


async def test_log_that_reaches_nobody_says_so_once(harness: LogHarness) -> None:
    with pytest.raises(LogUnavailable):
        await published(harness.broken, [a_message(1)])
    answer = Answer()
    harness.broken.publish_nowait([a_message(1), a_message(2)], answer)
    assert answer.given.empty()
    assert isinstance(await answer.given.get(), LogUnavailable)
    with pytest.raises(LogUnavailable):
        await published(harness.broken, [a_message(3)])
    assert answer.given.empty()


async def test_whoever_waits_may_give_up(harness: LogHarness) -> None:
    publishing = asyncio.ensure_future(published(harness.log, [a_message(1)]))
    await asyncio.sleep(0)
    publishing.cancel()
    await published(harness.log, [a_message(2)])
    assert as_set(await harness.found(2)) == as_set([a_message(1), a_message(2)])
