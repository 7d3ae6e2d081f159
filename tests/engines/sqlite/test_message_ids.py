"""A message is found by the place in its id; the index of ids is for those that carry none."""

import pytest

from tests.engines.sqlite.inspected import edited, one, verify_file, violated
from tests.engines.sqlite.store import Stores, pair_in, store_of
from tests.engines.sqlite.test_checksum_migration import migrate, without_checksums
from tests.support.world import World
from tidewire.domain.errors import MessageNotFound
from tidewire.domain.ids import PLACE_MAX, ClientMessageId, MessageId, place_in, placed
from tidewire.engines.sqlite.checksums import fill_checksums
from tidewire.engines.sqlite.migrate import migrations
from tidewire.engines.sqlite.stored import IS_INDEXED

COUNT_INDEXED = f"SELECT count(*) FROM messages INDEXED BY messages_by_id WHERE {IS_INDEXED}"
ROOT_PAGE = "SELECT rootpage FROM sqlite_schema WHERE name = 'messages_by_id'"
EARLIER = MessageId("msg_01J9ZK4T7Q2M8V5RXB3N6C0DHE")
NEW_KEY = ClientMessageId("00000000-0000-4000-8000-00000000cafe")
AS_BEFORE = f"""
UPDATE messages SET is_placed = NULL;
UPDATE messages SET message_id = '{EARLIER}' WHERE sequence = 2;
"""


async def reopened(stores: Stores, world: World) -> World:
    await store_of(world).close()
    return await stores.open(directory=store_of(world).path.parent)


async def test_message_that_is_appended_is_in_no_index_of_ids(stores: Stores) -> None:
    world = await stores.open()
    chat, ann, bob = await pair_in(world)
    acks = [await world.send(chat, ann) for _ in range(5)]
    assert one(store_of(world).path, COUNT_INDEXED) == 0
    for ack in acks:
        found = await world.storage.message(bob, chat, ack.message_id)
        assert (found.sequence, found.message_id) == (ack.sequence, ack.message_id)
    for unknown in (EARLIER, placed(EARLIER, 3), MessageId("no id")):
        with pytest.raises(MessageNotFound):
            await world.storage.message(bob, chat, unknown)


async def test_message_of_another_chat_is_not_found_by_its_place(stores: Stores) -> None:
    world = await stores.open()
    chat, ann, _ = await pair_in(world)
    ack = await world.send(chat, ann)
    group = await world.group(ann)
    await world.send(group, ann)
    with pytest.raises(MessageNotFound):
        await world.storage.message(ann, group, ack.message_id)


async def test_ids_of_a_store_of_before_are_found(stores: Stores) -> None:
    world = await stores.open()
    chat, ann, bob = await pair_in(world)
    await world.send_many(chat, ann, 3)
    path = store_of(world).path
    with edited(path) as database:
        database.execute(AS_BEFORE).fetchall()
        fill_checksums(database)
        assert one(path, COUNT_INDEXED) == 3
    world = await reopened(stores, world)
    later = await world.send(chat, ann, key=NEW_KEY)
    assert one(path, COUNT_INDEXED) == 3
    assert (await world.storage.message(bob, chat, EARLIER)).sequence == 2
    assert (await world.storage.message(bob, chat, later.message_id)).sequence == 4
    report = verify_file(path)
    assert (violated(report), report.counts.message_ids) == ([], 4)


async def test_number_that_fits_into_no_id_is_indexed(stores: Stores) -> None:
    world = await stores.open()
    chat, ann, bob = await pair_in(world)
    path = store_of(world).path
    with edited(path) as database:
        database.execute("UPDATE chat_counters SET sequence_counter = ?", (PLACE_MAX - 1,))
    world = await reopened(stores, world)
    acks = [await world.send(chat, ann) for _ in range(3)]
    assert [ack.sequence for ack in acks] == [PLACE_MAX, PLACE_MAX + 1, PLACE_MAX + 2]
    assert one(path, COUNT_INDEXED) == 2
    for ack in acks:
        assert (await world.storage.message(bob, chat, ack.message_id)).sequence == ack.sequence
    assert violated(verify_file(path)) == []


async def test_id_that_leads_elsewhere_is_found_by_verify(stores: Stores) -> None:
    world = await stores.open()
    chat, ann, _ = await pair_in(world)
    acks = [await world.send(chat, ann) for _ in range(3)]
    assert [place_in(ack.message_id) for ack in acks] == [1, 2, 3]
    path = store_of(world).path
    await store_of(world).close()
    with edited(path) as database:
        database.execute("UPDATE messages SET message_id = ? WHERE sequence = 2", (EARLIER,))
        fill_checksums(database)
    assert violated(verify_file(path)) == ["message_ids_exact"]


def test_migration_names_the_numbers_that_fit_into_no_id() -> None:
    assert f"WHERE {IS_INDEXED};" in migrations()[10].sql


async def test_index_of_a_store_of_before_stays_as_it_is(stores: Stores) -> None:
    world = await stores.open()
    chat, ann, bob = await pair_in(world)
    acks = [await world.send(chat, ann) for _ in range(3)]
    path = store_of(world).path
    await store_of(world).close()
    without_checksums(path)
    page = one(path, ROOT_PAGE)
    migrate(path)
    assert one(path, ROOT_PAGE) == page
    assert one(path, COUNT_INDEXED) == 3
    assert one(path, "PRAGMA integrity_check") == "ok"
    world = await reopened(stores, world)
    for ack in acks:
        assert (await world.storage.message(bob, chat, ack.message_id)).sequence == ack.sequence
