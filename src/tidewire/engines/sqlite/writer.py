"""The writer: one thread that owns the writing connection and commits for all callers.

It takes all writes that wait, runs one transaction, syncs once, and answers all callers; while one
commit is syncing, the next one gathers. No timer, no delay. After a commit, its events go to
the listener and its callers are answered, both on the event loop, in commit order.

A transaction that meets damage is rolled back, and its acts are done again in transactions of their
own: those that do not meet the damage must not fail with the one that does. An act for many is
halved until the damage is alone. Only a commit whose outcome is unknown, or a rollback that fails,
ends the process.
"""

import asyncio
import threading
import time
import traceback
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future as ThreadFuture
from dataclasses import KW_ONLY, dataclass, field
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

import apsw

from tidewire.domain.errors import (
    Overloaded,
    Refused,
    StoreDamaged,
    StoreFull,
    StoreUnavailable,
    StoreUnusable,
    TidewireError,
)
from tidewire.domain.events import Event
from tidewire.engines.sqlite.database import SqliteOptions
from tidewire.engines.sqlite.errors import DAMAGE, failure_of, translated
from tidewire.ports.event_log import CommitListener
from tidewire.ports.runtime import resolve

Result = TypeVar("Result")
Item = TypeVar("Item")
Act = Callable[[apsw.Connection], tuple[Result, Sequence[Event]]]
"""One write: changes rows, returns its result and its events. Raises Refused before any change."""

ActForMany = Callable[[apsw.Connection, Sequence[Item]], tuple[Sequence[object], Sequence[Event]]]
"""One write for many items: returns a result for each, in their order, and the events."""

FatalHandler = Callable[[str], None]
"""Called with the reason why the database is in doubt. The server's one ends the process."""


WriteDone = Callable[[object], None]
"""Called on the event loop with the result of a write, or with the exception that it raised."""


@dataclass(slots=True)
class _Many:
    """The parts of a write for many items."""

    items: Sequence[Any]
    act: ActForMany[Any]
    key: Callable[[Any], Hashable]


@dataclass(slots=True)
class _Write:
    """A write that waits, or has been done."""

    act: Act[object]
    done: WriteDone
    many: _Many | None = None
    outcome: object = None


@dataclass(slots=True)
class _Pause:
    """Something to do on the writer's connection between two commits."""

    act: Callable[[apsw.Connection], None]
    future: ThreadFuture[None] = field(default_factory=ThreadFuture)


@dataclass(slots=True)
class CommitCounters:
    """What has been committed so far, as plain numbers for metrics. Written by the
    writer's thread alone."""

    commits: int = 0
    """Transactions, those that failed included."""
    writes: int = 0
    last_writes: int = 0
    seconds_total: float = 0.0
    """From the begin of each until it was on the disk."""
    last_seconds: float = 0.0

    def add(self, writes: int, seconds: float) -> None:
        self.commits += 1
        self.writes += writes
        self.last_writes = writes
        self.seconds_total += seconds
        self.last_seconds = seconds


