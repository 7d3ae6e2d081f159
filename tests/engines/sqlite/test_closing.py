"""Closing: what was taken in is answered, the log is folded in, and nothing stays behind.

Slow where a store is opened many times over.
"""

import asyncio
import gc
import os
import threading
from pathlib import Path

import pytest

from tests.engines.sqlite.store import Stores, open_beside, pair_in, store_of
from tidewire.domain.errors import StoreUnavailable, StoreUnusable
from tidewire.engines.sqlite import DATABASE_NAME, SqliteOptions, SqliteStorage
from tidewire.engines.sqlite.lockfile import DataDirectoryLock


async def test_close_answers_everything_that_was_taken_in(stores: Stores) -> None:
    # Small commits, so that many are still to come.
    world = await stores.open(SqliteOptions(commit_writes_max=7))
    chat, one, _ = await pair_in(world)
    await world.send(chat, one)
    storage = world.storage
    writes = [
        asyncio.create_task(storage.append([world.draft(chat, one)], now_ms=world.now()))
        for _ in range(50)
    ]
    reads = [asyncio.create_task(storage.access_chat(one, chat)) for _ in range(50)]
    # One turn of the loop: all of them stand in the queues.
    await asyncio.sleep(0)
    await store_of(world).close()
    assert all(task.done() for task in (*writes, *reads)), "nobody waits for a closed store"
    assert len(await asyncio.gather(*writes)) == 50
    assert all(access.chat.chat_id == chat for access in await asyncio.gather(*reads))
    await store_of(world).open()
    assert len(await world.messages(one, chat)) == 51


async def test_close_folds_the_log_into_the_database(stores: Stores) -> None:
    world = await stores.open()
    chat, one, _ = await pair_in(world)
    await world.send_many(chat, one, 20)
    assert len(await world.messages(one, chat)) == 20
    store = store_of(world)
    assert store.wal_bytes() > 0
    await store.close()
    assert sorted(path.name for path in store.directory.iterdir()) == [
        DATABASE_NAME,
        "tidewire.lock",
    ]
    # One file is everything.
    database = open_beside(store.path)
    assert database.execute("SELECT count(*) FROM messages").get == 20
    database.close()


async def test_close_does_not_wait_for_a_foreign_reader(stores: Stores) -> None:
    world = await stores.open()
    chat, one, _ = await pair_in(world)
    await world.send(chat, one)
    store = store_of(world)
    foreign = open_beside(store.path)
    foreign.execute("BEGIN")
    foreign.execute("SELECT count(*) FROM messages").fetchall()
    await world.send(chat, one)
    await asyncio.wait_for(store.close(), 5)
    foreign.execute("COMMIT")
    foreign.close()
    await store.open()
    assert len(await world.messages(one, chat)) == 2


async def test_calls_are_refused_when_the_store_is_closed(stores: Stores) -> None:
    world = await stores.open()
    chat, one, _ = await pair_in(world)
    storage = world.storage
    await storage.close()
    with pytest.raises(StoreUnavailable, match="the store is closing"):
        await world.send(chat, one)
    with pytest.raises(StoreUnavailable, match="the store is closing"):
        await storage.access_chat(one, chat)
    # The directory is free, and closing again is no offence.
    DataDirectoryLock(store_of(world).directory).release()
    await storage.close()


def open_files() -> list[str]:
    """What this process has open, by name."""
    gc.collect()
    names = []
    for entry in Path("/proc/self/fd").iterdir():
        try:
            names.append(str(entry.readlink()))
        except FileNotFoundError:
            continue  # The handle that lists the others.
    return sorted(name for name in names if name.startswith("/") and "/proc/" not in name)


def our_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("tidewire")]


@pytest.mark.slow
async def test_store_leaves_nothing_open_when_it_is_opened_and_closed_often(
    tmp_path: Path,
) -> None:
    before = open_files()
    handles = len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - sockets and pipes count as well
    for _ in range(50):
        storage = await SqliteStorage.open(tmp_path)
        assert await storage.user_named("nobody") is None
        assert len(our_threads()) >= 3
        await storage.close()
        assert our_threads() == []
    assert open_files() == before
    assert len(os.listdir("/proc/self/fd")) <= handles  # noqa: PTH208


@pytest.mark.parametrize("kind", ["text", "foreign", "damaged", "newer"])
async def test_store_leaves_nothing_open_when_it_is_refused(
    stores: Stores, tmp_path: Path, kind: str
) -> None:
    directory = tmp_path / "data"
    await store_of(await stores.open(directory=directory)).close()
    path = directory / DATABASE_NAME
    if kind == "text":
        path.write_text("text" * 4096)
    elif kind == "damaged":
        content = bytearray(path.read_bytes())
        content[100:200] = bytes(100)
        path.write_bytes(content)
    else:
        database = open_beside(path)
        name = "application_id" if kind == "foreign" else "user_version"
        database.execute(f"PRAGMA {name} = 4711")
        database.close()
    before = open_files()
    kept = []
    for _ in range(3):
        with pytest.raises(StoreUnusable) as refusal:
            await SqliteStorage.open(directory)
        kept.append(refusal)
    assert open_files() == before
    assert our_threads() == []
    # Nobody holds the directory either.
    DataDirectoryLock(directory).release()
