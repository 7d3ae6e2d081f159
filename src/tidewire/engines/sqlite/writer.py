"""The writer: one thread that owns the writing connection and commits for everybody.

It takes everything that is waiting, runs one transaction, syncs once, and answers them all; while
one commit is syncing, the next one gathers. No timer, no delay. After a commit, its events go to
the listener and its callers are answered, both on the event loop, in commit order.
"""

import asyncio
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future as ThreadFuture
from functools import partial
from queue import Empty, SimpleQueue
from typing import TypeVar

import apsw

from tidewire.domain.errors import Overloaded, Refused, StoreUnavailable, StoreUnusable
from tidewire.domain.events import Event
from tidewire.engines.sqlite.database import SqliteOptions
from tidewire.engines.sqlite.errors import DAMAGED, damaged_sentence, translated
from tidewire.ports.event_log import CommitListener

Result = TypeVar("Result")
Act = Callable[[apsw.Connection], tuple[Result, Sequence[Event]]]
"""One write: changes rows, gives its result and what happened. Raises Refused before any change."""

FatalHandler = Callable[[str], None]
"""Is told why the database is in doubt. The real one ends the process and does not return."""


WriteDone = Callable[[object], None]
"""Is told the result of a write, or the exception that it raised. On the event loop."""


class _Write:
    """A write that waits, or has been done."""

    __slots__ = ("act", "done", "outcome")

    def __init__(self, act: Act[object], done: WriteDone) -> None:
        self.act = act
        self.done = done
        self.outcome: object = None


class _Pause:
    """Something to do on the writer's connection between two commits."""

    __slots__ = ("act", "future")

    def __init__(self, act: Callable[[apsw.Connection], None]) -> None:
        self.act = act
        self.future: ThreadFuture[None] = ThreadFuture()


class CommitCounters:
    """What has been committed so far, as plain numbers for whoever shows them. Written by the
    writer's thread alone."""

    __slots__ = ("commits", "last_seconds", "last_writes", "seconds_total", "writes")

    def __init__(self) -> None:
        self.commits = 0
        """Transactions, those that failed included."""
        self.writes = 0
        self.last_writes = 0
        self.seconds_total = 0.0
        """From the begin of each until it was on the disk."""
        self.last_seconds = 0.0

    def add(self, writes: int, seconds: float) -> None:
        self.commits += 1
        self.writes += writes
        self.last_writes = writes
        self.seconds_total += seconds
        self.last_seconds = seconds


