"""Reads of one turn of the loop share a transaction, and nothing else."""

import asyncio
import gc
import itertools
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import apsw
import msgspec
import pytest

from tidewire.domain.errors import NotAMember, StoreDamaged, StoreUnavailable
from tidewire.engines.sqlite import readers as readers_module
from tidewire.engines.sqlite.database import SqliteOptions, connect
from tidewire.engines.sqlite.readers import Readers

COUNT = "SELECT count(*) FROM notes"
SLOW = """
WITH RECURSIVE counted(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM counted WHERE n < 2000000)
SELECT count(*) FROM counted
"""


class Notes:
    """A table of notes, its readers, and how many transactions they began."""

    def __init__(self, path: Path, options: SqliteOptions) -> None:
        self.database = connect(path, options, cache_kib=options.writer_cache_kib)
        self.database.execute("PRAGMA journal_mode = WAL")
        self.database.execute("CREATE TABLE notes (note TEXT)")
        self.readers = Readers(path, options)
        self.begun = 0
        self._traced: set[int] = set()

    def add(self) -> None:
        self.database.execute("INSERT INTO notes VALUES ('a note')")

    def count(self, database: apsw.Connection) -> int:
        if id(database) not in self._traced:
            self._traced.add(id(database))
            database.trace_v2(apsw.SQLITE_TRACE_STMT, self._trace)
        return int(database.execute(COUNT).get)

    def _trace(self, traced: dict[str, object]) -> None:
        self.begun += traced["sql"] == "BEGIN"

    async def ask(self, times: int) -> list[int]:
        return await asyncio.gather(*(self.readers.read(self.count) for _ in range(times)))


@asynccontextmanager
async def notes_in(path: Path, *, readers: int, read_ms_max: int = 20_000) -> AsyncIterator[Notes]:
    options = SqliteOptions(readers=readers, read_ms_max=read_ms_max)
    notes = Notes(path / "notes.db", options)
    try:
        yield notes
    finally:
        await notes.readers.close()
        notes.database.close()


def holding(begun: threading.Event, let_go: threading.Event) -> Callable[[apsw.Connection], str]:
    def query(database: apsw.Connection) -> str:
        database.execute(COUNT).fetchall()
        begun.set()
        assert let_go.wait(30)
        return "held"

    return query


async def test_reads_of_one_turn_share_a_transaction(tmp_path: Path) -> None:
    async with notes_in(tmp_path, readers=1) as notes:
        notes.add()
        assert await notes.ask(1) == [1]
        notes.begun = 0
        assert await notes.ask(10) == [1] * 10
        # More than one only if the machine is so busy that ten reads take longer than a batch may.
        assert notes.begun < 10


async def test_a_read_sees_all_that_was_committed_before_it_was_asked_for(tmp_path: Path) -> None:
    async with notes_in(tmp_path, readers=1) as notes:
        begun, let_go = threading.Event(), threading.Event()
        held = asyncio.create_task(notes.readers.read(holding(begun, let_go)))
        try:
            await asyncio.to_thread(begun.wait, 10)
            notes.add()
            later = asyncio.create_task(notes.readers.read(notes.count))
            await asyncio.sleep(0.01)
        finally:
            let_go.set()
        assert await held == "held"
        assert await later == 1


async def test_a_read_that_takes_long_gives_way(tmp_path: Path) -> None:
    async with notes_in(tmp_path, readers=2) as notes:
        ended_s: dict[str, float] = {}

        async def ask(name: str, query: Callable[[apsw.Connection], object]) -> None:
            await notes.readers.read(query)
            ended_s[name] = time.monotonic()

        await asyncio.gather(
            ask("before", notes.count),
            ask("slow", lambda database: database.execute(SLOW).get),
            *(ask(f"behind {number}", notes.count) for number in range(5)),
        )
        assert max(ended_s, key=ended_s.__getitem__) == "slow"


