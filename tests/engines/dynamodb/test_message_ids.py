"""A message is found by its id: where the id says, or by the index if an older release made it."""

from collections.abc import AsyncIterator

import pytest

from tests.engines.dynamodb.test_moves import version_write, write
from tests.support.dynamodb import a_backdoor
from tests.support.engines import DynamoHarness
from tests.support.inspectors import verify_engine, violated
from tests.support.world import World
from tidewire.domain.errors import MessageNotFound
from tidewire.domain.ids import ChatId, MessageId, UlidSource, place_in, placed
from tidewire.engines.dynamodb import rows, schema, schema_version
from tidewire.engines.dynamodb.entries import PLACED_ID
from tidewire.engines.dynamodb.storage import DynamoStorage

pytestmark = pytest.mark.slow
"""Tables are emptied for each."""


async def message_row(world: World, chat_id: ChatId, sequence: int) -> rows.Row:
    assert isinstance(world.engine, DynamoHarness)
    async with a_backdoor(world.engine.tables.options) as database:
        found = await database.get(schema.MESSAGES, {"chat_id": chat_id, "sequence": sequence})
    assert found is not None
    return found


@pytest.fixture
async def before(direct: World) -> AsyncIterator[World]:
    """A store that is not upgraded yet: processes of the last release still read it."""
    await write(direct, version_write(schema_version.MARKS))
    assert isinstance(direct.storage, DynamoStorage)
    direct.storage._version = schema_version.SeenVersion(schema_version.MARKS)
    yield direct
    await write(direct, version_write())


async def test_id_leads_to_its_message_without_an_index(direct: World) -> None:
    anna, ben = await direct.people(2)
    chat = await direct.group(anna, ben)
    sent = [await direct.send(chat, anna) for _ in range(3)]
    assert [place_in(one.message_id) for one in sent] == [one.sequence for one in sent]
    row = await message_row(direct, chat, sent[1].sequence)
    assert "message_id" not in row, "the index is of this attribute"
    found = await direct.storage.message(ben, chat, sent[1].message_id)
    assert (found.sequence, found.message_id) == (sent[1].sequence, sent[1].message_id)
    assert violated(verify_engine(direct.engine)) == []


async def test_id_with_the_place_of_another_message_is_not_found(direct: World) -> None:
    anna, ben = await direct.people(2)
    chat = await direct.group(anna, ben)
    first, _ = [await direct.send(chat, anna) for _ in range(2)]
    for sequence in (2, 3):
        with pytest.raises(MessageNotFound):
            await direct.storage.message(ben, chat, placed(first.message_id, sequence))


async def test_message_of_an_earlier_release_is_found_by_the_index(direct: World) -> None:
    anna, ben = await direct.people(2)
    chat = await direct.group(anna, ben)
    sent = await direct.send(chat, anna)
    row = await message_row(direct, chat, sent.sequence)
    del row[PLACED_ID]
    earlier = UlidSource(lambda bits: 1 << bits - 1).message_id(sent.created_at_ms)
    await write(direct, rows.put(schema.MESSAGES, row | {"message_id": earlier}))
    found = await direct.storage.message(ben, chat, earlier)
    assert (found.sequence, found.message_id) == (sent.sequence, earlier)
    assert [one.message_id for one in await direct.messages(ben, chat)] == [earlier]
    assert violated(verify_engine(direct.engine)) == []


async def test_ids_go_into_the_index_until_the_store_is_upgraded(
    before: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    anna, ben = await before.people(2)
    chat = await before.group(anna, ben)
    first = await before.send(chat, anna)
    assert (await message_row(before, chat, 1))["message_id"] == first.message_id
    monkeypatch.setattr(schema_version, "LOOK_SECONDS", 0.0)
    await write(before, version_write())
    assert isinstance(before.storage, DynamoStorage)
    before.storage._version._look_at_s = 0.0
    second = await before.send(chat, anna)
    assert "message_id" not in await message_row(before, chat, 2)
    for one in (first, second):
        assert (await before.storage.message(ben, chat, one.message_id)).sequence == one.sequence
    assert violated(verify_engine(before.engine)) == []


async def test_verify_finds_an_id_that_leads_elsewhere(direct: World) -> None:
    anna, ben = await direct.people(2)
    chat = await direct.group(anna, ben)
    await direct.send_many(chat, anna, 2)
    row = await message_row(direct, chat, 1)
    wrong = MessageId(placed(MessageId(row[PLACED_ID]), 7))
    await write(direct, rows.put(schema.MESSAGES, row | {PLACED_ID: wrong}))
    assert "message_ids_exact" in violated(verify_engine(direct.engine))
