"""The two ends of a log of each test's own."""

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest

from tests.support import stack
from tests.support.kafka import fresh_topics
from tidewire.engines.kafka.consumer import KafkaLogReader
from tidewire.engines.kafka.options import KafkaOptions
from tidewire.engines.kafka.producer import KafkaEventLog
from tidewire.runtime.clock import SystemClock
from tidewire.runtime.supervise import TaskSupervisor

collect_ignore_glob = ["test_*.py"] if stack.IS_OFF else []

OpenLog = Callable[[KafkaOptions], KafkaEventLog]
OpenReader = Callable[..., KafkaLogReader]


@pytest.fixture
def options() -> KafkaOptions:
    return fresh_topics()


@pytest.fixture
async def exit_stack() -> AsyncIterator[AsyncExitStack]:
    async with AsyncExitStack() as opened:
        yield opened


@pytest.fixture
async def tasks(open_log: OpenLog, open_reader: OpenReader) -> AsyncIterator[TaskSupervisor]:
    """Ended before the ends that they use are closed. None of them may die."""
    deaths: list[BaseException] = []
    tasks = TaskSupervisor(on_death=lambda _name, error: deaths.append(error))
    yield tasks
    await tasks.close()
    assert deaths == []


@pytest.fixture
async def open_log(exit_stack: AsyncExitStack) -> OpenLog:
    """Open writing ends; they are closed at the end."""

    def opened(options: KafkaOptions) -> KafkaEventLog:
        log = KafkaEventLog(options, clock=SystemClock(), producer_id="test")
        exit_stack.push_async_callback(log.close)
        return log

    return opened


@pytest.fixture
async def open_reader(exit_stack: AsyncExitStack) -> OpenReader:
    """Open reading ends; they are closed at the end."""

    def opened(options: KafkaOptions, **named: Any) -> KafkaLogReader:
        reader = KafkaLogReader(options, reader_id=named.get("reader_id", "reader"))
        exit_stack.push_async_callback(reader.close)
        return reader

    return opened
