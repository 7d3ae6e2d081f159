"""A disk that cannot sync: the process ends, and nothing was acknowledged that is not on it.

Slow where a process has to die of it.
"""

import asyncio
from dataclasses import dataclass
from pathlib import Path

import apsw
import pytest

from tests.engines.sqlite import child
from tests.engines.sqlite.faulty_vfs import (
    FaultyVfs,
    FileKind,
    fail_on,
    no_fault,
    sync_error,
)
from tests.engines.sqlite.store import KIB, Stores, pair_in, store_of
from tests.support.outcomes import chained
from tidewire.domain.errors import StoreUnusable
from tidewire.domain.ids import ChatId, UserId
from tidewire.engines.sqlite import SqliteOptions
from tidewire.engines.sqlite.lockfile import LOCK_NAME
from tidewire.ports.storage import EXIT_STORE_IN_DOUBT


@dataclass
class LastWords:
    chat_id: ChatId
    sender: UserId
    acknowledged: list[int]
    complaint: str
    exit_code: int


async def last_words(mode: str, data_dir: Path, *, is_mute: bool = False) -> LastWords:
    """Let a process send until it ends."""
    return await await_end(child.start(mode, data_dir, is_mute=is_mute))


async def await_end(process: child.Child) -> LastWords:
    said, complaint = await asyncio.to_thread(process.communicate, timeout=50)
    names, *sequences = said.splitlines()
    chat_id, sender = names.split()
    acknowledged = list(map(int, sequences))
    return LastWords(
        ChatId(chat_id), UserId(sender), acknowledged, complaint or "", process.returncode
    )


@pytest.mark.slow
async def test_process_ends_when_a_commit_cannot_be_synced(stores: Stores, tmp_path: Path) -> None:
    words = await last_words("send-wal-fails", tmp_path)
    assert words.exit_code == EXIT_STORE_IN_DOUBT == 74
    assert words.complaint.startswith("tidewire: a commit failed and its outcome is unknown (")
    assert words.complaint.endswith("start again: everything acknowledged is still there\n")
    assert words.complaint.count("\n") == 1
    assert words.acknowledged == list(range(1, child.HEALTHY_SENDS + 1))
    await check_acknowledged(stores, tmp_path, words)


@pytest.mark.slow
async def test_process_ends_when_a_checkpoint_cannot_be_synced(
    stores: Stores, tmp_path: Path
) -> None:
    words = await last_words("send-database-fails", tmp_path)
    assert words.exit_code == EXIT_STORE_IN_DOUBT
    assert words.complaint.startswith("tidewire: the database could not be written (")
    assert words.complaint.count("\n") == 1
    assert len(words.acknowledged) >= child.HEALTHY_SENDS
    await check_acknowledged(stores, tmp_path, words)


@pytest.mark.slow
async def test_process_ends_when_it_can_tell_nobody_why(stores: Stores, tmp_path: Path) -> None:
    words = await last_words("send-wal-fails", tmp_path, is_mute=True)
    assert words.exit_code == EXIT_STORE_IN_DOUBT
    assert words.complaint == ""
    # Whatever file has the number of standard error now, nothing was written to it.
    assert (tmp_path / LOCK_NAME).read_text().strip().isdecimal()
    await check_acknowledged(stores, tmp_path, words)


@pytest.mark.slow
async def test_process_ends_when_nobody_reads_what_it_complains_of(
    stores: Stores, tmp_path: Path
) -> None:
    process = child.start("send-wal-fails", tmp_path)
    assert process.stderr is not None
    process.stderr.close()
    words = await await_end(process)
    assert words.exit_code == EXIT_STORE_IN_DOUBT
    await check_acknowledged(stores, tmp_path, words)


async def check_acknowledged(stores: Stores, data_dir: Path, words: LastWords) -> None:
    """Everything acknowledged is there, and the store goes on."""
    world = await stores.open(directory=data_dir)
    found = await world.messages(words.sender, words.chat_id)
    assert chained(found)
    sequences = [message.sequence for message in found]
    assert sequences[: len(words.acknowledged)] == words.acknowledged
    # What was in the failed commit may be there as well, but not more than that one message.
    assert len(sequences) <= len(words.acknowledged) + 1
    answer = await world.send(words.chat_id, words.sender, "after", key=child.UNUSED_KEY)
    assert answer.sequence == len(found) + 1


@pytest.mark.parametrize("operation", ["sync", "write"])
async def test_nothing_more_is_written_when_a_commit_is_in_doubt(
    stores: Stores, vfs: FaultyVfs, operation: str
) -> None:
    world = await stores.open(SqliteOptions(vfs=vfs.name))
    chat, one, _ = await pair_in(world)
    await world.send(chat, one)
    store = store_of(world)
    world.new_commits()
    if operation == "sync":
        vfs.before_sync = fail_on(FileKind.WAL, sync_error)
    else:
        vfs.before_write = fail_on(FileKind.WAL, write_error)
    with pytest.raises(StoreUnusable, match="its outcome is unknown"):
        await world.send(chat, one)
    [doubt] = store.doubts
    # The disk is well again, but what it did meanwhile nobody knows: the real handler has ended
    # the process by now, and with this one nothing is acknowledged any more.
    vfs.before_sync = vfs.before_write = no_fault
    syncs = dict(vfs.syncs)
    with pytest.raises(StoreUnusable, match="its outcome is unknown"):
        await world.send(chat, one)
    assert vfs.syncs == syncs
    assert world.new_commits() == []
    assert store.doubts == [doubt]


def write_error() -> Exception:
    return apsw.exception_for(apsw.SQLITE_IOERR_WRITE)


async def test_fatal_handler_is_told_when_a_checkpoint_cannot_be_synced(
    stores: Stores, vfs: FaultyVfs
) -> None:
    world = await stores.open(SqliteOptions(vfs=vfs.name, checkpoint_bytes=64 * KIB))
    chat, one, _ = await pair_in(world)
    vfs.before_sync = fail_on(FileKind.DATABASE, sync_error)
    store = store_of(world)
    for _ in range(100):
        await world.send_many(chat, one, 20)
        if store.doubts:
            break
    [doubt] = store.doubts
    assert "check the disk" in doubt
    vfs.before_sync = no_fault
