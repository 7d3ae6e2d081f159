"""Migrations and the schema they lead to: all or nothing, forward only, a copy first."""

from importlib.resources import files
from itertools import count
from pathlib import Path
from typing import Any, Final

import apsw
import pytest

from tests.engines.sqlite.store import Stores, open_beside, pair_in, store_of
from tests.support.world import World
from tidewire.domain.errors import StoreUnusable
from tidewire.engines.sqlite import SqliteOptions, SqliteStorage
from tidewire.engines.sqlite.backup import backup, restore
from tidewire.engines.sqlite.database import APPLICATION_ID, connect, single
from tidewire.engines.sqlite.migrate import (
    BACKUPS_NAME,
    Migration,
    migrate,
    migrations,
    read_epoch,
)

KNOWN: Final = migrations()
NEXT: Final = len(KNOWN) + 1
GOOD: Final = Migration(NEXT, f"{NEXT:04d}_good.sql", "CREATE TABLE good (x TEXT) STRICT")
BROKEN: Final = Migration(
    NEXT + 1,
    f"{NEXT + 1:04d}_broken.sql",
    "CREATE TABLE half (x TEXT) STRICT; INSERT INTO no_such_table VALUES (1)",
)


def reconnect(path: Path) -> apsw.Connection:
    return connect(path, SqliteOptions(), cache_kib=1_024)


def content_of(path: Path) -> list[tuple[Any, ...]]:
    """The schema, its number, and every row."""
    database = open_beside(path)
    rows = database.execute("SELECT type, name, sql FROM sqlite_schema ORDER BY name").fetchall()
    tables = [name for kind, name, _ in rows if kind == "table"]
    found: list[tuple[Any, ...]] = [*rows, (single(database, "PRAGMA user_version"),)]
    for table in tables:
        found += database.execute(f"SELECT * FROM {table} ORDER BY 1, 2").fetchall()
    database.close()
    return found


async def closed_store(stores: Stores) -> World:
    world = await stores.open()
    chat, one, _ = await pair_in(world)
    await world.send_many(chat, one, 10)
    await store_of(world).close()
    return world


def copies_in(directory: Path) -> list[Path]:
    return list((directory / BACKUPS_NAME).iterdir())


def test_migrations_are_numbered_without_a_gap() -> None:
    folder = files("tidewire.engines.sqlite").joinpath("migrations")
    names = sorted(entry.name for entry in folder.iterdir() if entry.name.endswith(".sql"))
    assert [migration.name for migration in KNOWN] == names, "a file that no start would run"
    for migration, number in zip(KNOWN, count(1), strict=False):
        assert migration.number == number
        assert migration.name.startswith(f"{number:04d}_")


async def test_new_store_is_marked_as_ours_and_has_no_copy(stores: Stores) -> None:
    world = await closed_store(stores)
    database = open_beside(store_of(world).path)
    assert single(database, "PRAGMA user_version") == len(KNOWN)
    assert single(database, "PRAGMA application_id") == APPLICATION_ID
    database.close()
    assert store_of(world).path.read_bytes()[68:72] == b"TIDE"
    assert not (store_of(world).directory / BACKUPS_NAME).exists()


async def test_tables_are_strict(stores: Stores) -> None:
    world = await closed_store(stores)
    database = open_beside(store_of(world).path)
    tables = database.execute(
        "SELECT name, strict FROM pragma_table_list"
        " WHERE schema = 'main' AND type = 'table' AND name NOT LIKE 'sqlite!_%' ESCAPE '!'"
    ).fetchall()
    database.close()
    assert len(tables) >= 9
    assert [name for name, is_strict in tables if not is_strict] == []


async def test_pragmas_are_in_effect(stores: Stores) -> None:
    world = await stores.open()
    chat, one, _ = await pair_in(world)
    assert pragmas_of_writer(world) == {
        "journal_mode": "wal",
        "synchronous": 2,
        "wal_autocheckpoint": 0,
        "query_only": 0,
        "trusted_schema": 0,
    }
    readers = store_of(world).sqlite._readers
    assert await readers.read(lambda database: int(single(database, "PRAGMA query_only"))) == 1

    def write(database: apsw.Connection) -> None:
        database.execute("DELETE FROM messages")

    await world.send(chat, one)
    with pytest.raises(Exception, match="readonly"):
        await readers.read(write)
    assert len(await world.messages(one, chat)) == 1


