"""What the tests of entries share: both doors to a store, and looks into its rows."""

from typing import Any

from tests.engines.dynamodb.conftest import Behind
from tests.support.dynamodb import a_backdoor
from tests.support.engines import DynamoHarness
from tests.support.world import World
from tidewire.domain.ids import ChatId, ClientMessageId
from tidewire.domain.messages import AppendOutcome, SendMessage
from tidewire.engines.dynamodb import schema
from tidewire.engines.dynamodb.rows import Row
from tidewire.engines.dynamodb.storage import DynamoStorage

TRANSACT = "TransactWriteItems"
SECRET = "the secret"


def store_of(world: World) -> DynamoStorage:
    assert isinstance(world.storage, DynamoStorage)
    return world.storage


async def append(behind: Behind, world: World, *drafts: SendMessage) -> list[AppendOutcome]:
    return await behind.storage.append(drafts, now_ms=world.now())


async def row_of(world: World, table: str, key: dict[str, Any]) -> Row | None:
    assert isinstance(world.engine, DynamoHarness)
    async with a_backdoor(world.engine.tables.options) as database:
        return await database.get(table, key)


async def reaction_rows(world: World, chat: ChatId) -> list[Row]:
    assert isinstance(world.engine, DynamoHarness)
    async with a_backdoor(world.engine.tables.options) as database:
        return await database.query(schema.REACTIONS, chat)


async def key_of(world: World, chat: ChatId, key: ClientMessageId) -> Row:
    found = await row_of(world, schema.KEYS, {"chat_id": chat, "client_message_id": key})
    assert found is not None
    return found
