"""Files that are not what they should be: a clear sentence, and nothing is touched.

Slow where a process has to die of it.
"""

import asyncio
from operator import itemgetter
from pathlib import Path
from typing import Any, Final

import apsw
import pytest

from tests.engines.sqlite.store import Stores, TunedStore, open_beside, pair_in, store_of
from tests.support.world import World
from tidewire.domain.delivery import Advance, Advanced
from tidewire.domain.errors import StoreDamaged, StoreUnusable
from tidewire.domain.ids import ChatId, UserId
from tidewire.domain.messages import Appended
from tidewire.engines.sqlite import DATABASE_NAME, SqliteOptions, SqliteStorage
from tidewire.engines.sqlite.database import check_library, single

PAGE_BYTES: Final = 4096


async def refused(data_dir: Path) -> str:
    """Why a directory cannot be opened. The database file is as it was, and nothing is beside it
    that was not before."""
    path = data_dir / DATABASE_NAME
    before = path.read_bytes()
    with pytest.raises(StoreUnusable) as refusal:
        await SqliteStorage.open(data_dir)
    assert path.read_bytes() == before
    assert not (data_dir / f"{DATABASE_NAME}-wal").exists()
    return str(refusal.value)


@pytest.mark.parametrize(
    "content",
    [b"Dear diary,\n" * 1_000, b"\x00" * 8192, b"SQLite format 3\x00" + b"?" * 8192, b"x"],
)
async def test_store_is_refused_when_its_file_is_not_a_database(
    tmp_path: Path, content: bytes
) -> None:
    (tmp_path / DATABASE_NAME).write_bytes(content)
    assert "is damaged" in await refused(tmp_path)


@pytest.mark.parametrize(
    "statement",
    ["CREATE TABLE bookmarks (url)", "PRAGMA user_version = 7", "PRAGMA application_id = 1234"],
)
async def test_store_is_refused_when_its_file_belongs_to_another_program(
    tmp_path: Path, statement: str
) -> None:
    other = apsw.Connection(str(tmp_path / DATABASE_NAME))
    other.execute(statement)
    other.close()
    assert "is an SQLite database of some other program" in await refused(tmp_path)


async def test_store_is_refused_when_its_schema_is_newer_than_the_program(
    stores: Stores,
) -> None:
    world = await stores.open()
    await store_of(world).close()
    newer = open_beside(store_of(world).path)
    newer.execute("PRAGMA user_version = 4711")
    newer.close()
    sentence = await refused(store_of(world).directory)
    assert "the database has schema 4711" in sentence
    assert "newer Tidewire" in sentence


@pytest.mark.parametrize("kept", [0.9999, 0.5, 0.05])
async def test_store_is_refused_when_its_file_is_truncated(stores: Stores, kept: float) -> None:
    store, _, _ = await store_with_messages(stores)
    content = store.path.read_bytes()
    store.path.write_bytes(content[: int(len(content) * kept)])
    assert "is damaged" in await refused(store.directory)


@pytest.mark.parametrize("size_bytes", [1, 16, 50, 99, 100, 512, 4095, 4096])
async def test_store_is_refused_when_little_is_left_of_its_file(
    stores: Stores, size_bytes: int
) -> None:
    store, _, _ = await store_with_messages(stores)
    store.path.write_bytes(store.path.read_bytes()[:size_bytes])
    assert "is damaged" in await refused(store.directory)


@pytest.mark.parametrize("is_there", [True, False])
async def test_store_is_refused_when_only_its_log_is_left(stores: Stores, is_there: bool) -> None:
    store, _, _ = await store_with_messages(stores)
    log = store.wal_path
    log.write_bytes(b"the log of a process that was killed")
    store.path.unlink()
    if is_there:
        store.path.touch()
    with pytest.raises(StoreUnusable, match=r"its write-ahead log tidewire.db-wal is there"):
        await SqliteStorage.open(store.directory)
    assert log.read_bytes() == b"the log of a process that was killed"


async def store_with_messages(stores: Stores) -> tuple[TunedStore, dict[UserId, ChatId], World]:
    """A store, closed, with two chats of 300 messages each."""
    world = await stores.open()
    chats = {}
    for _ in range(2):
        chat, one, _ = await pair_in(world)
        await world.append(*[world.draft(chat, one, "x" * 500) for _ in range(300)])
        chats[one] = chat
    await store_of(world).close()
    return store_of(world), chats, world


def pages_of(path: Path, table: str) -> list[int]:
    """The leaf pages of a table or an index, from left to right."""
    database = open_beside(path)
    rows: list[tuple[Any, ...]] = database.execute(
        "SELECT pageno FROM dbstat WHERE name = ? AND pagetype = 'leaf' ORDER BY path", (table,)
    ).fetchall()
    database.close()
    return [row[0] for row in rows]


