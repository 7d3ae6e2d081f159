"""Readers: connections of their own, each with a thread, so that no read ever holds up a commit.

Reads that are asked for in one turn of the loop go to a thread together and share a read
transaction: waking a thread and beginning a transaction cost more than most reads. One thread takes
them all, as long as they are quick: several at once would take the interpreter's lock from each
other, and from the event loop, at every step of SQLite. All threads take them while they have to
wait for the disk, where they do not disturb each other. A read is stopped after `read_ms_max`, and
a slow one leaves the reads behind it to another thread. All reads can be held back for a moment, so
that the write-ahead log can be restarted.
"""

import asyncio
import resource
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from queue import SimpleQueue
from typing import Final, NamedTuple, TypeVar

import apsw

from tidewire.domain.errors import Overloaded, StoreDamaged, StoreUnavailable
from tidewire.engines.sqlite.database import SqliteOptions, connect_reader
from tidewire.engines.sqlite.errors import failure_of
from tidewire.ports.runtime import resolve

Result = TypeVar("Result")
Query = Callable[[apsw.Connection], Result]

_PROGRESS_STEPS: Final = 20_000
"""Steps of SQLite's virtual machine between two looks at the clock: well under 1 ms."""
_BATCH_READS_MAX: Final = 32
"""How many reads share a transaction."""
_BATCH_S_MAX: Final = 0.005
"""After this time all reads that still wait go to another thread."""
_SHARED_S: Final = 1.0
"""How long all threads take reads after one has waited for the disk."""


class ReadGate:
    """Counts open reads and can hold new ones back, but the same read only once."""

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
        """Let the waiting reads in, counted as open, so that another hold waits for them first."""
        with self._condition:
            self._held = False
            self._releases += 1
            self._open += self._waiting
            self._waiting = 0
            self._condition.notify_all()


def blocks_read() -> int:
    """How many blocks this thread has read from the disk, that were not in the kernel's cache."""
    return resource.getrusage(resource.RUSAGE_THREAD).ru_inblock


class _Lead:
    """Which thread takes the next batches. The leader keeps the lead until a read turns out to be
    slow, then another thread gets it: a thread that no batch needs stays asleep."""

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._leader: object = None
        self._shared_until_s = 0.0
        self.taken = 0
        """How many batches were taken; only to be compared with itself."""

    def take(self, thread: object) -> None:
        """Become the leader; waits while another thread leads."""
        if self._leader is not thread:
            with self._condition:
                self._condition.wait_for(lambda: self._leader is None)
                self._leader = thread

    def pass_on(self, thread: object) -> None:
        """No effect if this thread is not the leader."""
        with self._condition:
            if self._leader is thread:
                self._leader = None
                self._condition.notify()

    def pass_on_any(self) -> None:
        self.pass_on(self._leader)

    def share(self) -> None:
        """For a while every thread takes a batch whenever it has none."""
        self._shared_until_s = time.monotonic() + _SHARED_S

    @property
    def is_shared(self) -> bool:
        return time.monotonic() < self._shared_until_s


class _Read(NamedTuple):
    query: Query[object]
    future: asyncio.Future[object]


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
        self._options = options
        self._loop = asyncio.get_running_loop()
        # The reads that were asked for in this turn of the loop.
        self._asked: list[_Read] = []
        self._queue: SimpleQueue[Iterable[_Read] | None] = SimpleQueue()
        self._lead = _Lead()
        self._watch: asyncio.TimerHandle | None = None
        self._waiting = 0
        self._closed = False
        readers = [
            _Reader(path, options, self.gate, self._queue, self._lead, self._tell)
            for _ in range(options.readers)
        ]
        self._threads = [
            threading.Thread(target=reader.run, name=f"tidewire-reader-{number}", daemon=True)
            for number, reader in enumerate(readers)
        ]
        for thread in self._threads:
            thread.start()

    async def read(self, query: Query[Result]) -> Result:
        """Run the query in a read transaction that begins after this: everything it sees is of one
        instant."""
        if self._closed:
            raise StoreUnavailable("the store is closing")
        if self._waiting >= self._options.reads_waiting_max:
            raise Overloaded(f"{self._waiting} reads are waiting already; try again later")
        read = _Read(query, self._loop.create_future())
        self._waiting += 1
        if not self._asked:
            self._loop.call_soon(self._hand_over)
        self._asked.append(read)
        return await read.future  # type: ignore[return-value]

    async def close(self) -> None:
        """Answer the reads that were asked for, then end. Safe to call again."""
        if not self._closed:
            self._closed = True
            self._hand_over()
            self._queue.put(None)
        for thread in self._threads:
            await self._loop.run_in_executor(None, thread.join)
        if self._watch is not None:
            self._watch.cancel()

    def _hand_over(self) -> None:
        asked, self._asked = self._asked, []
        for begin in range(0, len(asked), _BATCH_READS_MAX):
            self._queue.put(asked[begin : begin + _BATCH_READS_MAX])
        if self._watch is None and self._waiting > min(len(asked), _BATCH_READS_MAX):
            self._watch_leader()

    def _watch_leader(self) -> None:
        """Batches may wait behind another. A read that waits for the disk does not notice that it
        is slow, so look whether the leader goes on."""
        self._watch = self._loop.call_later(_BATCH_S_MAX, self._look_at_leader, self._lead.taken)

    def _look_at_leader(self, taken: int) -> None:
        self._watch = None
        if self._waiting == 0:
            return
        if self._lead.taken == taken and not self._queue.empty():
            self._lead.pass_on_any()
        # Even if none waits in the queue: a slow read may yet put those behind it there.
        self._watch_leader()

    def _tell(self, done: list[tuple[_Read, object]]) -> None:
        """Called on a reader's thread."""
        self._loop.call_soon_threadsafe(self._deliver, done)

    def _deliver(self, done: list[tuple[_Read, object]]) -> None:
        self._waiting -= len(done)
        for read, outcome in done:
            if isinstance(outcome, StoreDamaged) and self._on_damage is not None:
                self._on_damage(outcome)
            resolve(read.future, outcome)


