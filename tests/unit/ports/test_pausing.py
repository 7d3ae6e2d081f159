import asyncio
import threading
from typing import Any

from tidewire.ports.runtime import pause


async def test_pause_takes_as_long_as_it_was_told() -> None:
    loop = asyncio.get_running_loop()
    begun_s = loop.time()
    await pause(20)
    assert loop.time() - begun_s >= 0.02


async def test_pause_that_is_cancelled_as_it_ends_is_cancelled_without_a_complaint() -> None:
    loop = asyncio.get_running_loop()
    loop.set_debug(False)  # It would complain of what follows, which holds the loop up.
    complaints: list[dict[str, Any]] = []
    loop.set_exception_handler(lambda _, context: complaints.append(context))

    def let_both_times_come() -> None:
        loop.call_later(0.001, pausing.cancel)
        threading.Event().wait(0.01)

    async with asyncio.TaskGroup() as group:
        pausing = group.create_task(pause(5))
        loop.call_soon(let_both_times_come)
    assert pausing.cancelled()
    assert complaints == []
