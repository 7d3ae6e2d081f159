"""Owns every task of the process: the only place that makes any.

A task that dies is a bug, or damage that no code expected. If it is a service, the process cannot
be trusted to do its work without it: the death is logged here, once, and the process is asked to
end in order. If it is a request, the failure is logged and counted, the caller is told, and the
process goes on.
"""

import asyncio
import logging
import signal
from collections.abc import Callable, Mapping
from functools import partial
from typing import TypeVar

from tidewire.ports.runtime import NO_NAMES, RequestKind, Tasks, Work

Result = TypeVar("Result")

_logger = logging.getLogger(__name__)


class TaskDisappeared(Exception):
    """A task was cancelled by code that does not own it, so it ended without an error."""


def stop_process(name: str, error: BaseException) -> None:
    """Ask this process to end in order, as an operator does: with SIGTERM, to itself."""
    signal.raise_signal(signal.SIGTERM)


class TaskSupervisor:
    """Starts tasks and keeps them until they end."""

    def __init__(self, on_death: Callable[[str, BaseException], None] = stop_process) -> None:
        """`on_death(name, error)` is called on the event loop for each service that dies, after it
        was logged. Not while closing: then the process is ending already."""
        self.failures_by_kind: dict[str, int] = {}
        """How many requests have failed unexpectedly."""
        self._on_death = on_death
        # A dict, because it keeps the order: tasks are cancelled as they were started.
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._is_closing = False

    def start_service(self, name: str, work: Work) -> None:
        """Run the work to its end, from the next turn of the loop on. While the process is ending
        no work starts: a timer or a link may still ask, but the task would only be cancelled."""
        self._start(name, work, self._service_ended)

    def start_request(
        self, kind: RequestKind, work: Work, on_failure: Callable[[Exception], None]
    ) -> None:
        """As `start_service`, for work whose failure concerns its caller alone."""
        self._start(kind, work, partial(self._request_ended, kind, on_failure))

    def service_failed(self, name: str, error: BaseException) -> None:
        _logger.critical("task %r died", name, exc_info=error)
        if not self._is_closing:
            self._on_death(name, error)

    def request_failed(
        self, kind: RequestKind, error: Exception, names: Mapping[str, object] = NO_NAMES
    ) -> None:
        self.failures_by_kind[kind] = self.failures_by_kind.get(kind, 0) + 1
        _logger.error(
            "request failed unexpectedly", exc_info=error, extra={"kind": str(kind), **names}
        )

    async def close(self) -> None:
        """Cancel every task and wait until all have ended. Safe to call again."""
        self._is_closing = True
        # A task that calls this itself goes on afterwards, and ends by itself.
        own = asyncio.current_task()
        others = [task for task in self._tasks if task is not own]
        for task in others:
            task.cancel()
        if others:
            await asyncio.wait(others)

    def _start(self, name: str, work: Work, ended: Callable[[asyncio.Task[None]], None]) -> None:
        if self._is_closing:
            work.close()
            return
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._tasks[task] = None
        task.add_done_callback(ended)

    def _service_ended(self, task: asyncio.Task[None]) -> None:
        error = self._take(task)
        if error is not None:
            self.service_failed(task.get_name(), error)

    def _request_ended(
        self, kind: RequestKind, on_failure: Callable[[Exception], None], task: asyncio.Task[None]
    ) -> None:
        error = self._take(task)
        if error is None:
            return
        if not isinstance(error, Exception):
            # Not a failure of this request: the interpreter wants to end.
            self.service_failed(kind, error)
            return
        self.request_failed(kind, error)
        try:
            on_failure(error)
        except Exception as second:  # noqa: BLE001 - it concerns the same caller and no other
            self.request_failed(kind, second)

    def _take(self, task: asyncio.Task[None]) -> BaseException | None:
        """Forget a task that has ended; returns the error that it died of, if any."""
        del self._tasks[task]
        if not task.cancelled():
            return task.exception()
        if self._is_closing:
            return None
        return TaskDisappeared(f"task {task.get_name()!r} was cancelled, but not by its owner")


async def run_blocking(work: Callable[[], Result]) -> Result:
    """Run the work on a thread; returns or raises what it does (`ports.runtime.RunBlocking`).

    A thread cannot be stopped. If the caller is cancelled meanwhile, the cancellation takes effect
    when the thread has ended, so that the caller's count of busy threads is true.
    """
    running = asyncio.get_running_loop().run_in_executor(None, work)
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        await asyncio.wait([running])
        if not running.cancelled():
            # Read the exception and drop it: the caller does not want the result any more.
            running.exception()
        raise


_CONFORMS: type[Tasks] = TaskSupervisor
