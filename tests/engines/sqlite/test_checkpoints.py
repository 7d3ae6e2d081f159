"""The write-ahead log stays bounded and commits do not wait for it, whoever reads meanwhile.

Method: small limits, a load that writes the limit many times over, and a watch on every commit:
when it happened, and how large the log was after it. Slow because a load has to last for a while
before a log that grows for ever differs from one that does not.
"""

import asyncio
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Final

import apsw
import pytest

from tests.engines.sqlite.faulty_vfs import FaultyVfs, FileKind, fail_on, no_fault
from tests.engines.sqlite.store import KIB, Stores, TunedStore, open_beside, pair_in, store_of
from tests.support.world import World
from tidewire.domain.errors import StoreUnavailable
from tidewire.domain.ids import ChatId, UserId
from tidewire.engines.sqlite.database import SqliteOptions
from tidewire.engines.sqlite.readers import ReadGate

LIMIT_BYTES: Final = 1024 * KIB
READ_MS_MAX: Final = 100
SMALL: Final = SqliteOptions(
    checkpoint_bytes=256 * KIB, wal_bytes_max=LIMIT_BYTES, read_ms_max=READ_MS_MAX
)
PATIENCE_S: Final = 60.0
"""A second or two is enough on a machine that does nothing else."""
STALL_S: Final = 0.5
"""Four senders wait for nothing but their commits, so if there is none for this long, something has
held up the writer. A commit takes a few milliseconds, a restart of the log at most fifty more. A
busy disk may stand still for that long once in a while, but not at every restart."""


@dataclass
class Watch:
    """What the commits of a load were like."""

    store: TunedStore
    sizes: list[tuple[float, int]] = field(default_factory=list)
    """The instant of each commit, and the size of the log after it."""

    def attach(self) -> None:
        """Look over the shoulder of the checkpointer, who is told the log's size after commits."""
        storage = self.store.sqlite
        tell = storage.checkpointer._wal_grew

        def hook(database: apsw.Connection, name: str, pages: int) -> int:
            self.sizes.append((time.monotonic(), pages * (4096 + 24)))
            return tell(database, name, pages)

        storage._database.set_wal_hook(hook)

    @property
    def stalls(self) -> int:
        """How often there was no commit for a long time, though senders waited for one."""
        return sum(later - sooner > STALL_S for (sooner, _), (later, _) in pairwise(self.sizes))

    @property
    def log_bytes_max(self) -> int:
        return max(size for _, size in self.sizes)

    def written_bytes(self) -> list[tuple[float, int]]:
        """The instant of each commit, and what all commits up to it wrote into the log."""
        total, before, steps = 0, 0, []
        for at, size in self.sizes:
            total += size - before if size > before else size
            before = size
            steps.append((at, total))
        return steps

    def written_bytes_max(self, window_s: float) -> int:
        """The most that was written within any window of this length."""
        steps = self.written_bytes()
        first, most = 0, 0
        for at, total in steps:
            while steps[first][0] < at - window_s:
                first += 1
            most = max(most, total - steps[first][1])
        return most


@asynccontextmanager
async def load_on(world: World, chat: ChatId, sender: UserId) -> AsyncIterator[Watch]:
    """Four senders that send without a pause, as long as this is open."""
    watch = Watch(store_of(world))
    watch.attach()
    stopping = False

    async def send() -> None:
        while not stopping:
            drafts = [world.draft(chat, sender, "x" * 2_000) for _ in range(8)]
            await world.append(*drafts)

    senders = [asyncio.create_task(send()) for _ in range(4)]
    try:
        yield watch
    finally:
        stopping = True
        await asyncio.gather(*senders)


async def until(is_so: Callable[[], bool]) -> None:
    """Look again and again, while a load runs in the same loop."""
    deadline = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < deadline, "it did not happen in time"
        await asyncio.sleep(0.005)