class _Reader:
    """One thread and its connection; everything but the constructor runs in that thread."""

    def __init__(
        self,
        path: Path,
        options: SqliteOptions,
        gate: ReadGate,
        queue: SimpleQueue[Iterable[_Read] | None],
        lead: _Lead,
        tell: Callable[[list[tuple[_Read, object]]], None],
    ) -> None:
        self._path = path
        self._options = options
        self._gate = gate
        self._queue = queue
        self._lead = lead
        self._tell = tell
        self._database: apsw.Connection | None = None
        # The reads of this batch that are left, and those that are done and not answered yet.
        self._left: deque[_Read] = deque()
        self._done: list[tuple[_Read, object]] = []
        self._gives_way_at_s = self._is_late_at_s = float("inf")
        self._blocks_read = 0

    def run(self) -> None:
        # At once, so that a server has the same files open before and after its busiest time. If
        # this fails, the first read tries again, and its caller gets the error.
        with self._through_gate():
            with suppress(Exception):
                self._query(_look_around)
            self._end()
        while (batch := self._next_batch()) is not None:
            self._left.extend(batch)
            with self._through_gate():
                self._read_all()
            self._tell_done()
        self._lead.pass_on(self)
        if self._database is not None:
            self._database.close()

    def _next_batch(self) -> Iterable[_Read] | None:
        """None ends all threads, one after the other; batches behind it come first: a slow read may
        have put them there for another thread."""
        self._lead.take(self)
        while (batch := self._queue.get()) is None:
            is_last = self._queue.empty()
            self._queue.put(None)
            if is_last:
                break
        self._lead.taken += 1
        if self._lead.is_shared:
            self._lead.pass_on(self)
        return batch

    @contextmanager
    def _through_gate(self) -> Iterator[None]:
        # A read that was held back for longer than any restart may take goes on all the same.
        self._gate.enter(timeout_s=2 * self._options.read_ms_max / 1000)
        try:
            yield
        finally:
            self._gate.leave()

    def _read_all(self) -> None:
        self._gives_way_at_s = time.monotonic() + _BATCH_S_MAX
        while self._left:
            read = self._left.popleft()
            outcome: object
            try:
                outcome = self._query(read.query)
            except Exception as error:  # noqa: BLE001 - handed to the caller
                outcome = failure_of(error)
                # The frames keep a cursor that is in the middle of its rows, and with it the
                # snapshot that it reads: a COMMIT would end neither.
                traceback.clear_frames(error.__traceback__)
                # The reads behind it do not share the transaction of a read that failed.
                self._end()
            self._done.append((read, outcome))
            if time.monotonic() > self._gives_way_at_s:
                self._give_way()
        self._end()

    def _query(self, query: Query[object]) -> object:
        database = self._database
        if database is None:
            # Connects behind the gate as well, because connecting reads the schema.
            database = connect_reader(self._path, self._options)
            database.set_progress_handler(self._look, _PROGRESS_STEPS)
            self._database = database
        self._is_late_at_s = time.monotonic() + self._options.read_ms_max / 1000
        if not database.in_transaction:
            database.execute("BEGIN")
        try:
            return query(database)
        finally:
            # Without this the COMMIT after a late read would itself be stopped as late.
            self._is_late_at_s = float("inf")

    def _end(self) -> None:
        try:
            if self._database is not None and self._database.in_transaction:
                self._database.execute("COMMIT")
        except apsw.Error:
            # The next read opens another connection.
            self._database = None

    def _look(self) -> bool:
        """Called in the middle of a query; True stops it."""
        now_s = time.monotonic()
        if now_s > self._gives_way_at_s:
            self._give_way()
        return now_s > self._is_late_at_s

    def _give_way(self) -> None:
        self._gives_way_at_s = float("inf")
        if self._left:
            self._queue.put(tuple(self._left))
            self._left.clear()
        self._lead.pass_on(self)
        self._tell_done()

    def _tell_done(self) -> None:
        before, self._blocks_read = self._blocks_read, blocks_read()
        if self._blocks_read != before:
            self._lead.share()
        done, self._done = self._done, []
        if done:
            self._tell(done)


def _look_around(database: apsw.Connection) -> None:
    """The least read: opens the files, and reads what tables there are."""
    database.execute("SELECT count(*) FROM sqlite_schema").fetchall()
