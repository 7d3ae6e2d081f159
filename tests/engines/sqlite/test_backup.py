"""Backup of a live store: one consistent moment of it, whole or not at all.

Slow where a load runs meanwhile, or another process makes the backup.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import apsw
import pytest

from tests.engines.sqlite import child
from tests.engines.sqlite.store import Stores, open_beside, pair_in, store_of
from tests.support.world import World
from tidewire.domain.errors import StoreUnusable
from tidewire.domain.ids import ChatId, UserId
from tidewire.engines.sqlite import backup as backup_module
from tidewire.engines.sqlite import copying
from tidewire.engines.sqlite.backup import backup
from tidewire.engines.sqlite.database import single

BROKEN_CHAINS = """
SELECT count(*) FROM (
    SELECT prev_sequence,
        lag(sequence, 1, 0) OVER (PARTITION BY chat_id ORDER BY sequence) AS before
    FROM messages
) WHERE prev_sequence <> before
"""
COUNTERS_OFF = """
SELECT count(*) FROM chats LEFT JOIN chat_counters USING (chat_id)
WHERE sequence_counter IS NOT
    (SELECT coalesce(max(sequence), 0) FROM messages WHERE messages.chat_id = chats.chat_id)
"""
POSITIONS_ABOVE = """
SELECT count(*) FROM delivery_state WHERE last_acked_sequence >
    (SELECT coalesce(max(sequence), 0) FROM messages
     WHERE messages.chat_id = delivery_state.chat_id)
