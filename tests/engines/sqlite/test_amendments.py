"""Messages that change, in SQLite: what damage does to them, what is beside the table of messages,
and what reactions cost those who count messages."""

from typing import Any

import apsw
import pytest

from tests.engines.sqlite import test_damaged_messages as damaged_messages
from tests.engines.sqlite.inspected import edited
from tests.engines.sqlite.store import Stores, pair_in, store_of
from tests.engines.sqlite.test_damaged_messages import Damaged
from tests.support.inspectors import verify_engine, violated
from tests.support.outcomes import chained, describe
from tests.support.world import World
from tidewire.domain.errors import (
    EditConflict,
    Forbidden,
    MessageDeleted,
    StoreDamaged,
    TargetNotFound,
)
from tidewire.domain.ids import ChatId, UserId
from tidewire.domain.limits import UNREAD_SCAN_MAX
from tidewire.domain.messages import Appended
from tidewire.engines.sqlite import amendments, positions
from tidewire.engines.sqlite.database import SqliteOptions, connect

damaged = damaged_messages.damaged


def rows(world: World, query: str) -> list[tuple[Any, ...]]:
    with edited(store_of(world).path) as database:
        return database.execute(query).fetchall()


# What stands beside the messages.


async def test_tables_beside_the_messages_say_what_is_now(stores: Stores) -> None:
    world = await stores.open()
    anna, ben = await world.people(2)
    chat = await world.group(anna, ben)
    await world.store(world.draft(chat, anna, "one", mentions=(ben,)))
    await world.store(world.draft(chat, anna, "two", mentions=(ben,)))
    await world.append(
        world.edit(chat, anna, 1, "uno"),
        world.edit(chat, anna, 1, "eins"),
        world.edit(chat, anna, 2, "due"),
        world.reaction(chat, ben, 1),
        world.reaction(chat, ben, 2),
        world.reaction(chat, ben, 1, is_on=False),
    )
    assert rows(world, "SELECT target, sequence FROM edits") == [(1, 3), (1, 4), (2, 5)]
    assert rows(world, "SELECT target, sequence, is_on FROM reactions") == [(1, 8, 0), (2, 7, 1)]
    assert rows(world, "SELECT user_id, sequence FROM mentions") == [(ben, 1), (ben, 2)]
    await world.append(world.reaction(chat, ben, 1), world.deletion(chat, anna, 1))
    assert rows(world, "SELECT target, sequence FROM edits") == [(2, 5)]
    assert rows(world, "SELECT target, sequence FROM reactions") == [(2, 7)]
    assert rows(world, "SELECT user_id, sequence FROM mentions") == [(ben, 2)]
    assert rows(world, "SELECT count(*) FROM messages WHERE content LIKE '%ne%'") == [(0,)]


async def test_entry_that_is_no_message_names_the_message_before_it(stores: Stores) -> None:
    world = await stores.open()
    anna, ben, cleo = await world.people(3)
    chat, other = await world.group(anna, ben), await world.direct(anna, cleo)
    await world.send(chat, anna)
    await world.send(other, anna)
    await world.append(
        world.reaction(chat, ben, 1),
        world.draft(other, anna),
        world.draft(chat, ben),
        world.reaction(other, cleo, 1),
        world.edit(chat, anna, 1),
    )
    await world.send(chat, anna)
    await world.append(world.reaction(chat, anna, 3), world.reaction(chat, ben, 3))
    await world.store(world.deletion(chat, anna, 1))
    found = "SELECT sequence, message_before FROM messages WHERE chat_id = '{}' ORDER BY sequence"
    assert rows(world, found.format(chat)) == [
        (1, None),
        (2, 1),
        (3, None),
        (4, 3),
        (5, None),
        (6, 5),
        (7, 5),
        (8, 5),
    ]
    assert rows(world, found.format(other)) == [(1, None), (2, None), (3, 2)]