async def test_quick_reads_use_one_thread(tmp_path: Path) -> None:
    async with notes_in(tmp_path, readers=3) as notes:
        threads = set()

        def note_thread(_: apsw.Connection) -> None:
            threads.add(threading.get_ident())

        slow_count = 0
        for _ in range(100):
            began_s = time.monotonic()
            await asyncio.gather(*(notes.readers.read(note_thread) for _ in range(3)))
            slow_count += time.monotonic() - began_s > 0.004
        # On a busy machine a read may seem slow, and then another thread takes the next ones.
        assert len(threads) <= 1 + slow_count


async def test_all_threads_read_while_reads_wait_for_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of these reads is quick, so the thread that leads would take one after the other."""
    blocks = itertools.count()
    monkeypatch.setattr(readers_module, "blocks_read", lambda: next(blocks))
    async with notes_in(tmp_path, readers=3) as notes:
        active, most = 0, [0]
        lock = threading.Lock()

        def wait(_: apsw.Connection) -> None:
            nonlocal active
            with lock:
                active += 1
                most[0] = max(most[0], active)
            time.sleep(0.001)
            with lock:
                active -= 1

        async def ask() -> int:
            """How many ran at once, at most, of reads that are asked for one by one."""
            most[0] = 0
            asked = []
            for _ in range(30):
                asked.append(asyncio.ensure_future(notes.readers.read(wait)))
                await asyncio.sleep(0)
            await asyncio.gather(*asked)
            return most[0]

        # The threads of a busy machine do not always meet.
        assert 3 in [await ask() for _ in range(20)]


async def test_as_many_files_are_open_before_the_busiest_time_as_after_it(tmp_path: Path) -> None:
    def files() -> int:
        links = [
            entry.readlink() for entry in Path("/proc/self/fd").iterdir() if entry.is_symlink()
        ]
        return sum(link.is_relative_to(tmp_path) for link in links)

    async with notes_in(tmp_path, readers=3) as notes:
        # The writer's three, and two of each reader: the database and its log.
        deadline = time.monotonic() + 10
        while files() < 9:
            assert time.monotonic() < deadline, "not all threads have connected"
            await asyncio.sleep(0.005)
        together = threading.Barrier(3)
        at_once = []
        for _ in range(3):
            at_once.append(asyncio.ensure_future(notes.readers.read(lambda _: together.wait(10))))
            # Not in one batch.
            await asyncio.sleep(0.001)
        await asyncio.gather(*at_once)
        assert files() == 9


async def test_second_close_waits_for_the_first(tmp_path: Path) -> None:
    async with notes_in(tmp_path, readers=3) as notes:
        reading = asyncio.create_task(notes.ask(40))
        await asyncio.sleep(0)
        async with asyncio.timeout(10):
            await asyncio.gather(notes.readers.close(), notes.readers.close())
        assert await reading == [0] * 40


async def test_reads_do_not_wait_for_one_that_waits_for_the_disk(tmp_path: Path) -> None:
    """It makes no steps at which it could notice that it is slow."""
    async with notes_in(tmp_path, readers=2) as notes:
        begun, let_go = threading.Event(), threading.Event()
        stuck = asyncio.create_task(notes.readers.read(holding(begun, let_go)))
        try:
            await asyncio.to_thread(begun.wait, 10)
            for _ in range(3):
                assert await asyncio.wait_for(notes.ask(40), 10) == [0] * 40
        finally:
            let_go.set()
        assert await stuck == "held"


async def test_what_gives_way_does_not_wait_for_another_that_waits_for_the_disk(
    tmp_path: Path,
) -> None:
    """No other read is asked for meanwhile: what gave way has to be noticed all the same."""
    async with notes_in(tmp_path, readers=2) as notes:
        begun = threading.Event(), threading.Event()
        let_go = threading.Event(), threading.Event()
        stuck = [asyncio.create_task(notes.readers.read(holding(begun[0], let_go[0])))]
        behind = [asyncio.create_task(notes.readers.read(notes.count)) for _ in range(3)]
        try:
            await asyncio.to_thread(begun[0].wait, 10)
            stuck.append(asyncio.create_task(notes.readers.read(holding(begun[1], let_go[1]))))
            await asyncio.to_thread(begun[1].wait, 10)
            # No read waits in the queue now, for as long as that is looked for.
            await asyncio.sleep(0.05)
            let_go[0].set()
            assert await asyncio.wait_for(asyncio.gather(*behind), 10) == [0] * 3
            assert not stuck[1].done()
        finally:
            for event in let_go:
                event.set()
        assert await asyncio.gather(*stuck) == ["held"] * 2


async def test_a_thread_that_was_stuck_helps_again(tmp_path: Path) -> None:
    async with notes_in(tmp_path, readers=2) as notes:
        for _ in range(3):
            begun, let_go = threading.Event(), threading.Event()
            stuck = asyncio.create_task(notes.readers.read(holding(begun, let_go)))
            try:
                await asyncio.to_thread(begun.wait, 10)
                assert await asyncio.wait_for(notes.ask(1), 10) == [0]
            finally:
                let_go.set()
            assert await stuck == "held"


async def test_a_read_that_fails_fails_alone(tmp_path: Path) -> None:
    async with notes_in(tmp_path, readers=1, read_ms_max=20) as notes:
        notes.add()

        def refuse(_: apsw.Connection) -> None:
            raise NotAMember

        outcomes = await asyncio.gather(
            notes.readers.read(notes.count),
            notes.readers.read(refuse),
            notes.readers.read(lambda database: database.execute("SELECT * FROM nothing").get),
            notes.readers.read(notes.count),
            notes.readers.read(lambda database: database.execute(SLOW).get),
            notes.readers.read(notes.count),
            return_exceptions=True,
        )
        assert [outcomes[index] for index in (0, 3, 5)] == [1, 1, 1]
        assert isinstance(outcomes[1], NotAMember)
        assert isinstance(outcomes[2], Exception)
        assert isinstance(outcomes[4], StoreUnavailable)


@contextmanager
def no_collection() -> Iterator[None]:
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def meet_damage(database: apsw.Connection) -> list[int]:
    rows = database.execute("SELECT note FROM notes")
    return [msgspec.convert(note, int) for (note,) in rows]


async def test_a_read_that_met_damage_leaves_no_instant_behind(tmp_path: Path) -> None:
    """Its cursor stands in the middle of its rows, and its error keeps the cursor: an end of the
    transaction alone would keep the instant for the reads that follow, and pin the log."""
    async with notes_in(tmp_path, readers=1) as notes:
        notes.add()
        notes.add()
        with no_collection():
            with pytest.raises(StoreDamaged):
                await notes.readers.read(meet_damage)
            notes.add()
            assert await notes.ask(1) == [3]
            [(busy, _, _)] = notes.database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            assert busy == 0


@pytest.mark.parametrize("readers", [1, 3])
async def test_close_answers_also_what_gave_way(tmp_path: Path, readers: int) -> None:
    async with notes_in(tmp_path, readers=readers) as notes:
        slow = [
            asyncio.create_task(notes.readers.read(lambda database: database.execute(SLOW).get))
            for _ in range(readers)
        ]
        behind = [asyncio.create_task(notes.readers.read(notes.count)) for _ in range(100)]
        await asyncio.sleep(0)
        await notes.readers.close()
        await asyncio.sleep(0.05)
        assert all(task.done() for task in (*slow, *behind))
        assert await asyncio.gather(*behind) == [0] * 100


async def test_what_is_bound_does_not_change_a_plan(tmp_path: Path) -> None:
    """Otherwise SQLite plans a statement with a bound LIMIT at each use: most of a digest."""

    def is_planned_once(database: apsw.Connection) -> int:
        return database.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, -1)

    async with notes_in(tmp_path, readers=1) as notes:
        assert await notes.readers.read(is_planned_once) == 1
        assert is_planned_once(notes.database) == 1
