"""The inspector reads what is in the file, beside anybody, and raises no false alarm."""

import asyncio
import shutil
from pathlib import Path
from typing import Any, Final

import apsw
import pytest

from tests.engines.sqlite.inspected import edited, populate, verify_file, violated
from tests.engines.sqlite.store import Stores, store_of
from tests.support.world import World
from tidewire.domain.errors import StoreUnusable
from tidewire.domain.ids import ChatId, UserId
from tidewire.engines.sqlite import DATABASE_NAME, inspect, inspect_sql
from tidewire.engines.sqlite.checksums import fill_checksums
from tidewire.engines.sqlite.inspect import SqliteInspector
from tidewire.ops.verify import verify


@pytest.fixture
async def stopped(stores: Stores) -> Path:
    """The database file of a store that was used and closed."""
    world = await stores.open()
    await populate(world)
    await store_of(world).close()
    return store_of(world).path


# What is in the file.


@pytest.mark.parametrize("chunk_rows", [1, 3, 10, 5_000])
async def test_stopped_store_is_read_whole(stopped: Path, chunk_rows: int) -> None:
    report = verify_file(stopped, chunk_rows)
    assert violated(report) == []
    counts = report.counts
    assert (counts.chats, counts.members, counts.messages) == (5, 13, 50)
    assert (counts.keys, counts.message_ids, counts.positions) == (50, 50, 14)


async def test_inspector_changes_nothing(stopped: Path) -> None:
    before = stopped.read_bytes()
    verify_file(stopped)
    assert stopped.read_bytes() == before


OF_GROUP: Final = "chat_id = (SELECT chat_id FROM chats WHERE chat_type = 'group')"
A_DIRECT_PAIR: Final = (
    "SELECT one.user_id, two.user_id, 1 FROM chats"
    " JOIN chat_memberships AS one USING (chat_id)"
    " JOIN chat_memberships AS two ON two.chat_id = one.chat_id AND two.user_id > one.user_id"
    " WHERE chat_type = 'direct' LIMIT 1"
)
OF_GONE: Final = f"{OF_GROUP} AND joined_sequence IS NULL"


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        (f"DELETE FROM messages WHERE {OF_GROUP} AND sequence = 11", ["prev_chain_exact"]),
        (f"DELETE FROM chat_counters WHERE {OF_GROUP}", ["counter_must_exist"]),
        (f"DELETE FROM chats WHERE {OF_GROUP}", ["rows_belong_to_a_chat"]),
        (
            "INSERT INTO chat_counters VALUES ('chat_x', 1, 1, 1, NULL, NULL)",
            ["rows_belong_to_a_chat"],
        ),
        (
            f"UPDATE messages SET chat_id = 'chat_x' WHERE {OF_GROUP} AND sequence = 39",
            ["prev_chain_exact", "message_checksum_holds", "rows_belong_to_a_chat"],
        ),
        (f"UPDATE chats SET member_count = 9 WHERE {OF_GROUP}", ["member_count_exact"]),
        ("UPDATE chat_memberships SET role = 'member'", ["group_has_one_owner"]),
        ("DELETE FROM direct_chat_index", ["direct_chat_is_indexed"]),
        (f"UPDATE chat_memberships SET blocked_at = 1 WHERE {OF_GROUP}", ["block_marks_exact"]),
        (
            f"INSERT INTO user_blocks {A_DIRECT_PAIR}",
            ["block_marks_exact"],
        ),
        (
            f"UPDATE delivery_state SET last_read_sequence = 13 WHERE {OF_GONE}",
            ["read_implies_delivered"],
        ),
        (
            f"UPDATE delivery_state SET joined_sequence = 0 WHERE {OF_GONE}",
            ["joined_sequence_consistent"],
        ),
    ],
)
async def test_what_was_changed_by_hand_is_found(
    stopped: Path, statement: str, expected: list[str]
) -> None:
    with edited(stopped) as database:
        database.execute(statement)
        assert database.changes() > 0
    assert violated(verify_file(stopped)) == expected


