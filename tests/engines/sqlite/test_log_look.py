"""The log is looked at before SQLite opens the database, whichever program opens it (A6).

A damaged log is refused, and not a byte is changed; a torn end is opened without a word.
"""

import asyncio
import fcntl
import os
import shutil
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from random import Random

import apsw
import pytest

from tests.engines.sqlite.inspected import found, verify_file, violated
from tests.engines.sqlite.killed import FRAME_BYTES, HEADER_BYTES, Killed, kill
from tests.engines.sqlite.store import Stores, store_of
from tidewire.domain.errors import StoreUnusable
from tidewire.domain.ids import ChatId
from tidewire.engines.sqlite import SqliteOptions, SqliteStorage, lockfile
from tidewire.engines.sqlite.backup import backup, restore
from tidewire.engines.sqlite.database import connect, connect_reader
from tidewire.engines.sqlite.inspect import open_for_reading
from tidewire.engines.sqlite.lockfile import LOCK_NAME, DataDirectoryLock, look_first
from tidewire.engines.sqlite.log_look import LogDamaged, judge_log
from tidewire.engines.sqlite.repair import SqliteCounterRepair
from tidewire.engines.sqlite.wal import Verdict


@pytest.fixture
async def killed(stores: Stores, tmp_path: Path) -> Killed:
    return await kill(stores, tmp_path / "killed")


async def served(killed: Killed) -> None:
    storage = await SqliteStorage.open(killed.directory)
    await storage.close()


async def counted(killed: Killed) -> None:
    SqliteCounterRepair(killed.path).evidence(ChatId("chat_x"))


async def repaired(killed: Killed) -> None:
    SqliteCounterRepair(killed.path).repair_counter(ChatId("chat_x"), lambda evidence: None)


async def backed_up(killed: Killed) -> None:
    backup(killed.directory, killed.directory.parent / "backup.db")


async def connected(killed: Killed) -> None:
    connect(killed.path, SqliteOptions(), cache_kib=1024).close()


async def read(killed: Killed) -> None:
    connect_reader(killed.path, SqliteOptions()).close()


