"""The counting proxy in front of a real DynamoDB Local: what an engine's requests cost."""

from collections.abc import AsyncIterator

import pytest

from tests.support import stack
from tests.support.dynamodb import LocalTables, local_options, watch
from tests.support.world import World
from tidewire.engines.dynamodb import rows, schema
from tidewire.engines.dynamodb.database import Database
from tidewire.engines.dynamodb.errors import Cancelled, ConditionFailed
from tidewire.engines.dynamodb.storage import DynamoStorage
from tidewire_bench.counting import CountingProxy, table_of
from tidewire_bench.units import Spent

CHAT = {"chat_id": "chat_counted"}


@pytest.fixture
async def proxy(direct: World) -> AsyncIterator[CountingProxy]:
    async with CountingProxy.running(stack.ensure("dynamodb")) as running:
        yield running


@pytest.fixture
async def database(proxy: CountingProxy) -> AsyncIterator[Database]:
    options = local_options(proxy.port)
    await LocalTables().prepare()
    storage = await DynamoStorage.open(options)
    watch(storage, options)
    with storage._database.within_budget():
        yield storage._database
    await storage.close()


async def spent(proxy: CountingProxy, before: Spent) -> Spent:
    return proxy.tally.total() - before


async def test_write_counts_the_larger_image_and_its_index_entry(
    proxy: CountingProxy, database: Database
) -> None:
    message: rows.Row = CHAT | {"sequence": 1, "message_id": "m", "content": "x" * 1500}
    key = CHAT | {"sequence": 1}
    steps = [
        (rows.put_new(schema.MESSAGES, message), 2 + 1),
        (rows.put(schema.MESSAGES, key | {"message_id": "m"}), 2),
        (rows.put(schema.MESSAGES, key | {"message_id": "n"}), 1 + 2),
        (rows.change(schema.MESSAGES, key, {"content": "y" * 2500}, where={}), 3),
        (rows.delete(schema.MESSAGES, key), 3 + 1),
        (rows.delete(schema.MESSAGES, key), 1),
    ]
    for write, units in steps:
        before = proxy.tally.total()
        await database.write(write)
        assert await spent(proxy, before) == Spent(writes=units, requests=1), write


async def test_transaction_counts_twice_with_its_checks_also_when_cancelled(
    proxy: CountingProxy, database: Database
) -> None:
    counter: rows.Row = CHAT | {"sequence_counter": 1}
    await database.write(rows.put(schema.COUNTERS, counter))
    message: rows.Row = CHAT | {"sequence": 1, "message_id": "m"}
    check = rows.check(schema.COUNTERS, CHAT, "attribute_exists(#chat_id)")
    writes = [rows.put_new(schema.MESSAGES, message), check]
    before = proxy.tally.total()
    await database.transact(writes)
    assert await spent(proxy, before) == Spent(writes=2 + 1 + 2, requests=1)
    before = proxy.tally.total()
    with pytest.raises(Cancelled):
        await database.transact(writes)
    # Nothing came into the index.
    assert await spent(proxy, before) == Spent(writes=2 + 2, requests=1)


async def test_failed_condition_is_paid_for(proxy: CountingProxy, database: Database) -> None:
    counter: rows.Row = CHAT | {"sequence_counter": 1}
    await database.write(rows.put(schema.COUNTERS, counter))
    before = proxy.tally.total()
    with pytest.raises(ConditionFailed):
        await database.write(rows.put_new(schema.COUNTERS, counter))
    assert await spent(proxy, before) == Spent(writes=1, requests=1)


async def test_reads_count_each_item_also_one_that_is_not_there(
    proxy: CountingProxy, database: Database
) -> None:
    big: rows.Row = CHAT | {"sequence_counter": 1, "filler": "x" * 5000}
    await database.write(rows.put(schema.COUNTERS, big))
    other = {"chat_id": "chat_absent"}
    before = proxy.tally.total()
    assert await database.get(schema.COUNTERS, CHAT)
    assert await spent(proxy, before) == Spent(reads=2, requests=1)
    before = proxy.tally.total()
    assert await database.get(schema.COUNTERS, other) is None
    assert await spent(proxy, before) == Spent(reads=1, requests=1)
    before = proxy.tally.total()
    await database.get_many([(schema.COUNTERS, CHAT), (schema.COUNTERS, other)])
    assert await spent(proxy, before) == Spent(reads=3, requests=1)


async def test_query_counts_what_it_looked_at_as_a_whole(
    proxy: CountingProxy, database: Database
) -> None:
    for sequence in range(1, 4):
        row: rows.Row = CHAT | {"sequence": sequence, "content": "x" * 3000}
        await database.write(rows.put(schema.MESSAGES, row | {"message_id": str(sequence)}))
    before = proxy.tally.total()
    await database.query(schema.MESSAGES, CHAT["chat_id"], fields="#sequence")
    assert await spent(proxy, before) == Spent(reads=3, requests=1)
    before = proxy.tally.total()
    assert await database.query(schema.MESSAGES, "chat_absent") == []
    assert await spent(proxy, before) == Spent(reads=1, requests=1)


async def test_batch_of_deletes_counts_each(proxy: CountingProxy, database: Database) -> None:
    before = proxy.tally.total()
    await database.delete_many(schema.COUNTERS, [CHAT, {"chat_id": "chat_absent"}])
    assert await spent(proxy, before) == Spent(writes=2, requests=1)


def test_table_is_known_whatever_stands_before_its_name() -> None:
    assert table_of("bench_user_chats").name == schema.USER_CHATS
    assert table_of("bench_chats").name == schema.CHATS