@dataclass(eq=False, repr=False)
class Writer:
    """Owns the writing connection. `write` and `close` are called on the event loop."""

    database: apsw.Connection
    _: KW_ONLY
    options: SqliteOptions
    listener: CommitListener
    on_fatal: FatalHandler
    on_damage: Callable[[StoreDamaged], None] | None = None

    def __post_init__(self) -> None:
        self.counters = CommitCounters()
        self._loop = asyncio.get_running_loop()
        # SimpleQueue wakes the thread in C; `_waiting`, used only on the loop, keeps its bound.
        self._queue: SimpleQueue[_Write | _Pause | None] = SimpleQueue()
        self._waiting = 0
        self._changes = self.database.total_changes()
        self.has_room: bool | None = None
        """Whether the last commit found room on the disk; None before the first one."""
        self._in_doubt: str | None = None
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="tidewire-writer", daemon=True)
        self._thread.start()

    @property
    def waiting_count(self) -> int:
        """How many writes wait for their commit, or for its end."""
        return self._waiting

    async def write(self, act: Act[Result]) -> Result:
        """Do the act in the next commit; returns its result when the commit is durable."""
        answer: asyncio.Future[object] = self._loop.create_future()
        self._put(_Write(act, partial(resolve, answer)))
        return await answer  # type: ignore[return-value]

    async def write_many(
        self, items: Sequence[Item], act: ActForMany[Item], key: Callable[[Item], Hashable]
    ) -> Any:
        """As `write`, for many items at once; returns a result for each. An item that meets damage
        fails alone, with the items behind it that have the same key."""
        answer: asyncio.Future[object] = self._loop.create_future()
        self.write_many_nowait(items, act, key, partial(resolve, answer))
        return await answer

    def write_many_nowait(
        self,
        items: Sequence[Item],
        act: ActForMany[Item],
        key: Callable[[Item], Hashable],
        done: WriteDone,
    ) -> None:
        """As `write_many`, but `done` is called with the results, later."""
        whole: Act[object] = lambda database: act(database, items)  # noqa: E731
        self._put(_Write(whole, done, _Many(items, act, key)))

    def _put(self, write: _Write) -> None:
        """Raises if there is no room."""
        if self._closed:
            raise StoreUnavailable("the store is closing")
        if self._waiting >= self.options.writes_waiting_max:
            raise Overloaded(f"{self._waiting} writes are waiting already; try again later")
        self._waiting += 1
        self._queue.put(write)

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
                if len(writes) >= self.options.commit_writes_max:
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
        """One transaction for all writes; an act that fails does not make the others fail."""
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
            is_of_many = any(_may_be_damage(error, write) for write in writes)
            if (isinstance(error, DAMAGE) or is_of_many) and self._in_doubt is None:
                events += self._commit_apart(writes)
        self.counters.add(len(writes), time.perf_counter() - started_at)
        self._loop.call_soon_threadsafe(self._deliver, writes, events)

    def _commit_apart(self, writes: list[_Write]) -> list[Event]:
        """A transaction for each write: none fails because of another one's damage."""
        events: list[Event] = []
        for write in writes:
            try:
                if write.many is None:
                    write.outcome, more = self._transact(write.act)
                else:
                    write.outcome, more = self._transact_many(write.many, write.many.items, {})
            except Exception as error:  # noqa: BLE001 - its caller gets it, whatever it is
                self._tell_damage(error)
                write.outcome = error
            else:
                events += more
        return events

    def _transact(self, act: Act[Result]) -> tuple[Result, Sequence[Event]]:
        """One transaction for one act. Raises the error for the act's caller."""
        try:
            self._begin()
            done = act(self.database)
            self._sync()
        except Exception as error:
            failure = self._abandon(error)
            if failure is error:
                raise
            raise failure from error
        return done

    def _tell_damage(self, failure: BaseException) -> None:
        if isinstance(failure, StoreDamaged) and self.on_damage is not None:
            self._loop.call_soon_threadsafe(self.on_damage, failure)

    def _transact_many(
        self, many: _Many, items: Sequence[Any], failed: dict[Hashable, TidewireError]
    ) -> tuple[list[object], list[Event]]:
        """A transaction for all items, or for each half, until the damage is alone. An error of one
        half is the outcome of that half only: the other one may be committed."""
        sound = [item for item in items if many.key(item) not in failed]
        results: Sequence[object] = ()
        events: Sequence[Event] = ()
        try:
            if sound:
                results, events = self._transact(lambda database: many.act(database, sound))
        except StoreUnusable:
            raise
        except Exception as error:  # noqa: BLE001 - the items that failed get it, whatever it is
            damage = _beside_damage(error)
            if len(sound) > 1 and not isinstance(damage, StoreFull):
                middle = len(items) // 2
                one, first = self._transact_many(many, items[:middle], failed)
                other, second = self._transact_many(many, items[middle:], failed)
                return one + other, first + second
            self._tell_damage(damage)
            failed.update({many.key(item): damage for item in sound})
        found = iter(results)
        return [failed.get(many.key(item)) or next(found) for item in items], list(events)

    def _begin(self) -> None:
        if self._in_doubt is not None:
            raise StoreUnusable(self._in_doubt)
        self.database.execute("BEGIN IMMEDIATE")

    def _do(self, write: _Write, *, alone: bool) -> Sequence[Event]:
        """Run one act. A refusal comes before any change; anything else undoes this act only."""
        if alone:
            try:
                write.outcome, events = write.act(self.database)
            except Refused as refusal:
                write.outcome = refusal
                return ()
            return events
        self.database.execute("SAVEPOINT act")
        try:
            write.outcome, events = write.act(self.database)
        except Exception as error:
            is_database = isinstance(error, apsw.Error) and translated(error) is not None
            if is_database or isinstance(error, DAMAGE) or _may_be_damage(error, write):
                # The database itself failed, so this concerns all writes.
                raise
            self.database.execute("ROLLBACK TO act")
            write.outcome, events = error, ()
        self.database.execute("RELEASE act")
        return events

    def _sync(self) -> None:
        """COMMIT. If it fails, but not for room or a lock, it is not known what is on the disk."""
        try:
            self.database.execute("COMMIT")
            # A commit that has changed nothing has written nothing.
            changes = self.database.total_changes()
            if changes != self._changes:
                self._changes = changes
                self.has_room = True
        except (apsw.FullError, apsw.BusyError):
            raise
        except Exception as error:
            self._doubt(_unknown(f"a commit failed and its outcome is unknown ({error})"))
            raise

    def _abandon(self, error: Exception) -> Exception:
        """Roll back; returns the error for the callers."""
        if isinstance(error, apsw.FullError):
            self.has_room = False
        if self._in_doubt is not None:
            return StoreUnusable(self._in_doubt)
        # The frames keep a cursor that is in the middle of its rows: a ROLLBACK would not end it,
        # and it would pin the log.
        traceback.clear_frames(error.__traceback__)
        try:
            if self.database.in_transaction:
                self.database.execute("ROLLBACK")
        except Exception as rollback_error:  # noqa: BLE001 - the state is in doubt, whatever it was
            self._doubt(_unknown(f"a rollback failed ({rollback_error})"))
            return StoreUnusable(str(self._in_doubt))
        return failure_of(error)

    def _doubt(self, why: str) -> None:
        """Never go on with a database in doubt: nothing more is acknowledged."""
        self._in_doubt = why
        self.on_fatal(why)

    def _pause(self, pause: _Pause) -> None:
        try:
            if self._in_doubt is None:
                pause.act(self.database)
            pause.future.set_result(None)
        except Exception as error:  # noqa: BLE001 - handed to the caller of the pause
            pause.future.set_exception(error)

    # Back on the event loop.

    def _deliver(self, writes: list[_Write], events: Sequence[Event]) -> None:
        self._waiting -= len(writes)
        try:
            if events:
                self.listener(events)
        finally:
            for write in writes:
                write.done(write.outcome)


def _may_be_damage(error: Exception, write: _Write) -> bool:
    """A constraint of a table fails because of a bug, or because of a damaged index in which SQLite
    seems to find the very key to be added. Neither concerns all items of a write for many."""
    return write.many is not None and isinstance(error, apsw.ConstraintError)


def _beside_damage(error: Exception) -> TidewireError:
    """The error for a request that failed where damage was met: a damaged index may make a
    constraint of its table fail."""
    if isinstance(error, TidewireError):
        return error
    damage = StoreDamaged(repr(error))
    damage.__cause__ = error
    return damage


def _unknown(why: str) -> str:
    return (
        f"{why}; the process ends so that nothing is acknowledged that is not on disk. "
        "Check the disk, then start again: everything acknowledged is still there"
    )