async def inspected(killed: Killed) -> None:
    open_for_reading(killed.path).close()


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What our code has said; the event loop may complain of a busy machine."""
    return [one.getMessage() for one in caplog.records if one.name.startswith("tidewire")]


OPENERS = [served, counted, repaired, backed_up, connected, read, inspected]


@pytest.mark.parametrize("opener", OPENERS)
@pytest.mark.parametrize("place", [9, HEADER_BYTES + 10 * FRAME_BYTES + 999])
async def test_opener_refuses_a_damaged_log_and_changes_nothing(
    killed: Killed, opener: Callable[[Killed], Awaitable[None]], place: int
) -> None:
    killed.hit(place)
    before = killed.files()
    with pytest.raises(LogDamaged, match=r"is damaged: .*'tidewire recover-log .*killed'"):
        await opener(killed)
    assert killed.files() == before


async def test_refusal_says_what_would_be_lost(killed: Killed) -> None:
    frames = killed.frames
    killed.hit_frame(7)
    with pytest.raises(LogDamaged) as refusal:
        await served(killed)
    assert f"frame 7 of {frames} is not what was written" in str(refusal.value)
    lost = refusal.value.judgement.beyond_transactions
    assert 20 <= lost <= 25
    assert f"would drop {lost} transactions behind it" in str(refusal.value)


async def test_refusal_says_what_a_lost_header_would_cost(killed: Killed) -> None:
    killed.hit(0)
    with pytest.raises(LogDamaged, match=r"its header is not what .* ignore \d+ trans.* pages of"):
        await served(killed)


@pytest.mark.parametrize("place", [9, HEADER_BYTES + 10 * FRAME_BYTES + 999])
async def test_verify_finds_a_damaged_log(killed: Killed, place: int) -> None:
    killed.hit(place)
    before = killed.files()
    report = verify_file(killed.path)
    assert violated(report) == ["database_readable"]
    assert "cannot read the write-ahead log tidewire.db-wal" in found(report)
    assert killed.files() == before


async def test_verify_finds_a_damaged_log_beside_a_file_of_another_name(killed: Killed) -> None:
    killed.hit_frame(7)
    copy = killed.directory.parent / "copy.db"
    shutil.copy(killed.path, copy)
    shutil.copy(killed.wal, f"{copy}-wal")
    assert violated(verify_file(copy)) == ["database_readable"]


async def test_torn_end_is_opened_without_a_word(
    killed: Killed, caplog: pytest.LogCaptureFixture
) -> None:
    killed.tear()
    assert judge_log(killed.path).verdict is Verdict.TORN
    assert violated(verify_file(killed.path)) == []
    world = killed.world
    store = store_of(world)
    await store.close()
    store.directory = killed.directory
    await store.open()
    assert len(await world.messages(killed.one, killed.chat)) == 19
    await store.close()
    assert warnings(caplog) == []


async def test_damage_behind_the_end_of_a_restarted_log_is_none(
    stores: Stores, tmp_path: Path
) -> None:
    killed = await kill(stores, tmp_path / "killed", is_copied=True, messages_after=5)
    judgement = judge_log(killed.path)
    assert judgement.verdict is Verdict.WHOLE
    assert judgement.frames < killed.frames
    for frame in range(judgement.frames + 1, killed.frames, 10):
        killed.hit_frame(frame)
    assert judge_log(killed.path) == judgement
    await served(killed)


async def test_log_that_was_cut_while_it_restarted_is_opened(
    stores: Stores, tmp_path: Path
) -> None:
    """Its header is torn, and everything behind it was copied into the database before."""
    killed = await kill(stores, tmp_path / "killed", is_copied=True)
    killed.hit(9)
    assert judge_log(killed.path).verdict is Verdict.CUT
    await served(killed)
    report = verify_file(killed.path)
    assert (violated(report), report.counts.messages) == ([], 20)


async def test_nothing_is_read_after_an_orderly_end(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = await stores.open()
    directory = store_of(world).directory
    await store_of(world).close()
    monkeypatch.setattr(os, "pread", lambda *_: pytest.fail("there is no log to be read"))
    storage = await SqliteStorage.open(directory)
    await storage.close()


async def test_judgement_agrees_with_what_sqlite_recovers(killed: Killed, tmp_path: Path) -> None:
    """Wherever a byte is hit, and wherever the file ends: the last frame that SQLite takes."""
    random = Random("agreement")
    data = killed.wal.read_bytes()
    for number in range(60):
        changed = bytearray(data)
        place = random.randrange(HEADER_BYTES, len(data))
        if number % 3 == 0:
            del changed[place:]
        else:
            changed[place] ^= 1 << random.randrange(8)
        killed.wal.write_bytes(changed)
        judgement = judge_log(killed.path)
        copy = tmp_path / f"copy-{number}.db"
        shutil.copyfile(killed.path, copy)
        shutil.copyfile(killed.wal, f"{copy}-wal")
        database = apsw.Connection(str(copy))
        database.execute("SELECT count(*) FROM sqlite_schema").fetchall()
        frames, _ = database.wal_checkpoint()
        database.close()
        assert (judgement.committed or 0) == frames


async def test_store_that_does_not_sync_is_opened_with_a_warning(
    killed: Killed, caplog: pytest.LogCaptureFixture
) -> None:
    """A power cut leaves such a log there: what it costs was chosen with the setting."""
    killed.hit_frame(7)
    storage = await SqliteStorage.open(
        killed.directory, options=SqliteOptions(synchronous="NORMAL")
    )
    await storage.close()
    [warning] = warnings(caplog)
    assert "frame 7" in warning


async def test_log_that_cannot_be_read_is_told(
    killed: Killed, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> bytes:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "pread", fail)
    with pytest.raises(StoreUnusable, match=r"cannot read .*tidewire\.db-wal: Input/output error"):
        judge_log(killed.path)


# Who looks, and when.


async def test_log_of_a_running_server_is_not_looked_at(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = await stores.open()
    store = store_of(world)
    assert store.wal_path.exists() or await world.person()
    monkeypatch.setattr(lockfile, "check_log", lambda path: pytest.fail("the server has looked"))
    look_first(store.path)
    assert violated(verify_file(store.path)) == []


async def test_reader_waits_for_a_process_that_is_looking(killed: Killed) -> None:
    """Before the other has looked, it is not known whether the log may be opened."""
    killed.hit_frame(7)
    looking, may_end = threading.Event(), threading.Event()

    def look(path: Path) -> None:
        looking.set()
        may_end.wait(30)

    def hold() -> None:
        DataDirectoryLock(killed.directory, look=look).release()

    holder = threading.Thread(target=hold)
    holder.start()
    await asyncio.to_thread(looking.wait, 30)
    reader = asyncio.create_task(asyncio.to_thread(look_first, killed.path))
    done, _ = await asyncio.wait([reader], timeout=0.1)
    assert not done
    may_end.set()
    with pytest.raises(LogDamaged):
        await reader
    holder.join()


async def test_reader_gives_up_on_a_process_that_looks_for_ever(
    killed: Killed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lockfile, "_LOOK_S_MAX", 0.02)
    with DataDirectoryLock(killed.directory):
        (killed.directory / LOCK_NAME).write_text("1 looking\n")
        with pytest.raises(StoreUnusable, match="busy with the log"):
            look_first(killed.path)


def test_lock_waits_for_those_who_only_look(tmp_path: Path) -> None:
    DataDirectoryLock(tmp_path).release()
    file = os.open(tmp_path / LOCK_NAME, os.O_RDONLY)
    fcntl.flock(file, fcntl.LOCK_SH)
    has_looked = threading.Event()

    def end() -> None:
        has_looked.set()
        os.close(file)

    threading.Timer(0.1, end).start()
    DataDirectoryLock(tmp_path).release()
    assert has_looked.is_set()


def test_lock_does_not_wait_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lockfile, "_LOOK_S_MAX", 0.02)
    DataDirectoryLock(tmp_path).release()
    file = os.open(tmp_path / LOCK_NAME, os.O_RDONLY)
    fcntl.flock(file, fcntl.LOCK_SH)
    with pytest.raises(StoreUnusable, match="is in use by process"):
        DataDirectoryLock(tmp_path)
    os.close(file)


async def test_lock_is_free_again_after_a_refusal(killed: Killed) -> None:
    killed.hit_frame(7)
    for _ in range(2):
        with pytest.raises(LogDamaged):
            DataDirectoryLock(killed.directory)


async def test_restore_beside_a_log_is_refused_as_before(killed: Killed, tmp_path: Path) -> None:
    """It does not open what is there, so it says what is in its way, damaged or not."""
    backup(store_of(killed.world).directory, tmp_path / "backup.db")
    killed.hit_frame(7)
    with pytest.raises(StoreUnusable, match="has a database already"):
        restore(tmp_path / "backup.db", killed.directory)