def busy_query(length_ms: int) -> Callable[[apsw.Connection], int]:
    """A catch-up that reads page after page in one transaction for this long."""

    def query(database: apsw.Connection) -> int:
        pages = 0
        deadline = time.monotonic() + length_ms / 1000
        while time.monotonic() < deadline:
            database.execute("SELECT content FROM messages ORDER BY position LIMIT 20").fetchall()
            time.sleep(0.001)
            pages += 1
        return pages

    return query


def overlong_reads(
    gate: ReadGate, wait_s: float, monkeypatch: pytest.MonkeyPatch
) -> Callable[[], int]:
    """How often a read from now on was open for as long as a restart waits for it."""
    enter, leave, release = gate.enter, gate.leave, gate.release
    released_s: list[float] = []
    opened_s: dict[int, float] = {}
    waits: list[int] = []

    def noted_enter(timeout_s: float) -> None:
        asked_s = time.monotonic()
        enter(timeout_s)
        # One that was held back counts as open when it is let in, and not when it wakes up.
        let_in_s = next((at_s for at_s in released_s if at_s >= asked_s), asked_s)
        opened_s[threading.get_ident()] = let_in_s

    def noted_leave() -> None:
        leave()
        waits.append(int((time.monotonic() - opened_s.pop(threading.get_ident())) / wait_s))

    def noted_release() -> None:
        released_s.append(time.monotonic())
        release()

    monkeypatch.setattr(gate, "enter", noted_enter)
    monkeypatch.setattr(gate, "leave", noted_leave)
    monkeypatch.setattr(gate, "release", noted_release)
    return lambda: sum(waits)


