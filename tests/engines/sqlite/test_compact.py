"""Deleted texts are in no file any more: after a checkpoint hardly, after `compact` not at all."""

import asyncio
import os
import shutil
from pathlib import Path
from random import Random

import apsw
import pytest

from tests.engines.sqlite.inspected import verify_file, violated
from tests.engines.sqlite.store import Stores, TunedStore, open_beside, store_of
from tests.support.world import World
from tidewire.domain.errors import StoreUnusable
from tidewire.domain.ids import ChatId, UserId
from tidewire.domain.limits import CONTENT_BYTES_MAX
from tidewire.engines.sqlite import compact as compact_module
from tidewire.engines.sqlite.backup import backup
from tidewire.engines.sqlite.compact import COMPACTING_ENDING, compact
from tidewire.engines.sqlite.copying import Progress, copies_in
from tidewire.engines.sqlite.database import APPLICATION_ID, SqliteOptions, single

SECRET = "xyzzy"
"""Stands in every text that is deleted, and in nothing else."""


def files_with(directory: Path, text: str = SECRET) -> list[str]:
    """The files below a directory that hold a text, whatever part of a file it is in."""
    files = (path for path in directory.rglob("*") if path.is_file())
    return sorted(path.name for path in files if text.encode() in path.read_bytes())


async def closed_with_people(stores: Stores) -> tuple[World, TunedStore, list[UserId]]:
    """A store that holds two people, and is closed."""
    world = await stores.open()
    store = store_of(world)
    people = await world.people(2)
    await store.close()
    return world, store, people


async def deleted_among_others(world: World) -> ChatId:
    """Long and short texts, edited and not, half of them deleted; pages were divided meanwhile."""
    random = Random(7)
    anna, ben = await world.people(2)
    chat = await world.group(anna, ben)
    targets = []
    for number in range(400):
        size = random.choice([10, 80, 700, CONTENT_BYTES_MAX - 20])
        if random.random() < 0.5:
            text = f"{SECRET} {number} ".ljust(size, "s")
            targets.append((await world.send(chat, random.choice([anna, ben]), text)).sequence)
            if random.random() < 0.4:
                author = (await world.messages(anna, chat, targets[-1] - 1))[0].sender_id
                await world.store(world.edit(chat, author, targets[-1], f"edited {text}"[:4000]))
        else:
            await world.send(chat, ben, f"other {number} ".ljust(size, "o"))
    random.shuffle(targets)
    for begin in range(0, len(targets), 16):
        some = targets[begin : begin + 16]
        await world.append(*(world.deletion(chat, anna, target) for target in some))
    return chat


async def checkpointed(world: World) -> None:
    await store_of(world).close()


@pytest.mark.slow
async def test_deleted_text_is_in_no_file_after_a_checkpoint_and_compact(stores: Stores) -> None:
    world = await stores.open()
    store = store_of(world)
    chat = await deleted_among_others(world)
    # The check can fail: the log has what was written before.
    assert "tidewire.db-wal" in files_with(store.directory)
    entries = await world.engine.messages(chat)
    assert SECRET not in "".join(one.content for one in entries)
    await checkpointed(world)
    told: list[tuple[int, int]] = []
    before, after = compact(store.directory, lambda done, total: told.append((done, total)))
    assert after < before
    assert told[-1][0] == told[-1][1]
    assert files_with(store.directory) == []
    assert not (store.directory / f"tidewire.db{COMPACTING_ENDING}").exists()
    assert store.path.stat().st_mode & 0o777 == 0o600
    assert violated(verify_file(store.path, chunk_rows=500)) == []
    await store.open()
    assert await world.engine.messages(chat) == entries


@pytest.mark.slow
async def test_overwriting_is_what_takes_the_text_away(stores: Stores) -> None:
    """Without it a checkpoint leaves most texts in the file; with it, next to nothing."""
    left = {}
    for mode in ("OFF", "ON"):
        world = await stores.open()
        store = store_of(world)
        store.sqlite._database.execute(f"PRAGMA secure_delete = {mode}").fetchall()
        await deleted_among_others(world)
        await checkpointed(world)
        left[mode] = store.path.read_bytes().count(SECRET.encode())
    assert left["OFF"] > 20
    assert left["ON"] <= left["OFF"] // 10, left


