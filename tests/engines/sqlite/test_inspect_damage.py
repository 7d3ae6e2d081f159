"""What cannot be read, or is not ours: damage is a violation with a place, the rest a refusal."""

from pathlib import Path
from typing import Final

import pytest

from tests.engines.sqlite.inspected import edited, found, one, populate, verify_file, violated
from tests.engines.sqlite.store import Stores, store_of
from tidewire.domain.errors import StoreUnusable
from tidewire.engines.sqlite import DATABASE_NAME, inspect
from tidewire.engines.sqlite.database import APPLICATION_ID
from tidewire.engines.sqlite.inspect import SqliteInspector
from tidewire.ports.inspection import Damaged

PAGE_BYTES: Final = 4096


@pytest.fixture
async def stopped(stores: Stores) -> Path:
    """The database file of a store that was used and closed."""
    world = await stores.open()
    await populate(world)
    await store_of(world).close()
    return store_of(world).path


# Damage.


def wreck(path: Path, table: str) -> None:
    """Overwrite the root page of a table or index."""
    page = one(path, f"SELECT rootpage FROM sqlite_schema WHERE name = '{table}'")
    with path.open("r+b") as file:
        file.seek((page - 1) * PAGE_BYTES)
        file.write(b"\xff" * PAGE_BYTES)


@pytest.mark.parametrize(
    ("table", "place"),
    [
        ("messages", "messages of chat_"),
        ("messages_by_key", "idempotency keys of chat_"),
        ("messages_by_id", "the index of message ids"),
        ("delivery_state", "positions"),
        ("direct_chat_index", "the index of direct chats"),
        ("messages_by_sequence", "chats"),
        ("chat_memberships", "chats"),
        ("chat_counters", "chats"),
        ("user_blocks", "chats"),
        ("chats", "chats"),
        ("store_meta", "the head of tidewire.db"),
        ("delivered_floor", "chats"),
    ],
)
async def test_damaged_page_is_a_violation_that_names_the_place(
    stopped: Path, table: str, place: str
) -> None:
    wreck(stopped, table)
    report = verify_file(stopped)
    assert "database_readable" in violated(report)
    assert f"cannot read {place}" in found(report)
    assert "malformed" in found(report)


async def test_damage_in_one_chat_leaves_the_others_verified(stores: Stores) -> None:
    world = await stores.open()
    ann, bob, cleo = await world.people(3)
    damaged = await world.direct(ann, bob)
    await world.send_many(damaged, ann, 200)
    whole = await world.direct(ann, cleo)
    await world.send_many(whole, ann, 10)
    await store_of(world).close()
    path = store_of(world).path
    page = one(path, "SELECT pageno FROM dbstat WHERE name = 'messages' AND path = '/001/'")
    with path.open("r+b") as file:
        file.seek((page - 1) * PAGE_BYTES)
        file.write(b"\xff" * PAGE_BYTES)
    report = verify_file(path, chunk_rows=10)
    assert violated(report) == ["database_readable"]
    [offender] = next(check for check in report.checks if check.violations).offenders
    assert offender.chat_id == damaged
    assert "above sequence" in offender.found
    assert report.counts.chats == 2


async def test_index_that_is_gone_is_damage(stopped: Path) -> None:
    with edited(stopped) as database:
        database.execute("DROP INDEX messages_by_key")
    report = verify_file(stopped)
    assert violated(report) == ["database_readable"]
    assert "no such index: messages_by_key" in found(report)


@pytest.mark.parametrize("content", [b"not a database " * 500, b"SQLite format 3\0" + b"?" * 8192])
def test_file_that_is_no_database_is_damage(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / DATABASE_NAME
    path.write_bytes(content)
    with pytest.raises(Damaged, match=r"the head of tidewire\.db: file is not a database"):
        SqliteInspector(path)


# What is not for us.


def test_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreUnusable, match="there is no database"):
        SqliteInspector(tmp_path / DATABASE_NAME)


def test_empty_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / DATABASE_NAME
    path.touch()
    with pytest.raises(StoreUnusable, match="is empty"):
        SqliteInspector(path)


@pytest.mark.parametrize(
    ("statements", "sentence"),
    [
        ("CREATE TABLE other (x)", "some other program"),
        (f"PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = 99", "newer Tidewire"),
    ],
)
def test_database_of_somebody_else_is_refused(
    tmp_path: Path, statements: str, sentence: str
) -> None:
    path = tmp_path / DATABASE_NAME
    with edited(path) as database:
        database.execute(statements)
    with pytest.raises(StoreUnusable, match=sentence):
        SqliteInspector(path)


async def test_older_schema_is_refused(stopped: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inspect, "migrations", lambda: [None] * 99)
    with pytest.raises(StoreUnusable, match="start the server once"):
        SqliteInspector(stopped)