def pragmas_of_writer(world: World) -> dict[str, object]:
    # The writer is idle, so its connection may be used here.
    database = store_of(world).sqlite._database
    names = ("journal_mode", "synchronous", "wal_autocheckpoint", "query_only", "trusted_schema")
    return {name: single(database, f"PRAGMA {name}") for name in names}


async def test_log_is_in_use_when_the_store_was_restored(stores: Stores, tmp_path: Path) -> None:
    world = await closed_store(stores)
    backup(store_of(world).directory, tmp_path / "backup.db")
    restore(tmp_path / "backup.db", tmp_path / "restored")
    restored = await stores.open(directory=tmp_path / "restored")
    assert pragmas_of_writer(restored)["journal_mode"] == "wal"


async def test_store_is_refused_when_its_disk_can_have_no_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A network file system without shared memory: SQLite then says which mode it took instead.
    monkeypatch.setattr("tidewire.engines.sqlite.migrate.single", lambda *asked: "delete")
    database = reconnect(tmp_path / "tidewire.db")
    with pytest.raises(StoreUnusable, match="cannot keep a write-ahead log"):
        migrate(database, tmp_path)
    database.close()


async def test_migrations_run_in_one_transaction_after_a_copy(stores: Stores) -> None:
    world = await closed_store(stores)
    path, directory = store_of(world).path, store_of(world).directory
    before = content_of(path)
    also_good = Migration(NEXT + 1, "also_good.sql", "CREATE TABLE better (x TEXT) STRICT")
    database = reconnect(path)
    epoch = read_epoch(database)
    commits: list[str] = []
    database.trace_v2(
        apsw.SQLITE_TRACE_STMT, lambda traced: commits.append(traced["sql"].split()[0])
    )
    done = migrate(database, directory, [*KNOWN, GOOD, also_good])
    database.trace_v2(0, None)
    assert done == [GOOD, also_good]
    assert commits.count("COMMIT") == 1
    assert single(database, "PRAGMA user_version") == NEXT + 1
    assert read_epoch(database) == epoch
    assert database.table_exists("main", "good")
    assert database.table_exists("main", "better")
    [copy] = copies_in(directory)
    assert content_of(copy) == before
    # Again: nothing to do, no further copy.
    assert migrate(database, directory, [*KNOWN, GOOD, also_good]) == []
    assert copies_in(directory) == [copy]
    database.close()


async def test_database_is_as_it_was_when_the_second_migration_fails(stores: Stores) -> None:
    world = await closed_store(stores)
    path, directory = store_of(world).path, store_of(world).directory
    before_bytes, before = path.read_bytes(), content_of(path)
    database = reconnect(path)
    with pytest.raises(StoreUnusable, match=rf"migration {BROKEN.name} failed .*no_such_table"):
        migrate(database, directory, [*KNOWN, GOOD, BROKEN])
    assert not database.in_transaction
    database.close()
    assert path.read_bytes() == before_bytes
    assert content_of(path) == before
    [copy] = copies_in(directory)
    assert content_of(copy) == before
    # The program before the upgrade still runs it.
    storage = await SqliteStorage.open(directory)
    await storage.close()


async def test_database_is_untouched_when_no_copy_can_be_made(stores: Stores) -> None:
    world = await closed_store(stores)
    path, directory = store_of(world).path, store_of(world).directory
    before = path.read_bytes()
    (directory / BACKUPS_NAME).write_text("in the way")
    database = reconnect(path)
    with pytest.raises(StoreUnusable, match=f"cannot make .*{BACKUPS_NAME}"):
        migrate(database, directory, [*KNOWN, GOOD])
    database.close()
    assert path.read_bytes() == before


async def test_migration_runs_to_its_end_when_a_statement_gives_rows(stores: Stores) -> None:
    world = await closed_store(stores)
    database = reconnect(store_of(world).path)
    talkative = Migration(
        NEXT, "talkative.sql", "SELECT 1 UNION SELECT 2; CREATE TABLE late (x TEXT) STRICT"
    )
    migrate(database, store_of(world).directory, [*KNOWN, talkative])
    assert database.table_exists("main", "late")
    database.close()


async def test_migrations_go_forward_only(stores: Stores) -> None:
    world = await closed_store(stores)
    database = reconnect(store_of(world).path)
    migrate(database, store_of(world).directory, [*KNOWN, GOOD])
    with pytest.raises(StoreUnusable, match="newer Tidewire"):
        migrate(database, store_of(world).directory, KNOWN)
    assert database.table_exists("main", "good")
    database.close()
