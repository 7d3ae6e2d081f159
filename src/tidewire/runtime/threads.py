"""Work that would hold the event loop up runs on a thread."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

Result = TypeVar("Result")


async def run_blocking(work: Callable[[], Result]) -> Result:
    """What the work returns or raises (`ports.runtime.RunBlocking`).

    A thread cannot be stopped: a caller that is cancelled meanwhile is cancelled when it has ended,
    so that the caller's count of busy threads is true.
    """
    running = asyncio.get_running_loop().run_in_executor(None, work)
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        await asyncio.wait([running])
        if not running.cancelled():
            # The caller does not want to know any more.
            running.exception()
        raise