@pytest.mark.slow
async def test_log_stays_bounded_when_reads_of_this_process_overlap(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = await stores.open(SMALL)
    chat, one, _ = await pair_in(world)
    storage = store_of(world).sqlite
    turn_s = READ_MS_MAX / 1000
    overlong = overlong_reads(storage._readers.gate, 1.5 * turn_s, monkeypatch)
    reads_s: list[list[float]] = [[] for _ in range(6)]
    stopping = False

    async def read(mine: list[float]) -> None:
        while not stopping:
            begun = time.monotonic()
            assert await storage._readers.read(busy_query(READ_MS_MAX * 3 // 4)) > 0
            mine.append(time.monotonic() - begun)

    restarts = storage.checkpointer.restarts
    readers = [asyncio.create_task(read(mine)) for mine in reads_s]
    async with load_on(world, chat, one) as watch:
        await until(lambda: storage.checkpointer.restarts >= restarts + 20)
        stopping = True
        await asyncio.gather(*readers)

    # After the limit is passed: a passive checkpoint, the wait for open reads (at most 1.5 times
    # what a read may take), another checkpoint, the writer's turn. Commits go on all that time,
    # which is a fifth of a second here; on a machine that has other things to do, let it be one.
    bound = LIMIT_BYTES + SMALL.checkpoint_bytes + watch.written_bytes_max(window_s=1.0)
    assert watch.log_bytes_max <= bound
    assert watch.log_bytes_max < watch.written_bytes()[-1][1] / 3, "it only grows"
    assert watch.stalls <= 5, "restarts hold up commits"
    # Six readers share three connections, so two turns; each is held back by one restart at most.
    usual_s = 2 * (turn_s + 1.5 * turn_s)
    assert median(taken_s for mine in reads_s for taken_s in mine) < 2 * usual_s
    assert min(len(mine) for mine in reads_s) >= 3, "a reader starved"
    # When the load is over, nobody is held back.
    await until(lambda: not storage._readers.gate._held)
    # None, unless the machine is so busy that a read, which ends by itself after half of that time,
    # outlasts the wait for it.
    assert storage.checkpointer.restarts_pinned <= 2 + overlong()


@pytest.mark.slow
async def test_log_stays_bounded_when_another_process_reads_without_a_pause(
    stores: Stores,
) -> None:
    world = await stores.open(SMALL)
    chat, one, _ = await pair_in(world)
    checkpointer = store_of(world).sqlite.checkpointer
    with short_reads_of_another_process(store_of(world).path):
        async with load_on(world, chat, one) as watch:
            await until(lambda: watch.written_bytes()[-1:] > [(0.0, 0)])
            # A log that only grew would be as large as what was written, however long that is. On
            # a busy machine the first restarts come late, and much is written until then.
            await until(
                lambda: (
                    checkpointer.restarts >= 2
                    and watch.written_bytes()[-1][1]
                    > max(30 * LIMIT_BYTES, 2 * watch.log_bytes_max)
                )
            )
    assert watch.stalls <= max(1, checkpointer.restarts // 4)


@pytest.mark.slow
async def test_log_is_restarted_on_a_slow_disk_while_another_process_reads(
    stores: Stores, vfs: FaultyVfs
) -> None:
    """Each sync takes longer than a restart waits for reads: copying is not waiting."""
    options = SqliteOptions(
        checkpoint_bytes=256 * KIB, wal_bytes_max=LIMIT_BYTES, read_ms_max=READ_MS_MAX, vfs=vfs.name
    )
    world = await stores.open(options)
    chat, one, _ = await pair_in(world)
    await world.send(chat, one)
    checkpointer = store_of(world).sqlite.checkpointer

    def slow_database(kind: FileKind, size_bytes: int) -> None:
        if kind is FileKind.DATABASE:
            time.sleep(0.06)

    with short_reads_of_another_process(store_of(world).path):
        vfs.before_sync = slow_database
        async with load_on(world, chat, one):
            await until(lambda: checkpointer.restarts >= 5)


READ_WITHOUT_A_PAUSE: Final = """
import sys, time, apsw
database = apsw.Connection(sys.argv[1])
database.set_busy_timeout(5_000)
while True:
    database.execute("BEGIN")
    database.execute("SELECT count(*) FROM (SELECT 1 FROM messages LIMIT 100)").fetchall()
    time.sleep(0.005)
    database.execute("COMMIT")
    print("read", flush=True)
"""


@contextmanager
def short_reads_of_another_process(path: Path) -> Iterator[None]:
    """What a verification does: one short read transaction right after the other."""
    with subprocess.Popen(
        [sys.executable, "-c", READ_WITHOUT_A_PAUSE, str(path)], stdout=subprocess.PIPE, text=True
    ) as reader:
        assert reader.stdout is not None
        assert reader.stdout.readline() == "read\n"
        # Nobody listens any more; what it still says goes nowhere.
        drain = threading.Thread(target=reader.stdout.read, daemon=True)
        drain.start()
        try:
            yield
        finally:
            reader.kill()
            drain.join()


@pytest.mark.slow
async def test_restart_leaves_little_to_do_for_the_writer(stores: Stores, vfs: FaultyVfs) -> None:
    # Method: a read pins the log until it is several limits long, so a lot has to be copied when
    # the read ends. Who writes it into the database tells who had to wait for it.
    options = SqliteOptions(
        checkpoint_bytes=256 * KIB, wal_bytes_max=LIMIT_BYTES, read_ms_max=20_000, vfs=vfs.name
    )
    world = await stores.open(options)
    chat, one, _ = await pair_in(world)
    await world.send(chat, one)
    storage = store_of(world).sqlite
    copied: dict[str, int] = {"tidewire-writer": 0, "tidewire-checkpoint": 0}

    def count(kind: FileKind, size_bytes: int) -> None:
        if kind is FileKind.DATABASE:
            copied[threading.current_thread().name] += size_bytes

    begun, let_go = threading.Event(), threading.Event()

    def pin(database: apsw.Connection) -> None:
        database.execute("SELECT count(*) FROM messages").fetchall()
        begun.set()
        assert let_go.wait(20)

    pinned = asyncio.create_task(storage._readers.read(pin))
    await asyncio.to_thread(begun.wait, 20)
    try:
        async with load_on(world, chat, one):
            await until(lambda: storage.checkpointer.wal_bytes > 6 * LIMIT_BYTES)
        vfs.before_write = count
        let_go.set()
        # Little is written meanwhile: under load a starved thread may be overtaken as it copies.
        async with asyncio.timeout(PATIENCE_S):
            while storage.checkpointer.restarts < 1:
                await world.send(chat, one)
        vfs.before_write = no_fault
    finally:
        let_go.set()
        await pinned
    assert copied["tidewire-checkpoint"] > 4 * copied["tidewire-writer"], copied


@pytest.mark.slow
async def test_log_is_restarted_when_checkpoints_meet_commits(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    # SQLite says busy to a checkpoint that looks at the log while a commit writes its head. That
    # is rare; here it is so every time. It is not a pinned log, which would be left alone.
    world = await stores.open(SMALL)
    chat, one, _ = await pair_in(world)
    checkpointer = store_of(world).sqlite.checkpointer
    monkeypatch.setattr(checkpointer, "_database", BusyDatabase(checkpointer._database))
    async with load_on(world, chat, one):
        await until(lambda: checkpointer.restarts >= 3)
    assert checkpointer.restarts_pinned == 0
    monkeypatch.undo()


class BusyDatabase:
    def __init__(self, database: apsw.Connection) -> None:
        self.close = database.close

    def wal_checkpoint(self, *, mode: int) -> None:
        raise apsw.BusyError("database is locked")


def test_gate_holds_no_read_back_twice() -> None:
    gate = ReadGate()
    assert gate.hold(timeout_s=0)
    entered = threading.Event()

    def read() -> None:
        gate.enter(timeout_s=20)
        entered.set()

    reader = threading.Thread(target=read)
    reader.start()
    while not gate._waiting:
        assert not entered.is_set()
    gate.release()
    # However fast the next one comes, the read that has waited goes first.
    assert not gate.hold(timeout_s=0)
    assert entered.wait(20)
    gate.leave()
    assert gate.hold(timeout_s=0)
    reader.join()


def test_gate_lets_a_read_in_when_it_has_waited_long_enough() -> None:
    gate = ReadGate()
    assert gate.hold(timeout_s=0)
    gate.enter(timeout_s=0)
    gate.release()
    assert not gate.hold(timeout_s=0)
    gate.leave()
    assert gate.hold(timeout_s=0)


@pytest.mark.slow
async def test_log_is_restarted_when_a_foreign_reader_has_left(stores: Stores) -> None:
    world = await stores.open(SMALL)
    chat, one, _ = await pair_in(world)
    await world.send(chat, one)
    store = store_of(world)
    checkpointer = store.sqlite.checkpointer
    foreign = open_beside(store.path)
    foreign.execute("BEGIN")
    foreign.execute("SELECT count(*) FROM messages").fetchall()
    async with load_on(world, chat, one) as watch:
        await until(lambda: checkpointer.restarts_pinned >= 3 and store.wal_bytes() > 2**21)
        assert checkpointer.restarts == 0
        pinned_bytes = store.wal_bytes()
        assert watch.stalls < checkpointer.restarts_pinned, "a foreign reader holds up commits"
        foreign.execute("COMMIT")
        foreign.close()
        # The log's file is cut back to its limit by the first commit after the restart.
        await until(lambda: checkpointer.restarts >= 3)
        await until(lambda: store.wal_bytes() < pinned_bytes)
    await until(lambda: store.wal_bytes() <= 4 * LIMIT_BYTES)


async def test_a_read_is_stopped_and_pins_nothing_when_it_takes_too_long(stores: Stores) -> None:
    world = await stores.open(SMALL)
    chat, one, _ = await pair_in(world)
    await world.send(chat, one)
    store = store_of(world)

    def endless(database: apsw.Connection) -> object:
        database.execute("SELECT count(*) FROM messages").fetchall()
        return database.execute(
            "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n)"
            " SELECT count(*) FROM n"
        ).fetchall()

    begun = time.monotonic()
    reads = [store.sqlite._readers.read(endless) for _ in range(SMALL.readers)]
    outcomes = await asyncio.gather(*reads, return_exceptions=True)
    taken_s = time.monotonic() - begun
    assert [type(outcome) for outcome in outcomes] == [StoreUnavailable] * SMALL.readers
    assert "took too long" in str(outcomes[0])
    assert READ_MS_MAX / 1000 <= taken_s < 5
    # Somebody else can restart the log at once: no read transaction is left open.
    await world.send(chat, one)
    foreign = open_beside(store.path)
    foreign.set_busy_timeout(0)
    foreign.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_RESTART)
    foreign.close()
    # The connections are as good as new.
    assert len(await world.messages(one, chat)) == 2


async def test_a_read_that_asks_many_short_questions_is_stopped_as_well(stores: Stores) -> None:
    world = await stores.open(SqliteOptions(read_ms_max=20))
    chat, one, _ = await pair_in(world)
    await world.send(chat, one)

    def endless(database: apsw.Connection) -> None:
        while True:
            database.execute("SELECT count(*) FROM messages").fetchall()

    with pytest.raises(StoreUnavailable, match="took too long"):
        await store_of(world).sqlite._readers.read(endless)


async def test_commits_go_on_while_a_checkpoint_waits_for_the_disk(
    stores: Stores, vfs: FaultyVfs
) -> None:
    world = await stores.open(SqliteOptions(checkpoint_bytes=64 * KIB, vfs=vfs.name))
    chat, one, _ = await pair_in(world)
    begun, let_go = threading.Event(), threading.Event()

    def slow_database(kind: FileKind, size_bytes: int) -> None:
        if kind is FileKind.DATABASE:
            begun.set()
            assert let_go.wait(30)

    vfs.before_sync = slow_database
    try:
        while not begun.is_set():
            await world.send_many(chat, one, 20)
        # The checkpoint stands in its sync; everything below happens meanwhile.
        syncs = vfs.syncs[FileKind.DATABASE]
        heads = [await world.send_many(chat, one, 20) for _ in range(20)]
        assert len(await world.messages(one, chat)) == heads[-1]
        assert vfs.syncs[FileKind.DATABASE] == syncs
    finally:
        let_go.set()
    assert store_of(world).doubts == []


async def test_checkpoints_copy_the_log_without_being_asked(stores: Stores, vfs: FaultyVfs) -> None:
    world = await stores.open(SqliteOptions(checkpoint_bytes=64 * KIB, vfs=vfs.name))
    chat, one, _ = await pair_in(world)
    before = vfs.syncs[FileKind.DATABASE]
    await world.send_many(chat, one, 200)
    await until(lambda: vfs.syncs[FileKind.DATABASE] > before)


async def test_a_checkpoint_that_finds_the_disk_full_is_tried_again(
    stores: Stores, vfs: FaultyVfs
) -> None:
    world = await stores.open(SqliteOptions(checkpoint_bytes=64 * KIB, vfs=vfs.name))
    chat, one, _ = await pair_in(world)
    checkpointer = store_of(world).sqlite.checkpointer
    vfs.before_write = fail_on(FileKind.DATABASE, apsw.FullError)
    head = 0
    while checkpointer.checkpoints_failed == 0:
        head = await world.send_many(chat, one, 50)
    vfs.before_write = no_fault
    before = vfs.syncs[FileKind.DATABASE]
    while vfs.syncs[FileKind.DATABASE] == before:
        head = await world.send_many(chat, one, 50)
    assert len(await world.messages(one, chat)) == head
    assert store_of(world).doubts == []
