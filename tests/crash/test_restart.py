"""What an earlier process has left behind must be durable before any client is told of it.

A process that is killed while it syncs a commit leaves that commit in the kernel's memory. The next
process finds it in the log, shows it, and answers retries with it. If the power is cut then, before
anything else was synced, it must still be there. After a sync that failed it is worse: the kernel
marks the pages clean and never writes them, so another sync of the same file does not help.
"""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from random import Random

import apsw
import pytest

from tests.crash.power import Machine, write_files
from tests.support.crash_cast import START_MS, Cast, establish, make_cast
from tests.support.crash_snapshot import page_faults, read_snapshot
from tidewire.domain.errors import StoreUnavailable, StoreUnusable
from tidewire.domain.ids import ClientMessageId, MessageId, encode_ulid
from tidewire.domain.messages import Appended, SendMessage
from tidewire.engines.sqlite import SqliteStorage, checkpointer
from tidewire.engines.sqlite.database import DATABASE_NAME, SqliteOptions

SEEDS = 25
CAST: Cast = make_cast(3)


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    directory = tmp_path / "life"
    directory.mkdir()
    machine = Machine(directory)
    yield machine
    machine.close()


@pytest.fixture
def log_written_again(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The engine saves a pinned log itself, not through SQLite: tell the model about it."""
    done: list[Path] = []

    def write_again(path: Path) -> None:
        really_write_again(path)
        machine.written_again(path)
        done.append(path)

    really_write_again = checkpointer._write_again
    monkeypatch.setattr(checkpointer, "_write_again", write_again)
    return done


async def opened(machine: Machine, *, checkpoint_bytes: int = 1 << 20) -> SqliteStorage:
    return await SqliteStorage.open(
        machine.directory,
        options=SqliteOptions(
            vfs=machine.vfs, checkpoint_bytes=checkpoint_bytes, busy_ms_max=10, readers=1
        ),
        on_fatal=lambda why: machine.stop(),
    )


async def closed(storage: SqliteStorage) -> None:
    # The disk is gone by then. A real one would not raise in a close, but ours does.
    with suppress(apsw.IOError):
        await storage.close()


async def sent(storage: SqliteStorage, number: int) -> Appended:
    chat_id, owner, _ = CAST.directs[0]
    send = SendMessage(
        chat_id=chat_id,
        sender_id=owner,
        client_message_id=ClientMessageId(f"{number:032x}"),
        content=f"message {number}",
        message_id=MessageId(f"msg_{encode_ulid(number)}"),
    )
    [outcome] = await storage.append([send], now_ms=START_MS)
    assert isinstance(outcome, Appended)
    return outcome


async def die_with_a_commit_under_way(machine: Machine, *, has_sync_failed: bool = False) -> None:
    """Message 1 is acked; message 2 is written, but the process dies before it is synced, or
    because its sync fails."""
    storage = await opened(machine)
    await establish(storage, CAST)
    await sent(storage, 1)
    if has_sync_failed:
        machine.sync_to_fail = "wal"
    else:
        machine.cut_at(1, "wal sync")
    with pytest.raises(StoreUnusable):
        await sent(storage, 2)
    await closed(storage)
    machine.go_on()


def kept_after_cuts(machine: Machine, directory: Path) -> list[list[str]]:
    """The messages that are stored after each of many cuts at this instant."""
    machine.stop()
    kept = []
    for seed in range(SEEDS):
        home = directory / f"cut-{seed}"
        write_files(home, machine.left_by_cut(Random(seed)))
        assert page_faults(home) == []
        kept.append([message.content for message in read_snapshot(home).messages])
    return kept


def test_retry_answered_after_a_kill_survives_the_power(machine: Machine, tmp_path: Path) -> None:
    async def live() -> None:
        await die_with_a_commit_under_way(machine)
        storage = await opened(machine)
        assert (await sent(storage, 2)).deduplicated, "the kill has hit too early"
        machine.stop()
        await closed(storage)

    asyncio.run(live())
    assert kept_after_cuts(machine, tmp_path) == [["message 1", "message 2"]] * SEEDS


def test_message_shown_after_a_kill_survives_the_power(machine: Machine, tmp_path: Path) -> None:
    async def live() -> None:
        await die_with_a_commit_under_way(machine)
        storage = await opened(machine)
        chat_id, reader, _ = CAST.directs[0]
        page = await storage.messages_after(reader, chat_id, 0, count_max=10, bytes_max=1000)
        assert [message.content for message in page.messages] == ["message 1", "message 2"]
        machine.stop()
        await closed(storage)

    asyncio.run(live())
    assert kept_after_cuts(machine, tmp_path) == [["message 1", "message 2"]] * SEEDS


@pytest.mark.parametrize("has_sync_failed", [False, True])
def test_commits_beside_a_foreign_reader_survive_the_power(
    machine: Machine, log_written_again: list[Path], tmp_path: Path, *, has_sync_failed: bool
) -> None:
    """A backup that runs during the restart of the server keeps the log from being restarted."""

    async def live() -> None:
        await die_with_a_commit_under_way(machine, has_sync_failed=has_sync_failed)
        reader = apsw.Connection(str(machine.directory / DATABASE_NAME), vfs=machine.vfs)
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM messages").fetchall()
        storage = await opened(machine)
        assert (await sent(storage, 2)).deduplicated, "the kill has hit too early"
        await sent(storage, 3)
        machine.stop()
        reader.close()
        await closed(storage)

    asyncio.run(live())
    assert len(log_written_again) == 1
    expected = ["message 1", "message 2", "message 3"]
    assert kept_after_cuts(machine, tmp_path) == [expected] * SEEDS


@pytest.mark.usefixtures("log_written_again")
def test_retry_answered_beside_a_foreign_checkpoint_survives_the_power(
    machine: Machine, tmp_path: Path
) -> None:
    """Another program has begun a checkpoint and not synced the log yet: ours finds it busy."""
    has_begun, may_end = threading.Event(), threading.Event()

    def wait_if_foreign(kind: str, phase: str) -> bool:
        if threading.current_thread() is foreign:
            has_begun.set()
            may_end.wait()
        return False

    def checkpoint() -> None:
        shell = apsw.Connection(str(machine.directory / DATABASE_NAME), vfs=machine.vfs)
        with suppress(apsw.IOError):
            shell.execute("SELECT count(*) FROM messages").fetchall()
            shell.wal_checkpoint()
        shell.close()

    foreign = threading.Thread(target=checkpoint)
    machine.lie = wait_if_foreign

    async def live() -> None:
        await die_with_a_commit_under_way(machine)
        foreign.start()
        has_begun.wait()
        storage = await opened(machine)
        assert (await sent(storage, 2)).deduplicated, "the kill has hit too early"
        machine.stop()
        may_end.set()
        foreign.join()
        await closed(storage)

    asyncio.run(live())
    assert kept_after_cuts(machine, tmp_path) == [["message 1", "message 2"]] * SEEDS


def test_commits_after_a_failed_sync_of_the_log_survive_the_power(
    machine: Machine, tmp_path: Path
) -> None:
    async def live() -> None:
        await die_with_a_commit_under_way(machine, has_sync_failed=True)
        storage = await opened(machine)
        assert (await sent(storage, 2)).deduplicated, "the log no longer shows what it held"
        await sent(storage, 3)
        machine.stop()
        await closed(storage)

    asyncio.run(live())
    expected = ["message 1", "message 2", "message 3"]
    assert kept_after_cuts(machine, tmp_path) == [expected] * SEEDS


def test_commits_after_a_failed_sync_of_the_database_survive_the_power(
    machine: Machine, tmp_path: Path
) -> None:
    async def live() -> None:
        storage = await opened(machine, checkpoint_bytes=1)
        await establish(storage, CAST)
        await sent(storage, 1)
        machine.sync_to_fail = "database"
        number = 1
        with suppress(StoreUnusable, StoreUnavailable):
            while number < 1_000:
                await sent(storage, number + 1)
                number += 1
        assert machine.is_off, "the failed sync went unnoticed"
        await closed(storage)
        machine.go_on()
        storage = await opened(machine)
        # The message under way may be stored after all.
        head = (await sent(storage, 1_000)).prev_sequence
        assert head in (number, number + 1)
        machine.stop()
        await closed(storage)
        expected.extend([*range(1, head + 1), 1_000])

    expected: list[int] = []
    asyncio.run(live())
    kept = [f"message {number}" for number in expected]
    assert kept_after_cuts(machine, tmp_path) == [kept] * SEEDS