async def test_many_react_to_one_message_at_once(stores: Stores) -> None:
    """More than one statement asks about, on a message that has reactions and on one without."""
    world = await stores.open()
    people = await world.people(50)
    chat = await world.group(*people)
    await world.send_many(chat, people[0], 2)
    await world.append(*(world.reaction(chat, one, 1, "🎉") for one in people[:3]))
    outcomes = await world.append(
        *(world.reaction(chat, one, 1) for one in people),
        *(world.reaction(chat, one, 1, "🎉", is_on=False) for one in people[:2]),
        *(world.reaction(chat, one, 2) for one in people[:15]),
    )
    counts = [one.count for one in outcomes if isinstance(one, Appended)]
    assert counts == [*range(1, 51), 2, 1, *range(1, 16)]
    found = await world.storage.messages_now(people[0], chat, [1, 2])
    assert [(one.emoji, one.count, len(one.users)) for one in found[1].reactions] == [
        ("🎉", 1, 1),
        ("👍", 50, 10),
    ]
    assert [(one.is_own, one.own_sequence) for one in found[1].reactions] == [
        (False, 56),
        (True, 6),
    ]
    assert [one.count for one in found[2].reactions] == [15]


async def test_messages_far_apart_are_asked_for_apart(stores: Stores) -> None:
    """What is between them is not given out."""
    world = await stores.open()
    chat, anna, ben = await pair_in(world)
    await world.send_many(chat, anna, 300)
    await world.append(*(world.reaction(chat, ben, one) for one in (1, 2, 3, 150, 299, 300)))
    for sequences in ([300, 1], [1, 3], [150], [2, 299, 4]):
        found = await world.storage.messages_now(anna, chat, sequences)
        assert set(found) == {*sequences} - {4}
    assert await world.storage.messages_now(anna, chat, []) == {}


# What counting messages costs.


async def test_far_behind_many_reactions_messages_are_counted_all_the_same(stores: Stores) -> None:
    """The count looks at each entry, or, of a long distance, at the messages alone."""
    world = await stores.open()
    chat, anna, ben = await pair_in(world)
    await world.send_many(chat, anna, 3)
    for _ in range(3):
        await world.append(*(world.reaction(chat, ben, 1, is_on=one % 2 > 0) for one in range(300)))
        await world.send_many(chat, anna, 2)
        await world.send_many(chat, ben, 1)
    await world.store(world.deletion(chat, anna, 2))
    far = 3 * 303 + 4
    assert far <= UNREAD_SCAN_MAX
    assert await unread(world, ben, chat) == (far, 8)
    await world.append(*(world.reaction(chat, ben, 1, is_on=one % 2 > 0) for one in range(400)))
    await world.send_many(chat, anna, 1)
    assert await unread(world, ben, chat) == (far + 401, 9)
    await world.send_many(chat, anna, 200)
    assert await unread(world, ben, chat) == (far + 601, 100)


async def unread(world: World, user_id: UserId, chat: ChatId) -> tuple[int, int]:
    """Of one who has read nothing: the head, and what the digest and the list of chats count."""
    with edited(store_of(world).path) as database:
        database.execute("UPDATE delivery_state SET last_read_sequence = 0")
        database.execute("UPDATE delivery_state SET last_acked_sequence = 0")
    entry = await world.entry(user_id, chat)
    page = await world.storage.chat_list(user_id, cursor=None, count_max=1)
    [item] = page.items
    assert (item.unread, item.undelivered) == (entry.unread, entry.unread)
    return entry.head, entry.unread


@pytest.mark.slow
async def test_cost_of_an_unread_count_does_not_grow_with_the_reactions(stores: Stores) -> None:
    costs = []
    for reactions in (1_200, 4_800):
        world = await stores.open()
        chat, anna, ben = await pair_in(world)
        await world.send_many(chat, anna, 10)
        for begin in range(0, reactions, 400):
            drafts = (world.reaction(chat, anna, 1, is_on=one % 2 > 0) for one in range(400))
            await world.append(*drafts)
            assert begin < reactions
        costs.append(steps_of_digest(world, ben))
    assert costs[1] <= 1.1 * costs[0], costs


