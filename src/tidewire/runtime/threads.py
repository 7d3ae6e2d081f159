"""Work that would hold the event loop up runs on a thread."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

Result = TypeVar("Result")


async def run_blocking(work: Callable[[], Result]) -> Result:
    """What the work returns or raises (`ports.runtime.RunBlocking`)."""
    return await asyncio.to_thread(work)
