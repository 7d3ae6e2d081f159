"""A thread that does one thing after the other for an event loop.

Unlike a pool's, it never keeps the process from ending: the vendor's client holds its thread for as
long as a broker is gone.
"""

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from typing import Any, TypeVar

Result = TypeVar("Result")


class LoopThread:
    """Made on the loop that it serves."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.get_running_loop()
        # Bounded by its callers: each waits for what it has asked for.
        self._work: SimpleQueue[tuple[Callable[[], Any], asyncio.Future[Any]] | None]
        self._work = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    async def do(self, work: Callable[[], Result]) -> Result:
        """What the work returns or raises. Whoever waits may give up; the work is done still."""
        done: asyncio.Future[Result] = self._loop.create_future()
        self._work.put((work, done))
        return await done

    def end(self) -> None:
        """After what it was asked to do."""
        self._work.put(None)

    def _run(self) -> None:
        while (asked := self._work.get()) is not None:
            work, done = asked
            try:
                tell = _result(done, work())
            except Exception as error:  # noqa: BLE001 - whoever has asked is told
                tell = _error(done, error)
            # The loop may be gone before a broker has answered.
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(tell)


def _result(done: asyncio.Future[Result], result: Result) -> Callable[[], None]:
    def tell() -> None:
        if not done.done():
            done.set_result(result)

    return tell


def _error(done: asyncio.Future[Result], error: Exception) -> Callable[[], None]:
    def tell() -> None:
        if not done.done():
            done.set_exception(error)

    return tell
