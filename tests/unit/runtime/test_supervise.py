"""Tasks end by themselves, or their death is seen, or their owner ends them."""

import asyncio
import logging
import signal

import pytest

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


async def test_start_runs_the_work_to_its_end(deaths: Deaths) -> None:
    tasks = TaskSupervisor(deaths.take)
    is_done = asyncio.Event()

    async def work() -> None:
        is_done.set()

    tasks.start("work", work())
    assert not is_done.is_set(), "work must not run inside start"
    await is_done.wait()
    await tasks.close()
    assert deaths.empty()


async def test_death_is_logged_and_reported(
    deaths: Deaths, caplog: pytest.LogCaptureFixture
) -> None:
    tasks = TaskSupervisor(deaths.take)
    bug = ValueError("a bug")

    async def work() -> None:
        raise bug

    tasks.start("work", work())
    assert await deaths.get() == ("work", bug)
    (record,) = caplog.records
    assert (record.levelno, record.message) == (logging.CRITICAL, "task 'work' died")
    assert record.exc_info is not None
    assert record.exc_info[1] is bug
    await tasks.close()


async def test_task_that_is_cancelled_by_a_stranger_is_a_death(deaths: Deaths) -> None:
    tasks = TaskSupervisor(deaths.take)

    async def work() -> None:
        raise asyncio.CancelledError

    tasks.start("work", work())
    name, error = await deaths.get()
    assert name == "work"
    assert isinstance(error, TaskDisappeared)
    await tasks.close()


async def test_close_cancels_everything_and_waits_for_it(deaths: Deaths) -> None:
    tasks = TaskSupervisor(deaths.take)
    started, ended = [asyncio.Event(), asyncio.Event()], list[str]()
    for event in started:
        tasks.start("work", forever(event, ended))
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

    tasks.start("work", forever(started, ended))
    tasks.start("closer", closer())
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

    tasks.start("work", work())
    await started.wait()
    await tasks.close()
    assert deaths.empty()
    assert [record.message for record in caplog.records] == ["task 'work' died"]


async def test_start_is_refused_after_close(deaths: Deaths) -> None:
    tasks = TaskSupervisor(deaths.take)
    await tasks.close()
    with pytest.raises(RuntimeError, match="'work' was started while the process is ending"):
        tasks.start("work", forever(asyncio.Event(), []))


async def test_stop_process_asks_with_sigterm() -> None:
    asked = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, asked.set)
    try:
        stop_process("work", ValueError("a bug"))
        await asked.wait()
    finally:
        loop.remove_signal_handler(signal.SIGTERM)