class Writer:
    """Owns the writing connection. `write` and `close` are called on the event loop."""

    def __init__(
        self,
        database: apsw.Connection,
        *,
        options: SqliteOptions,
        listener: CommitListener,
        on_fatal: FatalHandler,
    ) -> None:
        self.counters = CommitCounters()
        self._database = database
        self._options = options
        self._listener = listener
        self._on_fatal = on_fatal
        self._loop = asyncio.get_running_loop()
        # SimpleQueue wakes the thread in C; its bound is kept by `_waiting`, on the loop alone.
        self._queue: SimpleQueue[_Write | _Pause | None] = SimpleQueue()
        self._waiting = 0
        self._in_doubt: str | None = None
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="tidewire-writer", daemon=True)
        self._thread.start()

    @property
    def waiting_count(self) -> int:
        """How many writes wait for their commit, or for its end."""
        return self._waiting

    async def write(self, act: Act[Result]) -> Result:
        """Do the act in the next commit; its result when that is durable."""
        answer: asyncio.Future[object] = self._loop.create_future()
        self.write_nowait(act, partial(_resolve, answer))
        return await answer  # type: ignore[return-value]

    def write_nowait(self, act: Act[object], done: WriteDone) -> None:
        """As `write`, but `done` is called with the result, later. Raises if there is no room."""
        if self._closed:
            raise StoreUnavailable("the store is closing")
        if self._waiting >= self._options.writes_waiting_max:
            raise Overloaded(f"{self._waiting} writes are waiting already; try again later")
        self._waiting += 1
        self._queue.put(_Write(act, done))

    def between_commits(self, act: Callable[[apsw.Connection], None]) -> ThreadFuture[None]:
        """Do something on the writing connection outside of any transaction. From any thread."""
        pause = _Pause(act)
        self._queue.put(pause)
        return pause.future

    async def close(self) -> None:
        """Commit what was taken in, then end. The connection stays open for its owner."""
        self._closed = True
        self._queue.put(None)
        await self._loop.run_in_executor(None, self._thread.join)

    # From here on: the writer's thread.

    def _run(self) -> None:
        while True:
            item = self._queue.get()
            writes: list[_Write] = []
            while isinstance(item, _Write):
                writes.append(item)
                if len(writes) >= self._options.commit_writes_max:
                    break
                try:
                    item = self._queue.get_nowait()
                except Empty:
                    break
            if writes:
                self._commit(writes)
            if isinstance(item, _Pause):
                self._pause(item)
            elif item is None:
                return

    def _commit(self, writes: list[_Write]) -> None:
        """One transaction for all; an act that fails takes only itself along."""
        events: list[Event] = []
        started_at = time.perf_counter()
        try:
            self._begin()
            for write in writes:
                events += self._do(write, alone=len(writes) == 1)
            self._sync()
        except Exception as error:  # noqa: BLE001 - every caller gets it, whatever it is
            events.clear()
            failure = self._abandon(error)
            for write in writes:
                write.outcome = failure
        self.counters.add(len(writes), time.perf_counter() - started_at)
        self._loop.call_soon_threadsafe(self._deliver, writes, events)

    def _begin(self) -> None:
        if self._in_doubt is not None:
            raise StoreUnusable(self._in_doubt)
        self._database.execute("BEGIN IMMEDIATE")

    def _do(self, write: _Write, *, alone: bool) -> Sequence[Event]:
        """Run one act. A refusal comes before any change; anything else undoes this act only."""
        if alone:
            try:
                write.outcome, events = write.act(self._database)
            except Refused as refusal:
                write.outcome = refusal
                return ()
            return events
        self._database.execute("SAVEPOINT act")
        try:
            write.outcome, events = write.act(self._database)
        except Exception as error:
            if isinstance(error, apsw.Error) and translated(error) is not None:
                # The database itself failed, so this concerns everybody.
                raise
            self._database.execute("ROLLBACK TO act")
            write.outcome, events = error, ()
        self._database.execute("RELEASE act")
        return events

    def _sync(self) -> None:
        """COMMIT. If it fails for another reason than room, nobody knows what is on the disk."""
        try:
            self._database.execute("COMMIT")
        except (apsw.FullError, apsw.BusyError):
            raise
        except Exception as error:
            self._doubt(_unknown(f"a commit failed and its outcome is unknown ({error})"))
            raise

    def _abandon(self, error: Exception) -> Exception:
        """Roll back; what the callers are told."""
        if isinstance(error, DAMAGED):
            self._doubt(f"{damaged_sentence(error)}; the process ends, as nothing can be stored")
        if self._in_doubt is not None:
            return StoreUnusable(self._in_doubt)
        try:
            if self._database.in_transaction:
                self._database.execute("ROLLBACK")
        except Exception as rollback_error:  # noqa: BLE001 - the state is in doubt, whatever it was
            self._doubt(_unknown(f"a rollback failed ({rollback_error})"))
            return StoreUnusable(str(self._in_doubt))
        if isinstance(error, apsw.Error):
            ours = translated(error)
            if ours is not None:
                ours.__cause__ = error
                return ours
        return error

    def _doubt(self, why: str) -> None:
        """Never go on with a database in doubt: nothing more is acknowledged."""
        self._in_doubt = why
        self._on_fatal(why)

    def _pause(self, pause: _Pause) -> None:
        try:
            if self._in_doubt is None:
                pause.act(self._database)
            pause.future.set_result(None)
        except Exception as error:  # noqa: BLE001 - handed to whoever asked for the pause
            pause.future.set_exception(error)

    # Back on the event loop.

    def _deliver(self, writes: list[_Write], events: Sequence[Event]) -> None:
        self._waiting -= len(writes)
        try:
            if events:
                self._listener(events)
        finally:
            for write in writes:
                write.done(write.outcome)


def _resolve(answer: asyncio.Future[object], outcome: object) -> None:
    """Tell a caller who waits, and who may have gone away."""
    if answer.done():
        return
    if isinstance(outcome, BaseException):
        answer.set_exception(outcome)
    else:
        answer.set_result(outcome)


def _unknown(why: str) -> str:
    return (
        f"{why}; the process ends so that nothing is acknowledged that is not on disk. "
        "Check the disk, then start again: everything acknowledged is still there"
    )
