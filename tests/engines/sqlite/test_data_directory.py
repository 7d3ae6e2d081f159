"""The data directory: one process at a time, and a clear sentence when it cannot be used.

Slow where a second process is needed: it takes a while to start.
"""

import asyncio
import errno
import fcntl
import os
import re
import signal
import stat
import time
from pathlib import Path

import pytest

from tests.engines.sqlite import child
from tests.engines.sqlite.store import Stores, pair_in, store_of
from tidewire.domain.errors import StoreUnusable
from tidewire.engines.sqlite import SqliteStorage
from tidewire.engines.sqlite.lockfile import LOCK_NAME, DataDirectoryLock


@pytest.mark.slow
async def test_data_directory_is_refused_while_another_process_holds_it(tmp_path: Path) -> None:
    with child.start("hold", tmp_path) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "open\n"
        with pytest.raises(StoreUnusable, match=rf"in use by process {holder.pid}\b"):
            await SqliteStorage.open(tmp_path)
        # The refused one did not disturb it, and left no trace in the lock file.
        assert (tmp_path / LOCK_NAME).read_text() == f"{holder.pid}\n"
        holder.send_signal(signal.SIGKILL)
        holder.wait()
    storage = await SqliteStorage.open(tmp_path)
    assert (tmp_path / LOCK_NAME).read_text() == f"{os.getpid()}\n"
    await storage.close()


async def test_data_directory_is_refused_when_it_is_open_in_this_process(stores: Stores) -> None:
    world = await stores.open()
    chat, one, _ = await pair_in(world)
    with pytest.raises(StoreUnusable, match=rf"in use by process {os.getpid()}\b"):
        await SqliteStorage.open(store_of(world).directory)
    assert (await world.send(chat, one)).sequence == 1


async def test_data_directory_is_made_for_its_owner_only(tmp_path: Path) -> None:
    data_dir = tmp_path / "not" / "there"
    storage = await SqliteStorage.open(data_dir)
    await storage.close()
    assert stat.S_IMODE(data_dir.stat().st_mode) == 0o700
    assert stat.S_IMODE((data_dir / LOCK_NAME).stat().st_mode) == 0o600


async def test_data_directory_is_refused_when_it_is_a_file(tmp_path: Path) -> None:
    data_dir = tmp_path / "file"
    data_dir.write_text("not a directory")
    with pytest.raises(StoreUnusable, match="is not a directory; name another one"):
        await SqliteStorage.open(data_dir)
    with pytest.raises(StoreUnusable, match="cannot make the data directory"):
        await SqliteStorage.open(data_dir / "below")
    assert data_dir.read_text() == "not a directory"


@pytest.mark.slow
async def test_data_directory_is_refused_when_it_is_read_only(tmp_path: Path) -> None:
    data_dir = tmp_path / "read-only"
    data_dir.mkdir()
    data_dir.chmod(0o555)
    said = await said_without_privileges(data_dir)
    assert re.fullmatch(
        r"StoreUnusable: cannot write to the data directory .*read-only: Permission denied; "
        r"give this user write permission there, or name another directory\n",
        said,
    )
    assert list(data_dir.iterdir()) == []


@pytest.mark.slow
async def test_data_directory_is_refused_when_it_may_not_be_made(tmp_path: Path) -> None:
    parent = tmp_path / "read-only"
    parent.mkdir()
    parent.chmod(0o555)
    said = await said_without_privileges(parent / "new")
    assert re.fullmatch(
        r"StoreUnusable: cannot make the data directory .*new: Permission denied; .*\n", said
    )


@pytest.mark.slow
async def test_database_file_is_refused_when_it_is_read_only(tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    storage = await SqliteStorage.open(data_dir)
    await storage.close()
    (data_dir / "tidewire.db").chmod(0o444)
    before = (data_dir / "tidewire.db").read_bytes()
    said = await said_without_privileges(data_dir)
    assert re.fullmatch(r"StoreUnusable: .*tidewire\.db is read-only; give this user .*\n", said)
    assert (data_dir / "tidewire.db").read_bytes() == before


async def said_without_privileges(data_dir: Path) -> str:
    """What a process says that is bound by permissions and tries to open the store."""
    process = child.start("try-to-open", data_dir)
    said, complaints = await asyncio.to_thread(process.communicate, timeout=30)
    assert complaints == ""
    return said


def test_lock_can_be_taken_again_when_it_was_released(tmp_path: Path) -> None:
    with DataDirectoryLock(tmp_path) as lock:
        lock.release()
        lock.release()
        with DataDirectoryLock(tmp_path):
            pass


def test_lock_is_free_for_others_between_two_tries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two starts wait for a process that looks at the log: neither keeps the other from it."""
    DataDirectoryLock(tmp_path).release()
    looking, other = (os.open(tmp_path / LOCK_NAME, os.O_RDWR) for _ in range(2))
    fcntl.flock(looking, fcntl.LOCK_SH)
    naps = 0

    def nap(seconds: float) -> None:
        nonlocal naps
        naps += 1
        os.close(looking)
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        fcntl.flock(other, fcntl.LOCK_UN)

    monkeypatch.setattr(time, "sleep", nap)
    with DataDirectoryLock(tmp_path):
        os.close(other)
    assert naps == 1


def test_lock_is_refused_when_the_file_system_knows_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_locks(file: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", no_locks)
    with pytest.raises(StoreUnusable, match=r"cannot lock .*: No locks available; .*local disk"):
        DataDirectoryLock(tmp_path)
    monkeypatch.undo()
    DataDirectoryLock(tmp_path).release()


def test_lock_names_nobody_when_its_file_is_empty(tmp_path: Path) -> None:
    with DataDirectoryLock(tmp_path):
        (tmp_path / LOCK_NAME).write_text("")
        with pytest.raises(StoreUnusable, match="in use by process unknown"):
            DataDirectoryLock(tmp_path)