@pytest.mark.parametrize(
    ("index", "expected"),
    [
        ("messages_by_key", ["idempotency_sequence_consistency"]),
        ("messages_by_id", ["message_ids_exact"]),
        (
            "messages_by_sequence",
            # The head is read from it too, so that the last acknowledgement seems to be above it.
            [
                "delivery_state_consistency",
                "idempotency_sequence_consistency",
                "message_ids_exact",
            ],
        ),
        ("delivered_floor", ["lowest_positions_exact"]),
    ],
)
async def test_index_that_has_lost_an_entry_is_found(
    stopped: Path, index: str, expected: list[str]
) -> None:
    """The index is hidden from SQLite while rows are added, then shown again."""
    with edited(stopped) as database:
        database.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 0)
        database.execute("PRAGMA writable_schema = ON")
        row = database.execute("SELECT * FROM sqlite_schema WHERE name = ?", (index,)).fetchone()
        database.execute("DELETE FROM sqlite_schema WHERE name = ?", (index,))
    with edited(stopped) as database:
        database.execute(
            "INSERT INTO messages (position, chat_id, sequence, prev_sequence, message_id,"
            " sender_id, client_message_id, content, content_type, created_at, checksum)"
            " SELECT position + 1, chat_id, sequence + 1, sequence, 'msg_x',"
            " sender_id, 'key_x', content, content_type, created_at, checksum"
            " FROM messages ORDER BY position DESC LIMIT 1"
        )
        fill_checksums(database)
        database.execute("UPDATE chat_counters SET sequence_counter = sequence_counter + 1")
        database.execute(
            "UPDATE delivery_state SET last_acked_sequence = last_acked_sequence + 1"
            " WHERE chat_id = (SELECT chat_id FROM messages ORDER BY position DESC LIMIT 1)"
            f" OR last_acked_sequence < 40 AND {OF_GROUP}"
        )
    with edited(stopped) as database:
        database.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 0)
        database.execute("PRAGMA writable_schema = ON")
        database.execute("INSERT INTO sqlite_schema VALUES (?, ?, ?, ?, ?)", row)
    assert violated(verify_file(stopped)) == expected


# Messages that change.


async def amend(world: World, group: ChatId, people: list[UserId]) -> None:
    """Message 1 has two edits and reactions, 2 was edited and deleted, 3 is replied to."""
    ann, bob, cleo, *_ = people
    await world.append(
        world.edit(group, ann, 1, "one"),
        world.edit(group, ann, 2, "secret"),
        world.edit(group, ann, 1, "two"),
        world.reaction(group, bob, 1),
        world.reaction(group, cleo, 1),
        world.reaction(group, bob, 1, is_on=False),
        world.reaction(group, bob, 2),
        world.deletion(group, ann, 2),
        world.draft(group, bob, "yes", reply_to=3, mentions=(ann, cleo)),
        world.draft(group, bob, "no", mentions=(ann,)),
    )
    await world.store(world.deletion(group, bob, 50))


EDITED = "UPDATE messages SET {} WHERE chat_id = (SELECT chat_id FROM edits) AND sequence = {}"


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("DELETE FROM edits WHERE sequence = 41", ["edits_exact"]),
        ("UPDATE edits SET sequence = 44 WHERE sequence = 43", ["edits_exact"]),
        ("INSERT INTO edits SELECT chat_id, 1, 3 FROM edits LIMIT 1", ["edits_exact"]),
        ("INSERT INTO edits SELECT chat_id, 2, 42 FROM edits LIMIT 1", ["edits_exact"]),
        ("DELETE FROM reactions WHERE sequence = 46", ["reactions_exact"]),
        ("UPDATE reactions SET is_on = 1", ["reactions_exact"]),
        ("UPDATE reactions SET sequence = 44 WHERE sequence = 46", ["reactions_exact"]),
        ("UPDATE reactions SET user_id = 'user_x' WHERE sequence = 45", ["reactions_exact"]),
        ("UPDATE reactions SET sequence = 99 WHERE sequence = 46", ["reactions_exact"]),
        ("DELETE FROM mentions WHERE sequence = 49", ["mentions_exact"]),
        ("UPDATE mentions SET sequence = 50", ["mentions_exact"]),
        ("UPDATE mentions SET user_id = user_id || 'x'", ["mentions_exact"]),
        (EDITED.format("message_before = 7", 43), ["message_before_exact"]),
        (
            EDITED.format("content = 'secret'", 2),
            ["message_checksum_holds", "deleted_is_erased"],
        ),
        (
            EDITED.format("content = 'secret'", 42),
            ["message_checksum_holds", "deleted_is_erased"],
        ),
        (
            EDITED.format("deleted_by = NULL", 2),
            ["message_checksum_holds", "deleted_is_erased", "edits_exact", "reactions_exact"],
        ),
        (
            EDITED.format("target = 41", 43),
            ["message_checksum_holds", "target_is_a_message", "edits_exact"],
        ),
        (
            EDITED.format("extra = '{'", 43),
            # What is no entry any more is left out, but the row that is kept of it is not.
            ["message_checksum_holds", "edits_exact"],
        ),
    ],
)
async def test_what_is_kept_of_changes_is_checked(
    stores: Stores, statement: str, expected: list[str]
) -> None:
    world = await stores.open()
    group, _, people = await populate(world)
    await amend(world, group, people)
    path = store_of(world).path
    await store_of(world).close()
    assert violated(verify_file(path)) == []
    with edited(path) as database:
        database.execute(statement.replace("FROM edits)", "FROM edits LIMIT 1)"))
        assert database.changes() > 0
    assert violated(verify_file(path)) == expected


