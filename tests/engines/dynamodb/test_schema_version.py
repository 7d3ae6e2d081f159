"""The schema version of a store: new with a new store, raised once, never passed over."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from tests.engines.dynamodb.test_tables import drop_tables
from tests.support.dynamodb import a_backdoor, local_options
from tests.support.stack import ensure
from tidewire.domain.errors import StoreUnusable
from tidewire.engines.dynamodb import rows, schema
from tidewire.engines.dynamodb.database import Database
from tidewire.engines.dynamodb.options import DynamoOptions
from tidewire.engines.dynamodb.schema_version import (
    FIRST,
    KEY,
    NEWEST,
    SeenVersion,
    raise_version,
    read_version,
)
from tidewire.engines.dynamodb.storage import DynamoStorage
from tidewire.engines.dynamodb.tables import check_tables, create_tables, upgrade

pytestmark = pytest.mark.slow
"""Tables are made."""


@pytest.fixture
def options() -> DynamoOptions:
    return local_options(ensure("dynamodb"), table_prefix="test_version_")


@pytest.fixture
async def database(options: DynamoOptions) -> AsyncIterator[Database]:
    """A store that was just made."""
    await drop_tables(options)
    async with a_backdoor(options) as opened:
        await create_tables(opened)
        yield opened
    await drop_tables(options)


async def test_new_store_has_the_newest_version(database: Database) -> None:
    assert await read_version(database) == NEWEST
    assert await raise_version(database) == []
    assert await check_tables(database) == []


async def test_store_of_0_1_0_keeps_its_version_until_it_is_upgraded(
    database: Database, options: DynamoOptions
) -> None:
    """A process that runs sees it within a moment, and does not look all the time."""
    await database.write(rows.delete(schema.STORE, KEY))
    # What an upgrade begins with: tables that are new are made, and nothing else changes.
    await database.call("delete_table", TableName=database.name_of(schema.BLOCKS))
    with pytest.raises(StoreUnusable, match="cluster init"):
        await upgrade(database)
    assert await create_tables(database) == [schema.BLOCKS]
    assert await read_version(database) == FIRST
    [fault] = await check_tables(database)
    assert "tidewire cluster upgrade" in fault
    storage = await DynamoStorage.open(options)
    assert not storage._version.has(NEWEST)
    assert not await storage.takes_entries()
    done = await asyncio.gather(upgrade(database), upgrade(database))
    assert [f"schema version {NEWEST}"] in done
    assert await upgrade(database) == []
    assert await read_version(database) == NEWEST
    assert not await storage.takes_entries(), "it was looked at a moment ago"
    storage._version._look_at_s = 0.0
    assert await storage.takes_entries()
    await storage.close()
    assert await check_tables(database) == []


async def test_store_of_a_later_release_is_not_opened_and_not_lowered(
    database: Database, options: DynamoOptions
) -> None:
    later = NEWEST + 1
    await database.write(rows.put(schema.STORE, KEY | {"value": later}))
    with pytest.raises(StoreUnusable, match=f"schema version {later}"):
        await DynamoStorage.open(options)
    with pytest.raises(StoreUnusable, match=f"schema version {later}"):
        await upgrade(database)
    assert await read_version(database) == later


def test_version_that_was_seen_never_falls() -> None:
    seen = SeenVersion(FIRST)
    assert not seen.has(NEWEST)
    seen.see({"value": NEWEST})
    assert seen.has(NEWEST)
    seen.see(None)
    assert seen.has(NEWEST)
