"""Services end by themselves, or their death is seen, or their owner ends them.

Requests fail alone.
"""

import asyncio
import logging
import signal

import pytest

from tests.support.logs import our_lines
from tidewire.ports.runtime import RequestKind, pause
from tidewire.runtime.supervise import TaskDisappeared, TaskSupervisor, stop_process

Death = tuple[str, BaseException]


class Deaths(asyncio.Queue[Death]):
    """What the supervisor has reported."""

    def take(self, name: str, error: BaseException) -> None:
        self.put_nowait((name, error))


@pytest.fixture
async def deaths() -> Deaths:
    return Deaths()


async def forever(started: asyncio.Event, ended: list[str]) -> None:
    started.set()
    try:
        await asyncio.Event().wait()
    finally:
        ended.append("ended")


async def test_service_runs_to_its_end(deaths: Deaths) -> None:
    tasks = TaskSupervisor(deaths.take)
    is_done = asyncio.Event()

    async def work() -> None:
        is_done.set()

    tasks.start_service("work", work())
    assert not is_done.is_set(), "work must not run inside start"
    await is_done.wait()
    await tasks.close()
    assert deaths.empty()


async def test_death_of_a_service_is_logged_and_reported(
    deaths: Deaths, caplog: pytest.LogCaptureFixture
) -> None:
    tasks = TaskSupervisor(deaths.take)
    bug = ValueError("a bug")

    async def work() -> None:
        raise bug

    tasks.start_service("work", work())
    assert await deaths.get() == ("work", bug)
    (record,) = our_lines(caplog)
    assert (record.levelno, record.message) == (logging.CRITICAL, "task 'work' died")
    assert record.exc_info is not None
    assert record.exc_info[1] is bug
    await tasks.close()


async def test_task_that_is_cancelled_by_a_stranger_is_a_death(deaths: Deaths) -> None:
    tasks = TaskSupervisor(deaths.take)

    async def work() -> None:
        raise asyncio.CancelledError

    tasks.start_service("work", work())
    name, error = await deaths.get()
    assert name == "work"
    assert isinstance(error, TaskDisappeared)
    await tasks.close()


async def test_close_cancels_everything_and_waits_for_it(deaths: Deaths) -> None:
    tasks = TaskSupervisor(deaths.take)
    started, ended = [asyncio.Event(), asyncio.Event()], list[str]()
    for event in started:
        tasks.start_service("work", forever(event, ended))
        await event.wait()
    await tasks.close()
    assert ended == ["ended", "ended"]
    assert deaths.empty()
    await tasks.close()


async def test_close_from_inside_a_task_ends_the_others(deaths: Deaths) -> None:
    tasks = TaskSupervisor(deaths.take)
    started, is_closed = asyncio.Event(), asyncio.Event()
    ended: list[str] = []

    async def closer() -> None:
        await started.wait()
        await tasks.close()
        is_closed.set()

    tasks.start_service("work", forever(started, ended))
    tasks.start_service("closer", closer())
    await is_closed.wait()
    assert ended == ["ended"]
    assert deaths.empty()


async def test_death_while_closing_is_logged_and_not_reported(
    deaths: Deaths, caplog: pytest.LogCaptureFixture
) -> None:
    tasks = TaskSupervisor(deaths.take)
    started = asyncio.Event()

    async def work() -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            raise ValueError("a bug in the cleaning up")

    tasks.start_service("work", work())
    await started.wait()
    await tasks.close()
    assert deaths.empty()
    assert [record.message for record in our_lines(caplog)] == ["task 'work' died"]


async def test_nothing_begins_while_the_process_ends(
    deaths: Deaths, caplog: pytest.LogCaptureFixture
) -> None:
    """A timer, or a link that is lost, may still ask for it."""
    tasks = TaskSupervisor(deaths.take)
    await tasks.close()
    started, failures = asyncio.Event(), list[Exception]()
    tasks.start_service("work", forever(started, []))
    tasks.start_request(RequestKind.SYNC, forever(started, []), failures.append)
    await pause(10)
    assert (started.is_set(), failures, our_lines(caplog)) == (False, [], [])
    assert deaths.empty()