async def test_changes_meanwhile_give_no_false_alarm(stores: Stores) -> None:
    """Between any two chunks messages are edited, deleted and reacted to."""
    world = await stores.open()
    group, _, people = await populate(world)
    ann, bob, *_ = people
    loop = asyncio.get_running_loop()
    steps = 0

    async def change() -> None:
        nonlocal steps
        steps += 1
        target = await world.send_many(group, ann, 1)
        await world.append(
            world.edit(group, ann, target, "new"),
            world.reaction(group, bob, target),
            world.reaction(group, bob, 1, is_on=steps % 2 > 0),
            world.edit(group, ann, 1 + steps % 9, f"{steps}"),
            world.draft(group, bob, mentions=(ann,), reply_to=target),
        )
        await world.append(world.deletion(group, ann, target - 6 * (steps % 2)))

    def change_in_between(stage: str, done: int, total: int | None) -> None:
        asyncio.run_coroutine_threadsafe(change(), loop).result()

    path = store_of(world).path
    await change()
    report = await asyncio.to_thread(
        verify, lambda: SqliteInspector(path, chunk_rows=5), change_in_between
    )
    assert violated(report) == []
    assert steps > 20
    assert report.counts.kept
    after = verify_file(path)
    assert violated(after) == []
    assert after.counts.changes
    assert after.counts.changes > 100


# Beside a server.


async def test_growth_meanwhile_gives_no_false_alarm(stores: Stores) -> None:
    """Between any two chunks the server stores messages, moves positions, and changes members."""
    world = await stores.open()
    group, direct, people = await populate(world)
    ann, bob, *others = people
    loop = asyncio.get_running_loop()
    steps = 0

    async def grow() -> None:
        nonlocal steps
        steps += 1
        head = await world.send_many(group, ann, 2)
        await world.send_many(direct, bob, 1)
        member = others[steps % len(others)]
        if member in await world.members(ann, group):
            await world.read(member, group, head)
            await world.remove(ann, group, member)
        else:
            await world.add(ann, group, member)
        await world.group(bob, ann)

    def grow_in_between(stage: str, done: int, total: int | None) -> None:
        asyncio.run_coroutine_threadsafe(grow(), loop).result()

    path = store_of(world).path
    report = await asyncio.to_thread(
        verify, lambda: SqliteInspector(path, chunk_rows=5), grow_in_between
    )
    assert steps > 20
    assert violated(report) == []
    assert violated(verify_file(path)) == []


async def test_inspector_never_pins_the_log(stopped: Path) -> None:
    """After any chunk the log can be emptied, which a single open read would prevent."""
    busy: list[int] = []
    with edited(stopped) as database:

        def write_and_empty(stage: str, done: int, total: int | None) -> None:
            database.execute("UPDATE store_meta SET value = value")
            rows: list[Any] = database.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            busy.append(rows[0][0])

        verify(lambda: SqliteInspector(stopped, chunk_rows=5), write_and_empty)
    assert len(busy) > 10
    assert set(busy) == {0}


async def test_store_of_a_killed_process_is_read_with_its_log(
    stores: Stores, tmp_path: Path
) -> None:
    world = await stores.open()
    await populate(world)
    path = store_of(world).path
    copy = tmp_path / "copy" / DATABASE_NAME
    copy.parent.mkdir()
    for ending in ("", "-wal"):
        shutil.copy(f"{path}{ending}", f"{copy}{ending}")
    report = verify_file(copy)
    assert violated(report) == []
    assert report.counts.messages == 50


@pytest.mark.parametrize("error", [apsw.ReadOnlyError, apsw.CantOpenError])
async def test_store_in_a_directory_that_cannot_be_written_is_read(
    stopped: Path, monkeypatch: pytest.MonkeyPatch, error: type[apsw.Error]
) -> None:
    """The tests may run as root, who can write everywhere, so SQLite's refusal is played."""
    set_up = inspect._set_up

    calls = 0

    def refuse_first(database: apsw.Connection) -> apsw.Connection:
        nonlocal calls
        calls += 1
        if calls == 1:
            database.close()
            raise error
        return set_up(database)

    monkeypatch.setattr(inspect, "_set_up", refuse_first)
    assert violated(verify_file(stopped)) == []
    assert calls == 2


async def test_log_in_a_directory_that_cannot_be_written_is_refused(
    stopped: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(database: apsw.Connection) -> apsw.Connection:
        database.close()
        raise apsw.ReadOnlyError

    stopped.with_name(DATABASE_NAME + "-wal").write_bytes(b"something")
    monkeypatch.setattr(inspect, "_set_up", refuse)
    with pytest.raises(StoreUnusable, match="verify the copy"):
        SqliteInspector(stopped)


# Speed.


@pytest.mark.parametrize(
    "query",
    ["MESSAGES", "KEYS", "IDS", "MESSAGES_AHEAD", "KEYS_AHEAD", "POSITIONS", "PAIRS", "MEMBERS"],
)
async def test_no_read_scans_or_sorts(stopped: Path, query: str) -> None:
    names = ("chat", "after_chat", "after", "after_position", "last", "newest", "count")
    with edited(stopped) as database:
        plan = [
            str(row[3])
            for row in database.execute(
                f"EXPLAIN QUERY PLAN {getattr(inspect_sql, query)}", dict.fromkeys(names, 1)
            )
        ]
    assert plan
    assert not [step for step in plan if step.startswith(("SCAN", "USE TEMP B-TREE"))]
