"""A log whose tables were restored as of different instants, and what is made of it."""

import asyncio
from itertools import pairwise

import pytest

from tests.support.dynamodb import a_backdoor
from tests.support.engines import DynamoHarness
from tests.support.inspectors import verify_engine, violated
from tests.support.world import World
from tidewire.domain.fold import AS_WRITTEN, fold
from tidewire.domain.ids import ChatId, UserId
from tidewire.engines.dynamodb import rows, schema
from tidewire.engines.dynamodb.restoring import Restored, after_restore
from tidewire.engines.dynamodb.rows import Row

pytestmark = pytest.mark.slow
"""Whole tables are copied."""

SECRET = "the secret"
LOG = (schema.MESSAGES, schema.AMENDMENTS, schema.REACTIONS, schema.KEYS, schema.CHATS)


async def copied(world: World, table: str) -> list[Row]:
    assert isinstance(world.engine, DynamoHarness)
    async with a_backdoor(world.engine.tables.options) as database:
        found, _ = await database.scan_page(table, limit=1_000, start=None)
        return found


async def put_back(world: World, table: str, copy: list[Row]) -> None:
    assert isinstance(world.engine, DynamoHarness)
    now = await copied(world, table)
    async with a_backdoor(world.engine.tables.options) as database:
        await database.delete_many(table, [schema.key_of(table, row) for row in now])
        for row in copy:
            await database.write(rows.put(table, row))


async def mended(world: World) -> Restored:
    assert isinstance(world.engine, DynamoHarness)
    options = world.engine.tables.options
    done = await asyncio.to_thread(
        after_restore,
        options,
        now_ms=world.now(),
        keep_sessions=True,
        progress=lambda _done, _total: None,
    )
    await world.engine.reopen()
    return done


async def check_whole(world: World, chat: ChatId, people: list[UserId]) -> None:
    """Every page is there, what messages are now is what the entries say, and writing goes on."""
    entries = await world.messages(people[0], chat)
    assert entries == await world.engine.messages(chat)
    links = [(one.prev_sequence, one.sequence) for one in entries]
    assert links == list(pairwise([0, *(one.sequence for one in entries)]))
    messages = {one.sequence for one in entries if one.amends is None}
    for reader in people:
        folded = dict.fromkeys(messages, AS_WRITTEN)
        for entry in entries:
            if entry.amends is not None:
                target = entry.amends.target
                folded[target] = fold(folded[target], entry, reader)
        found = await world.storage.messages_now(reader, chat, [one.sequence for one in entries])
        for sequence, now in folded.items():
            shown = found.get(sequence, AS_WRITTEN)
            # A message stays deleted also if its deletion is gone.
            assert shown.is_deleted or shown == now
            assert now.is_deleted <= shown.is_deleted
    # It stays deleted, and verify tells that an entry which was acknowledged has not come back.
    there = {one.sequence for one in entries}
    is_deletion_lost = any(one.deleted_by not in {None, *there} for one in entries)
    expected = ["deleted_is_erased"] if is_deletion_lost else []
    assert violated(verify_engine(world.engine)) == expected
    item = (await world.storage.chat_list(people[0], cursor=None, count_max=5)).items[0]
    assert item.last_message is not None
    assert item.last_message.sequence == max(messages)
    head = entries[-1].sequence
    for target in messages:
        if not (await world.now_of(people[0], chat, target)).is_deleted:
            await world.store(world.reaction(chat, people[1], target, "🎉"))
            await world.store(world.edit(chat, people[0], target))
            await world.store(world.deletion(chat, people[0], target))
    assert (await world.send(chat, people[0])).prev_sequence > head


@pytest.mark.parametrize("older", LOG)
@pytest.mark.parametrize("is_other", [False, True], ids=["older", "newer"])
async def test_tables_of_different_age_are_mended(
    direct: World, older: str, is_other: bool
) -> None:
    """One table is older than all others, or the only one that is newer."""
    people = await direct.people(3)
    anna, ben, cleo = people
    chat = await direct.group(anna, ben, cleo)
    await direct.append(*(direct.draft(chat, anna, f"{n}") for n in range(3)))
    await direct.store(direct.draft(chat, anna, SECRET))
    await direct.append(direct.edit(chat, anna, 4, SECRET), direct.edit(chat, anna, 1, "one"))
    await direct.append(direct.reaction(chat, ben, 1), direct.reaction(chat, cleo, 2))
    copies = {table: await copied(direct, table) for table in LOG}
    await direct.append(
        direct.draft(chat, anna, "five", mentions=(ben,)),
        direct.edit(chat, anna, 1, "once more"),
        direct.reaction(chat, cleo, 1),
        direct.reaction(chat, cleo, 2, is_on=False),
        direct.reaction(chat, ben, 3, "😢"),
        direct.deletion(chat, anna, 4),
        direct.draft(chat, anna, "six"),
        direct.reaction(chat, ben, 9),
        direct.edit(chat, anna, 9, "five, corrected"),
    )
    for table, copy in copies.items():
        if (table == older) != is_other:
            await put_back(direct, table, copy)
    done = await mended(direct)
    stored = str(await direct.engine.messages(chat))
    was_erased = (older in (schema.MESSAGES, schema.AMENDMENTS)) or not is_other
    assert (SECRET not in stored) == was_erased
    if was_erased:
        for row in await copied(direct, schema.KEYS):
            assert "content_hash" not in row or row["sequence"] not in (4, 5)
    assert (await mended(direct)).entries_mended == 0
    assert done.chats == 1
    await check_whole(direct, chat, people)


async def test_store_that_needs_no_mending_stays_as_it_is(direct: World) -> None:
    anna, ben = await direct.people(2)
    chat = await direct.direct(anna, ben)
    await direct.send_many(chat, anna, 2)
    await direct.append(
        direct.reaction(chat, ben, 1),
        direct.edit(chat, anna, 2),
        direct.deletion(chat, anna, 1),
        direct.reaction(chat, ben, 2),
    )
    before = await direct.engine.messages(chat)
    done = await mended(direct)
    assert (done.entries_mended, done.heads_moved) == (0, 0)
    assert await direct.engine.messages(chat) == before