"""


def check_state(path: Path, chat: ChatId) -> int:
    """Check a database from outside; the head of the chat."""
    database = open_beside(path)
    try:
        assert single(database, "PRAGMA integrity_check") == "ok"
        for query in (BROKEN_CHAINS, COUNTERS_OFF, POSITIONS_ABOVE):
            assert single(database, query) == 0, query
        query = "SELECT coalesce(max(sequence), 0), count(*) FROM messages WHERE chat_id = ?"
        rows: list[tuple[Any, ...]] = database.execute(query, (chat,)).fetchall()
        [(head, messages)] = rows
        assert head == messages, "a message is missing"
        return int(head)
    finally:
        database.close()


@asynccontextmanager
async def load_on(world: World, chat: ChatId, sender: UserId) -> AsyncIterator[list[int]]:
    """Senders that send as long as this is open; every sequence that was acknowledged."""
    acknowledged: list[int] = []
    is_busy = asyncio.Event()
    stopping = False

    async def send() -> None:
        while not stopping:
            acknowledged.append((await world.send(chat, sender, "x" * 1_000)).sequence)
            if len(acknowledged) >= 20:
                is_busy.set()

    senders = [asyncio.create_task(send()) for _ in range(4)]
    try:
        await is_busy.wait()
        yield acknowledged
    finally:
        stopping = True
        await asyncio.gather(*senders)


@pytest.mark.slow
async def test_backup_is_of_one_moment_when_messages_come_meanwhile(
    stores: Stores, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Small steps: commits fall between them.
    monkeypatch.setattr(copying, "_STEP_PAGES", 8)
    world = await stores.open()
    chat, one, _ = await pair_in(world)
    await world.append(*[world.draft(chat, one, "x" * 2_000) for _ in range(500)])
    steps: list[tuple[int, int]] = []
    seen: list[int] = []

    def progress(done: int, total: int) -> None:
        steps.append((done, total))
        seen.append(max(acknowledged, default=0))

    async with load_on(world, chat, one) as acknowledged:
        before = max(acknowledged)
        file = tmp_path / "backup.db"
        await asyncio.to_thread(backup, store_of(world).directory, file, progress)
        after = max(acknowledged)
    head = check_state(file, chat)
    assert before <= head <= after + 4
    assert seen[-1] > seen[0], "no message came meanwhile, so this proves nothing"
    assert seen[-1] > head, "what came while pages were copied is not in it"
    assert len(steps) > 10
    assert steps == sorted(steps)
    assert steps[-1][0] == steps[-1][1]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["backup.db", "store-0"]


@pytest.mark.slow
async def test_backup_by_another_process_is_of_one_moment(stores: Stores, tmp_path: Path) -> None:
    world = await stores.open()
    chat, one, _ = await pair_in(world)
    async with load_on(world, chat, one) as acknowledged:
        before = max(acknowledged)
        process = child.start("back-up", store_of(world).directory, str(tmp_path / "backup.db"))
        said, complaint = await asyncio.to_thread(process.communicate, timeout=50)
        after = max(acknowledged)
    assert (said, complaint) == ("done\n", "")
    # Sends that were stored, but whose answers were still on their way, may be in it.
    assert before <= check_state(tmp_path / "backup.db", chat) <= after + 4
    # The store did not notice, and the operator's process took nothing with it.
    assert store_of(world).doubts == []
    await store_of(world).reopen()
    found = await store_of(world).messages(chat)
    assert [message.sequence for message in found] == sorted(acknowledged)


async def test_backup_of_a_stopped_store_is_complete(stores: Stores, tmp_path: Path) -> None:
    world = await stores.open()
    chat, one, _ = await pair_in(world)
    await world.send_many(chat, one, 30)
    store = store_of(world)
    await store.close()
    backup(store.directory, tmp_path / "backup.db")
    assert check_state(tmp_path / "backup.db", chat) == 30
    assert not store.wal_path.exists()


async def test_backup_includes_what_only_the_log_has(stores: Stores, tmp_path: Path) -> None:
    world = await stores.open()
    chat, one, _ = await pair_in(world)
    await world.send_many(chat, one, 30)
    assert store_of(world).wal_bytes() > 0
    backup(store_of(world).directory, tmp_path / "backup.db")
    assert check_state(tmp_path / "backup.db", chat) == 30
    database = open_beside(tmp_path / "backup.db")
    assert single(database, "PRAGMA journal_mode") == "delete", "one file is all of it"
    database.close()


async def test_backup_does_not_overwrite(stores: Stores, tmp_path: Path) -> None:
    world = await stores.open()
    file = tmp_path / "backup.db"
    file.write_text("precious")
    with pytest.raises(StoreUnusable, match=r"backup\.db is there already"):
        backup(store_of(world).directory, file)
    assert file.read_text() == "precious"


async def test_backup_is_refused_when_there_is_nothing_to_back_up(tmp_path: Path) -> None:
    with pytest.raises(StoreUnusable, match="there is no database in"):
        backup(tmp_path, tmp_path / "backup.db")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "tidewire.db").touch()
    with pytest.raises(StoreUnusable, match="is empty; nothing to back up"):
        backup(tmp_path, tmp_path / "backup.db")
    foreign = apsw.Connection(str(tmp_path / "tidewire.db"))
    foreign.execute("CREATE TABLE bookmarks (url)")
    foreign.close()
    with pytest.raises(StoreUnusable, match="some other program"):
        backup(tmp_path, tmp_path / "backup.db")
    assert not (tmp_path / "backup.db").exists()


async def test_backup_is_refused_when_its_directory_is_missing(
    stores: Stores, tmp_path: Path
) -> None:
    world = await stores.open()
    with pytest.raises(StoreUnusable, match=r"there is no directory .*missing"):
        backup(store_of(world).directory, tmp_path / "missing" / "backup.db")


async def test_backup_leaves_nothing_behind_when_it_is_interrupted(
    stores: Stores, tmp_path: Path
) -> None:
    world = await stores.open()
    chat, one, _ = await pair_in(world)
    await world.send(chat, one)
    target = tmp_path / "backups"
    target.mkdir()

    def interrupt(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        backup(store_of(world).directory, target / "backup.db", interrupt)
    assert list(target.iterdir()) == []
    # What a killed one left is in nobody's way.
    (target / "backup.db.partial").write_bytes(b"half a backup" * 999)
    (target / "backup.db.partial-journal").write_bytes(b"half a journal" * 999)
    backup(store_of(world).directory, target / "backup.db")
    assert check_state(target / "backup.db", chat) == 1
    assert [path.name for path in target.iterdir()] == ["backup.db"]


async def test_backup_leaves_nothing_behind_when_the_disk_is_full(
    stores: Stores, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = await stores.open()
    target = tmp_path / "backups"
    target.mkdir()

    def no_room(path: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(copying, "sync_file", no_room)
    with pytest.raises(StoreUnusable, match=r"cannot write .*backup\.db: No space left"):
        backup_module.backup(store_of(world).directory, target / "backup.db")
    assert list(target.iterdir()) == []