def damage(path: Path, page: int) -> None:
    """Turn over every bit in the first half of a page: its header, and where its rows are."""
    content = bytearray(path.read_bytes())
    begin = (page - 1) * PAGE_BYTES
    for index in range(begin, begin + PAGE_BYTES // 2):
        content[index] ^= 0xFF
    path.write_bytes(content)


async def test_reads_of_a_damaged_page_are_refused_and_others_go_on(stores: Stores) -> None:
    store, chats, world = await store_with_messages(stores)
    pages = pages_of(store.path, "messages")
    damage(store.path, pages[5])
    (hit_reader, hit_chat), (reader, chat) = chats.items()
    await store.open()
    with pytest.raises(StoreDamaged, match="is damaged") as failure:
        await world.messages(hit_reader, hit_chat)
    assert "malformed" in failure.value.reason
    # What does not lie on that page is there: before it, after it, and the other chat.
    page = await world.storage.messages_after(hit_reader, hit_chat, 0, count_max=3, bytes_max=9_999)
    assert [message.sequence for message in page.messages] == [1, 2, 3]
    assert len(await world.messages(hit_reader, hit_chat, after=200)) == 100
    assert len(await world.messages(reader, chat)) == 300
    # A write that does not come near it is a write like any other.
    assert (await world.send(chat, reader)).sequence == 301
    assert store.doubts == []


@pytest.mark.parametrize(
    ("statement", "values"),
    [
        ("UPDATE chats SET chat_type = ? WHERE chat_id = ?", ["pain"]),
        ("UPDATE chats SET chat_type = CAST(? AS TEXT) WHERE chat_id = ?", [b"dir\xffct"]),
    ],
)
async def test_digest_over_damaged_values_is_refused_and_others_go_on(
    stores: Stores, statement: str, values: list[Any]
) -> None:
    store, chats, world = await store_with_messages(stores)
    (hit_reader, hit_chat), (reader, chat) = chats.items()
    database = open_beside(store.path)
    database.execute("PRAGMA ignore_check_constraints = ON")
    database.execute(statement, (*values, hit_chat))
    database.close()
    await store.open()
    with pytest.raises(StoreDamaged):
        await world.storage.digest(hit_reader, after=None, count_max=9)
    page = await world.storage.digest(reader, after=None, count_max=9)
    assert [entry.chat_id for entry in page.entries] == [chat]
    assert store.doubts == []


async def test_write_that_meets_a_damaged_page_fails_and_others_go_on(stores: Stores) -> None:
    store, chats, world = await store_with_messages(stores)
    (author, chat), (hit_author, hit_chat) = sorted(chats.items(), key=itemgetter(1))
    # The end of the index: a new message of the last chat has to name the one before it.
    damage(store.path, pages_of(store.path, "messages_by_sequence")[-1])
    await store.open()
    hit, sound = world.draft(hit_chat, hit_author), world.draft(chat, author)
    outcomes = await world.append(hit, sound, world.draft(hit_chat, hit_author))
    assert [type(outcome) for outcome in outcomes] == [StoreDamaged, Appended, StoreDamaged]
    # Also if it comes alone, or as one of several writes of a commit.
    [outcome] = await world.append(hit)
    assert isinstance(outcome, StoreDamaged)
    alone = await asyncio.gather(
        world.append(world.draft(chat, author)),
        world.append(hit),
        world.append(world.draft(chat, author)),
    )
    assert [type(outcome) for [outcome] in alone] == [Appended, StoreDamaged, Appended]
    assert store.doubts == []
    assert store.sqlite.damage.requests_failed == 3
    assert len(await world.messages(author, chat)) == 303


async def test_acknowledgement_that_meets_a_damaged_page_fails_alone(stores: Stores) -> None:
    store, chats, world = await store_with_messages(stores)
    (reader, chat), (hit_reader, hit_chat) = sorted(chats.items(), key=itemgetter(1))
    damage(store.path, pages_of(store.path, "messages_by_sequence")[-1])
    await store.open()
    wishes = [
        Advance(user_id=hit_reader, chat_id=hit_chat, delivered=300, read=0),
        Advance(user_id=reader, chat_id=chat, delivered=300, read=300),
    ]
    outcomes = await world.storage.advance(wishes, now_ms=world.now())
    assert [type(outcome) for outcome in outcomes] == [StoreDamaged, Advanced]
    assert store.doubts == []


async def test_store_is_refused_when_the_definition_of_a_table_has_changed(
    stores: Stores,
) -> None:
    store, _, _ = await store_with_messages(stores)
    content = store.path.read_bytes()
    assert b"client_message_id TEXT" in content
    store.path.write_bytes(content.replace(b"client_message_id TEXT", b"client_messagu_id TEXT"))
    assert "is damaged" in await refused(store.directory)


async def test_library_is_refused_when_it_is_too_old(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(
        StoreUnusable, match=r"library is 3\.40\.1, but 3\.51\.3 or newer is needed"
    ):
        check_library("3.40.1")
    with pytest.raises(StoreUnusable):
        check_library("3.51.2")
    check_library("3.51.3")
    check_library("3.100.0")
    check_library(apsw.sqlite_lib_version())
    monkeypatch.setattr(apsw, "sqlite_lib_version", lambda: "3.40.1")
    with pytest.raises(StoreUnusable, match=r"3\.40\.1"):
        await SqliteStorage.open(tmp_path / "data")
    assert not (tmp_path / "data").exists()


async def test_store_is_opened_when_its_file_is_empty(tmp_path: Path) -> None:
    # A first start that was killed leaves an empty file; it looks like nothing else.
    (tmp_path / DATABASE_NAME).touch()
    storage = await SqliteStorage.open(tmp_path, options=SqliteOptions())
    await storage.close()
    database = open_beside(tmp_path / DATABASE_NAME)
    assert single(database, "PRAGMA user_version") >= 1
    database.close()