async def test_request_that_fails_is_logged_counted_and_told_and_kills_nothing(
    deaths: Deaths, caplog: pytest.LogCaptureFixture
) -> None:
    tasks = TaskSupervisor(deaths.take)
    bug, told = ValueError("a bug"), asyncio.Queue[Exception]()

    async def work() -> None:
        raise bug

    tasks.start_request(RequestKind.SYNC, work(), told.put_nowait)
    assert await told.get() is bug
    (record,) = our_lines(caplog)
    assert (record.levelno, record.message) == (logging.ERROR, "request failed unexpectedly")
    assert record.__dict__["kind"] == "sync"
    assert record.exc_info is not None
    assert record.exc_info[1] is bug
    assert tasks.failures_by_kind == {"sync": 1}
    await tasks.close()
    assert deaths.empty()


async def test_request_that_succeeds_is_not_counted(deaths: Deaths) -> None:
    tasks = TaskSupervisor(deaths.take)
    is_done = asyncio.Event()

    async def work() -> None:
        is_done.set()

    tasks.start_request(RequestKind.SYNC, work(), lambda _: pytest.fail("it did not fail"))
    await is_done.wait()
    await tasks.close()
    assert tasks.failures_by_kind == {}


async def test_caller_that_cannot_be_told_kills_nothing(deaths: Deaths) -> None:
    tasks = TaskSupervisor(deaths.take)
    told = asyncio.Event()

    async def work() -> None:
        raise ValueError("a bug")

    def on_failure(_: Exception) -> None:
        told.set()
        raise ValueError("another bug")

    tasks.start_request(RequestKind.CONTROL, work(), on_failure)
    await told.wait()
    await tasks.close()
    assert tasks.failures_by_kind == {"control": 2}
    assert deaths.empty()


async def test_request_that_is_cancelled_by_a_stranger_is_a_failure(deaths: Deaths) -> None:
    tasks = TaskSupervisor(deaths.take)
    told = asyncio.Queue[Exception]()

    async def work() -> None:
        raise asyncio.CancelledError

    tasks.start_request(RequestKind.SYNC, work(), told.put_nowait)
    assert isinstance(await told.get(), TaskDisappeared)
    await tasks.close()
    assert deaths.empty()


async def test_end_of_the_interpreter_is_no_failure_of_a_request(deaths: Deaths) -> None:
    class Ending(BaseException):
        pass

    tasks = TaskSupervisor(deaths.take)

    async def work() -> None:
        raise Ending

    tasks.start_request(RequestKind.SYNC, work(), lambda _: pytest.fail("it is told to the owner"))
    name, error = await deaths.get()
    assert (name, type(error)) == ("sync", Ending)
    await tasks.close()


async def test_request_does_not_begin_after_close(deaths: Deaths) -> None:
    tasks = TaskSupervisor(deaths.take)
    await tasks.close()
    ended: list[str] = []
    tasks.start_request(
        RequestKind.SYNC, forever(asyncio.Event(), ended), lambda _: pytest.fail("not told")
    )
    assert ended == []


async def test_failures_outside_of_tasks_are_of_the_same_two_kinds(deaths: Deaths) -> None:
    tasks = TaskSupervisor(deaths.take)
    bug = ValueError("a bug")
    tasks.request_failed(RequestKind.PUSH, bug, {"chat_id": "chat_1"})
    assert tasks.failures_by_kind == {"push": 1}
    assert deaths.empty()
    tasks.service_failed("ingest", bug)
    assert await deaths.get() == ("ingest", bug)
    await tasks.close()


async def test_stop_process_asks_with_sigterm() -> None:
    asked = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, asked.set)
    try:
        stop_process("work", ValueError("a bug"))
        await asked.wait()
    finally:
        loop.remove_signal_handler(signal.SIGTERM)
