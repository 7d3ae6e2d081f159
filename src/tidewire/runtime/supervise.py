"""Owns every task of the process: the only place that makes any.

A task that dies is a bug of ours, and the process cannot be trusted to do its work without it: the
death is logged here, once, and the process is asked to end in order.
"""

import asyncio
import logging
import signal
from collections.abc import Callable, Coroutine

from tidewire.ports.runtime import Tasks

_logger = logging.getLogger(__name__)


class TaskDisappeared(Exception):
    """A task was cancelled by somebody other than its owner, so it ended without an error."""


def stop_process(name: str, error: BaseException) -> None:
    """Ask this process to end in order, as an operator does: with SIGTERM, to itself."""
    signal.raise_signal(signal.SIGTERM)


class TaskSupervisor:
    """Starts tasks and keeps them until they end."""

    def __init__(self, on_death: Callable[[str, BaseException], None] = stop_process) -> None:
        """`on_death(name, error)` is called on the event loop for each task that dies, after it was
        logged. Not while closing: then the end has come already."""
        self._on_death = on_death
        # A dict, because it keeps the order: tasks are cancelled as they were started.
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._is_closing = False

    def start(self, name: str, work: Coroutine[object, object, None]) -> None:
        """Run the work to its end, from the next turn of the loop on."""
        if self._is_closing:
            work.close()
            raise RuntimeError(f"task {name!r} was started while the process is ending")
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._tasks[task] = None
        task.add_done_callback(self._ended)

    async def close(self) -> None:
        """Cancel every task and wait until all have ended. Safe to call again."""
        self._is_closing = True
        # Somebody who closes from inside a task goes on after this, and ends by himself.
        own = asyncio.current_task()
        others = [task for task in self._tasks if task is not own]
        for task in others:
            task.cancel()
        if others:
            await asyncio.wait(others)

    def _ended(self, task: asyncio.Task[None]) -> None:
        del self._tasks[task]
        if not task.cancelled():
            error = task.exception()
        elif self._is_closing:
            error = None
        else:
            error = TaskDisappeared(f"task {task.get_name()!r} was cancelled, but not by its owner")
        if error is None:
            return
        _logger.critical("task %r died", task.get_name(), exc_info=error)
        if not self._is_closing:
            self._on_death(task.get_name(), error)


_CONFORMS: type[Tasks] = TaskSupervisor
