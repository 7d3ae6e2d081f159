"""Noticing that nobody reads our output any more, also while there is nothing to write."""

import asyncio
import os
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TextIO


@asynccontextmanager
async def reader_gone(stream: TextIO) -> AsyncIterator[None]:
    """Cancel the body and raise BrokenPipeError when the other end of a pipe is closed."""
    mode = os.fstat(stream.fileno()).st_mode
    if not (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)):
        yield
        return
    loop = asyncio.get_running_loop()
    task = asyncio.current_task()
    assert task is not None
    is_gone = False

    def gone() -> None:
        nonlocal is_gone
        is_gone = True
        loop.remove_reader(stream)
        task.cancel()

    # The writing end of a pipe becomes readable only by an error: that its reader has gone.
    loop.add_reader(stream, gone)
    try:
        yield
    except asyncio.CancelledError:
        if is_gone:
            task.uncancel()
            raise BrokenPipeError from None
        raise
    finally:
        loop.remove_reader(stream)