def steps_of_digest(world: World, user_id: UserId) -> int:
    database = connect(store_of(world).path, SqliteOptions(), cache_kib=4_096)
    counted: list[int] = []
    database.trace_v2(
        apsw.SQLITE_TRACE_PROFILE,
        lambda traced: counted.append(traced["stmt_status"]["SQLITE_STMTSTATUS_VM_STEP"]),
    )
    [entry] = positions.digest(database, user_id, after=None, count_max=10).entries
    database.close()
    assert entry.unread == 10
    return sum(counted)


async def test_messages_of_an_author_are_found_in_pieces(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(amendments, "_BORDER", amendments._BORDER.replace("20000", "3"))
    world = await stores.open()
    chat, anna, ben = await pair_in(world)
    for author in (anna, anna, ben, ben, ben, ben, ben, ben, ben, anna, ben, anna):
        await world.send(chat, author)
    by_anna = [1, 2, 10, 12]
    for count_max in (1, 2, 3, 4, 10):
        found = await world.storage.messages_by(anna, chat, after=0, count_max=count_max)
        assert found == by_anna[:count_max]
    assert await world.storage.messages_by(anna, chat, after=10, count_max=10) == [12]
    assert await world.storage.messages_by(anna, chat, after=12, count_max=10) == []


# Damage.


async def amended(damaged: Damaged) -> None:
    """Message 1 was edited twice (7, 8), message 2 has a reaction (9)."""
    world, chat = damaged.world, damaged.chat
    await damaged.open()
    await world.append(
        world.edit(chat, damaged.author, 1, "first edit 🌊"),
        world.edit(chat, damaged.author, 1, "second edit 🌊"),
        world.reaction(chat, damaged.other, 2),
    )
    await store_of(world).close()


NOT_TEXT = "content = CAST(x'ff' AS TEXT)"
CHANGES = [NOT_TEXT, "content = 'other'", "content = NULL", "created_at = 'x'", "extra = '7'"]


@pytest.mark.parametrize("change", CHANGES)
async def test_damaged_message_can_only_be_deleted_and_others_can_be_changed(
    damaged: Damaged, change: str
) -> None:
    damaged.change(3, change)
    await damaged.open()
    world, chat = damaged.world, damaged.chat
    outcomes = await world.append(
        world.edit(chat, damaged.author, 2),
        world.edit(chat, damaged.author, 3),
        world.reaction(chat, damaged.other, 3),
        world.deletion(chat, damaged.author, 4),
        world.draft(chat, damaged.author, reply_to=3),
    )
    assert describe(outcomes) == [
        "stored 7 after 6",
        "TargetNotFound",
        "TargetNotFound",
        "stored 8 after 7",
        "TargetNotFound",
    ]


@pytest.mark.parametrize("sequence", [1, 3, 6])
@pytest.mark.parametrize(
    "change", [*CHANGES, "content_type = 'x'", "checksum = NULL", "deleted_by = 2"]
)
async def test_damaged_message_can_be_deleted_by_its_author(
    damaged: Damaged, change: str, sequence: int
) -> None:
    """It is a message that was deleted then, and damaged no more; its numbers stay."""
    await amended(damaged)
    damaged.change(sequence, change)
    await damaged.open()
    world, chat = damaged.world, damaged.chat
    assert isinstance(await world.refusal(world.deletion(chat, damaged.other, sequence)), Forbidden)
    answer = await world.store(world.deletion(chat, damaged.author, sequence))
    entries = await damaged.synced()
    assert [one.sequence for one in entries] == list(range(1, 11))
    assert chained(entries)
    found = entries[sequence - 1]
    assert (found.content, found.is_damaged, found.deleted_by) == ("", False, answer.sequence)
    assert (found.message_id, found.sender_id) == (
        damaged.acks[sequence - 1].message_id,
        damaged.author,
    )
    assert (await world.now_of(damaged.other, chat, sequence)).deleted_sequence == answer.sequence
    again = await world.store(damaged.sends[sequence - 1])
    assert (again.sequence, again.deduplicated) == (sequence, True)
    assert isinstance(
        await world.refusal(world.deletion(chat, damaged.author, sequence)), MessageDeleted
    )
    texts = rows(world, f"SELECT content FROM messages WHERE sequence = {sequence}")
    assert texts == [("",)]
    assert violated(verify_engine(world.engine)) == []


async def test_damaged_message_takes_its_edits_reactions_and_mentions_along(
    stores: Stores,
) -> None:
    world = await stores.open()
    anna, ben = await world.people(2)
    chat = await world.group(anna, ben)
    await world.store(world.draft(chat, ben, "one", mentions=(anna,)))
    await world.append(world.edit(chat, ben, 1, "eins"), world.reaction(chat, anna, 1))
    await store_of(world).close()
    Damaged(world, chat, ben, anna).change(1, NOT_TEXT)
    await store_of(world).open()
    answer = await world.store(world.deletion(chat, anna, 1))
    assert answer.moderated == ben
    for table in ("edits", "reactions", "mentions"):
        assert rows(world, f"SELECT * FROM {table}") == []
    assert [one.content for one in await world.messages(anna, chat)] == [""] * 4
    assert (await world.entry(anna, chat)).mentions_unread == 0
    assert violated(verify_engine(world.engine)) == []


@pytest.mark.parametrize("change", ["sender_id = CAST(x'ff' AS TEXT)", "sender_id = 'user_9'"])
async def test_damaged_message_whose_author_is_not_known_is_for_admins_to_delete(
    stores: Stores, change: str
) -> None:
    world = await stores.open()
    anna, ben = await world.people(2)
    chat = await world.group(anna, ben)
    await world.send(chat, ben, "one")
    await store_of(world).close()
    Damaged(world, chat, ben, anna).change(1, change)
    await store_of(world).open()
    assert isinstance(await world.refusal(world.deletion(chat, ben, 1)), Forbidden)
    answer = await world.store(world.deletion(chat, anna, 1))
    # What cannot be read as an id stays damaged, without its text, and is shown as deleted.
    assert (await world.now_of(anna, chat, 1)).deleted_sequence == answer.sequence
    assert [one.content for one in await world.messages(anna, chat)] == ["", ""]
    assert rows(world, "SELECT content FROM messages") == [("",), ("",)]
    assert isinstance(await world.refusal(world.deletion(chat, anna, 1)), MessageDeleted)


@pytest.mark.parametrize("change", [*CHANGES, "target = NULL"])
async def test_damaged_entry_that_is_no_message_cannot_be_deleted(
    damaged: Damaged, change: str
) -> None:
    await amended(damaged)
    damaged.change(7, change)
    await damaged.open()
    world, chat = damaged.world, damaged.chat
    assert isinstance(await world.refusal(world.deletion(chat, damaged.author, 7)), TargetNotFound)


async def test_damaged_message_without_a_row_cannot_be_deleted(damaged: Damaged) -> None:
    """There is nothing to erase, and nothing to write a deletion to."""
    with edited(damaged.path) as database:
        database.execute("DELETE FROM messages WHERE sequence = 3")
    await damaged.open()
    world, chat = damaged.world, damaged.chat
    assert [one.is_damaged for one in await damaged.synced()].count(True) == 1
    assert isinstance(await world.refusal(world.deletion(chat, damaged.author, 3)), TargetNotFound)


@pytest.mark.parametrize("change", CHANGES)
async def test_damaged_edit_is_erased_with_the_others(damaged: Damaged, change: str) -> None:
    await amended(damaged)
    damaged.change(7, change)
    await damaged.open()
    world, chat = damaged.world, damaged.chat
    await world.store(world.deletion(chat, damaged.author, 1))
    entries = await damaged.synced()
    assert [one.sequence for one in entries] == list(range(1, 11))
    erased = [entries[0], entries[6], entries[7]]
    assert [(one.content, one.is_damaged) for one in erased] == [
        ("", False),
        ("", True),
        ("", False),
    ]
    assert rows(world, "SELECT count(*) FROM messages WHERE content LIKE '%edit%'") == [(0,)]


async def test_edit_that_cannot_be_erased_leaves_the_message_as_it_is(damaged: Damaged) -> None:
    """No deletion is acknowledged that left a text behind."""
    await amended(damaged)
    damaged.change(7, "sender_id = x'37'")
    await damaged.open()
    world, chat = damaged.world, damaged.chat
    refusal = await world.refusal(world.deletion(chat, damaged.author, 1))
    assert isinstance(refusal, StoreDamaged)
    assert (await world.now_of(damaged.other, chat, 1)).content == "second edit 🌊"
    await world.store(world.deletion(chat, damaged.author, 2))


@pytest.mark.parametrize("change", CHANGES)
async def test_damaged_last_edit_gives_out_no_text(damaged: Damaged, change: str) -> None:
    await amended(damaged)
    damaged.change(8, change)
    await damaged.open()
    world, chat = damaged.world, damaged.chat
    found = await world.storage.messages_now(damaged.other, chat, range(1, 7))
    assert (found[1].content, found[1].edited_sequence) == (None, 8)
    assert [one.count for one in found[2].reactions] == [1]
    conflict = await world.refusal(world.edit(chat, damaged.author, 1, base=7))
    assert isinstance(conflict, EditConflict)
    assert conflict.content == ""
    assert isinstance(await world.refusal(world.edit(chat, damaged.author, 9)), TargetNotFound)


@pytest.mark.parametrize("change", ["sequence = 6", "sequence = 9", "target = 2"])
async def test_damaged_table_of_edits_shows_no_text_of_another_message_and_erases_none(
    damaged: Damaged, change: str
) -> None:
    """The table has no checksums: what it names is looked at."""
    await amended(damaged)
    with edited(damaged.path) as database:
        database.execute(f"UPDATE edits SET {change} WHERE sequence = 8")
    await damaged.open()
    world, chat = damaged.world, damaged.chat
    found = await world.storage.messages_now(damaged.other, chat, range(1, 7))
    texts = {sequence: now.content for sequence, now in found.items() if now.content}
    assert texts in ({}, {1: "first edit 🌊"})
    victim = 2 if change.startswith("target") else 1
    conflict = await world.refusal(world.edit(chat, damaged.author, victim, base=5))
    assert isinstance(conflict, EditConflict)
    assert conflict.content in {"", "first edit 🌊"}
    refusal = await world.refusal(world.deletion(chat, damaged.author, victim))
    assert isinstance(refusal, StoreDamaged)
    assert [one.content for one in await damaged.synced()][:6] == [
        f"message {number} 🌊" for number in range(1, 7)
    ]
    assert "edits_exact" in violated(verify_engine(world.engine))


async def test_damaged_table_of_edits_shows_no_other_text_in_the_list_of_chats(
    damaged: Damaged,
) -> None:
    await damaged.open()
    world, chat = damaged.world, damaged.chat
    await world.store(world.edit(chat, damaged.author, 6, "later"))
    await store_of(world).close()
    with edited(damaged.path) as database:
        database.execute("UPDATE edits SET sequence = 2")
    await damaged.open()
    page = await world.storage.chat_list(damaged.other, cursor=None, count_max=5)
    shown = page.items[0].last_message
    assert shown is not None
    assert shown.preview == "message 6 🌊"


@pytest.mark.parametrize("deleted_by", [0, 1, 5, 8, 99])
async def test_message_that_only_seems_deleted_is_not_shown_as_deleted(
    damaged: Damaged, deleted_by: int
) -> None:
    """A client would erase its own copy, for good."""
    await damaged.open()
    world, chat = damaged.world, damaged.chat
    await world.append(
        world.reaction(chat, damaged.other, 2), world.deletion(chat, damaged.author, 4)
    )
    await store_of(world).close()
    damaged.change(3, f"deleted_by = {deleted_by}")
    await damaged.open()
    found = await world.storage.messages_now(damaged.other, chat, range(1, 7))
    assert {sequence for sequence, now in found.items() if now.is_deleted} == {4}
    assert (await damaged.synced())[2].is_damaged
