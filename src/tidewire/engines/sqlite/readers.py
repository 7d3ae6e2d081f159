"""Readers: connections of their own, each with a thread, so that no read ever holds up a commit.

A read is one short read transaction: it is stopped after `read_ms_max`, and all of them can be held
back for a moment, so that the write-ahead log can be restarted.
"""

import asyncio
import threading
import time
from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue
from typing import Final, TypeVar

import apsw

from tidewire.domain.errors import Overloaded, StoreDamaged, StoreUnavailable
from tidewire.engines.sqlite.database import SqliteOptions, connect_reader
from tidewire.engines.sqlite.errors import failure_of

Result = TypeVar("Result")
Query = Callable[[apsw.Connection], Result]

_PROGRESS_STEPS: Final = 20_000
"""How many steps of SQLite's machine lie between two looks at the clock: well under 1 ms."""


class ReadGate:
    """Counts open reads and can hold new ones back, but none of them twice."""

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._open = 0
        self._held = False
        self._waiting = 0
        self._releases = 0

    def enter(self, timeout_s: float) -> None:
        """Begin a read; waits while reads are held back, but no longer than the timeout."""
        with self._condition:
            if self._held:
                seen = self._releases
                self._waiting += 1
                if self._condition.wait_for(lambda: self._releases != seen, timeout_s):
                    return
                self._waiting -= 1
            self._open += 1

    def leave(self) -> None:
        with self._condition:
            self._open -= 1
            self._condition.notify_all()

    def hold(self, timeout_s: float) -> bool:
        """Hold new reads back and wait for the open ones; True if none is open now."""
        with self._condition:
            self._held = True
            return self._condition.wait_for(lambda: self._open == 0, timeout_s)

    def release(self) -> None:
        """Let those in who wait, counted as open, so that another hold waits for them first."""
        with self._condition:
            self._held = False
            self._releases += 1
            self._open += self._waiting
            self._waiting = 0
            self._condition.notify_all()


class _Read:
    __slots__ = ("future", "query")

    def __init__(self, query: Query[object], future: asyncio.Future[object]) -> None:
        self.query = query
        self.future = future

    def answer(self, outcome: object) -> None:
        if self.future.done():
            return
        if isinstance(outcome, BaseException):
            self.future.set_exception(outcome)
        else:
            self.future.set_result(outcome)


class Readers:
    """A few reading threads. `read` and `close` are called on the event loop."""

    def __init__(
        self,
        path: Path,
        options: SqliteOptions,
        gate: ReadGate | None = None,
        on_damage: Callable[[StoreDamaged], None] | None = None,
    ) -> None:
        self.gate = gate or ReadGate()
        self._on_damage = on_damage
        self._path = path
        self._options = options
        self._loop = asyncio.get_running_loop()
        self._queue: SimpleQueue[_Read | None] = SimpleQueue()
        self._waiting = 0
        self._closed = False
        self._threads = [
            threading.Thread(target=self._run, name=f"tidewire-reader-{number}", daemon=True)
            for number in range(options.readers)
        ]
        for thread in self._threads:
            thread.start()

    async def read(self, query: Query[Result]) -> Result:
        """Run the query in a read transaction of its own: everything it sees is of one instant."""
        if self._closed:
            raise StoreUnavailable("the store is closing")
        if self._waiting >= self._options.reads_waiting_max:
            raise Overloaded(f"{self._waiting} reads are waiting already; try again later")
        read = _Read(query, self._loop.create_future())
        self._waiting += 1
        self._queue.put(read)
        return await read.future  # type: ignore[return-value]

    async def close(self) -> None:
        """Answer what was asked, then end."""
        self._closed = True
        for _ in self._threads:
            self._queue.put(None)
        for thread in self._threads:
            await self._loop.run_in_executor(None, thread.join)

    # From here on: a reader's thread.

    def _run(self) -> None:
        database: apsw.Connection | None = None
        deadline = [0.0]

        def is_late() -> bool:
            return time.monotonic() > deadline[0]

        while (read := self._queue.get()) is not None:
            outcome: object
            # A read that was held back for longer than any restart may take goes on all the same.
            self.gate.enter(timeout_s=2 * self._options.read_ms_max / 1000)
            try:
                if database is None:
                    # Behind the gate as well: connecting reads the schema.
                    database = connect_reader(self._path, self._options)
                    database.set_progress_handler(is_late, _PROGRESS_STEPS)
                outcome = self._query(database, read.query, deadline)
            except Exception as error:  # noqa: BLE001 - handed to whoever asked
                outcome = failure_of(error)
            finally:
                self.gate.leave()
            self._loop.call_soon_threadsafe(self._deliver, read, outcome)
        if database is not None:
            database.close()

    def _query(
        self, database: apsw.Connection, query: Query[object], deadline: list[float]
    ) -> object:
        deadline[0] = time.monotonic() + self._options.read_ms_max / 1000
        database.execute("BEGIN")
        try:
            return query(database)
        finally:
            # Without this the end of a late read would itself be stopped as late.
            deadline[0] = float("inf")
            if database.in_transaction:
                database.execute("COMMIT")

    # Back on the event loop.

    def _deliver(self, read: _Read, outcome: object) -> None:
        self._waiting -= 1
        if isinstance(outcome, StoreDamaged) and self._on_damage is not None:
            self._on_damage(outcome)
        read.answer(outcome)