async def test_compact_is_refused_while_a_server_uses_the_store(stores: Stores) -> None:
    world = await stores.open()
    with pytest.raises(StoreUnusable, match=f"in use by process {os.getpid()}"):
        compact(store_of(world).directory)


async def test_compact_is_refused_while_another_program_reads(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = await stores.open()
    store = store_of(world)
    await world.people(2)
    await store.close()
    options = SqliteOptions(busy_ms_max=10)
    monkeypatch.setattr(compact_module, "SqliteOptions", lambda: options)
    reader = open_beside(store.path)
    reader.execute("BEGIN; SELECT * FROM users").fetchall()
    before = store.path.read_bytes()
    with pytest.raises(StoreUnusable, match="another program reads"):
        await asyncio.to_thread(compact, store.directory)
    reader.close()
    assert store.path.read_bytes()[100:] == before[100:]
    compact(store.directory)


async def test_compact_is_refused_without_a_store_or_with_another_schema(
    stores: Stores, tmp_path: Path
) -> None:
    with pytest.raises(StoreUnusable, match="there is no database"):
        compact(tmp_path)
    world = await stores.open()
    store = store_of(world)
    await store.close()
    database = open_beside(store.path)
    database.execute("PRAGMA user_version = 3")
    database.close()
    with pytest.raises(StoreUnusable, match="start the server"):
        compact(store.directory)


async def test_compact_is_refused_without_room(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = await stores.open()
    store = store_of(world)
    await store.close()
    usage = shutil.disk_usage(store.directory)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=4096))
    with pytest.raises(StoreUnusable, match="not enough room"):
        compact(store.directory)
    assert {path.name for path in store.directory.iterdir()} == {"tidewire.db", "tidewire.lock"}


async def test_copy_that_is_not_complete_replaces_nothing(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    world, store, people = await closed_with_people(stores)
    write = compact_module._write

    def lose(database: apsw.Connection, partial: Path, progress: Progress) -> None:
        write(database, partial, progress)
        copy = open_beside(partial)
        copy.execute("DELETE FROM users")
        copy.close()

    monkeypatch.setattr(compact_module, "_write", lose)
    with pytest.raises(StoreUnusable, match="not complete"):
        compact(store.directory)
    await store.open()
    assert len(await world.storage.users(people)) == 2


async def test_compact_that_is_stopped_leaves_the_store_as_it_was(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    world, store, people = await closed_with_people(stores)

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(compact_module, "_check_copy", stop)
    with pytest.raises(KeyboardInterrupt):
        compact(store.directory)
    assert {path.name for path in store.directory.iterdir()} == {"tidewire.db", "tidewire.lock"}
    await store.open()
    assert len(await world.storage.users(people)) == 2


async def test_what_an_interrupted_compact_left_is_no_obstacle(stores: Stores) -> None:
    world = await stores.open()
    store = store_of(world)
    people = await world.people(2)
    await store.close()
    (store.directory / f"tidewire.db{COMPACTING_ENDING}").write_bytes(
        store.path.read_bytes()[:5000]
    )
    compact(store.directory)
    await store.open()
    assert len(await world.storage.users(people)) == 2
    assert single(open_beside(store.path), "PRAGMA journal_mode") == "wal"


async def test_copies_of_the_store_are_named(stores: Stores) -> None:
    world = await stores.open()
    store = store_of(world)
    backups = store.directory / "backups"
    backups.mkdir()
    for file in (backups / "before", store.directory / "today.db"):
        backup(store.directory, file)
    (backups / "notes.txt").write_text("nothing")
    other = open_beside(backups / "other.db")
    other.execute("CREATE TABLE foreigners (id)")
    other.close()
    found = copies_in(store.directory, APPLICATION_ID)
    assert found == [backups / "before", store.directory / "today.db"]
