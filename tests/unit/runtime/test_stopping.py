"""The first wish to end is kept, with the exit code that belongs to it."""

import asyncio
import os
import signal

from tidewire.runtime.lifecycle import EXIT_BROKEN, EXIT_DONE, Stop


async def test_signal_asks_for_an_end() -> None:
    stop = Stop()
    stop.listen()
    try:
        assert not stop.is_wanted
        os.kill(os.getpid(), signal.SIGTERM)
        async with asyncio.timeout(30):
            await stop.wait()
    finally:
        stop.ignore()
    assert stop.exit_code == EXIT_DONE


async def test_death_of_a_task_is_no_good_end() -> None:
    stop = Stop()
    stop.died("ingest-append", ValueError("a bug"))
    stop.ask("SIGTERM")
    await stop.wait()
    assert stop.exit_code == EXIT_BROKEN
