"""Makes the tables of a store, and says what is wrong with them."""

import asyncio
import secrets
from typing import Any, Final

from botocore.exceptions import ClientError

from tidewire.domain.errors import StoreUnavailable, StoreUnusable
from tidewire.engines.dynamodb import rows, schema, schema_version
from tidewire.engines.dynamodb.database import Database
from tidewire.engines.dynamodb.schema import TABLES, TTL, Table

EPOCH_BYTES: Final = 8
READY_SECONDS_MAX: Final = 120
READY_PAUSE_SECONDS: Final = 0.25


async def create_tables(database: Database) -> list[str]:
    """Make missing tables, and the epoch; return what was made. What is there stays as it is, also
    the schema version: processes of an earlier release may still use the store."""
    made = []
    for table in TABLES:
        if await _described(database, table) is None:
            await _created(database, table)
            made.append(table.name)
    await asyncio.gather(*(_ready(database, table) for table in TABLES))
    for table in TABLES:
        if table.expires and not await _expires(database, table):
            await _ask(
                database,
                "update_time_to_live",
                TableName=database.name_of(table.name),
                TimeToLiveSpecification={"Enabled": True, "AttributeName": TTL},
            )
    epoch: rows.Row = {"name": "epoch", "value": secrets.token_hex(EPOCH_BYTES)}
    with database.within_budget():
        new_store = [rows.put_new(schema.STORE, epoch), schema_version.newest_row()]
        if await database.commit(new_store):
            made.append("epoch")
    return made


async def check_tables(database: Database) -> list[str]:
    """How the tables differ from what is needed, in words."""
    faults = []
    for table in TABLES:
        found = await _described(database, table)
        if found is None:
            faults.append(f"{table.name}: there is no such table")
            continue
        faults += schema.differences(table, found, database.name_of(""))
        if found["TableStatus"] not in ("ACTIVE", "UPDATING"):
            faults.append(f"{table.name}: it is {found['TableStatus']}")
        if table.expires and not await _expires(database, table):
            faults.append(f"{table.name}: rows do not expire by {TTL}")
    if not any(fault.startswith(schema.STORE) for fault in faults):
        with database.within_budget():
            if await database.get(schema.STORE, {"name": "epoch"}) is None:
                faults.append("store: there is no epoch")
        version = await schema_version.read_version(database)
        if version != schema_version.NEWEST:
            faults.append(
                f"store: its schema version is {version}, that of this release "
                f"{schema_version.NEWEST}; when every process is of this release, "
                "run 'tidewire cluster upgrade'"
            )
    return faults


async def check_there(database: Database) -> list[str]:
    """Raises StoreUnusable if a table is missing."""
    for table in TABLES:
        if await _described(database, table) is None:
            raise StoreUnusable(f"the table {table.name} is missing; run 'tidewire cluster init'")
    return []


async def upgrade(database: Database) -> list[str]:
    """Let processes write what earlier releases did not know; return what was done."""
    await check_there(database)
    return await schema_version.raise_version(database)


async def read_epoch(database: Database) -> str:
    with database.within_budget():
        row = await database.get(schema.STORE, {"name": "epoch"})
    if row is None:
        raise StoreUnusable("the store has no epoch; run 'tidewire cluster init'")
    epoch: str = row["value"]
    return epoch


async def disagree(database: Database, name: str) -> list[str]:
    """Forget a value that all processes share (`DynamoStorage.agree`): one of them sets another."""
    with database.within_budget():
        await database.write(rows.delete(schema.STORE, {"name": name}))
    return [name]


async def _ask(database: Database, operation: str, **request: Any) -> dict[str, Any]:
    """A request about a table, with its own budget, which `engine` makes longer than for rows."""
    with database.within_budget():
        return await database.call(operation, **request)


async def _described(database: Database, table: Table) -> dict[str, Any] | None:
    try:
        answer = await _ask(database, "describe_table", TableName=database.name_of(table.name))
    except StoreUnusable as missing:
        if isinstance(missing.__cause__, ClientError):
            return None
        raise
    described: dict[str, Any] = answer["Table"]
    return described


async def _created(database: Database, table: Table) -> None:
    try:
        await _ask(database, "create_table", **schema.definition(table, database.name_of("")))
    except StoreUnavailable:
        # Another process may have been faster, or the answer was lost: look if the table is there.
        if await _described(database, table) is None:
            raise


async def _ready(database: Database, table: Table) -> None:
    async with asyncio.timeout(READY_SECONDS_MAX):
        while True:
            found = await _described(database, table)
            if found is not None and found["TableStatus"] == "ACTIVE":
                return
            await asyncio.sleep(READY_PAUSE_SECONDS)


async def _expires(database: Database, table: Table) -> bool:
    answer = await _ask(database, "describe_time_to_live", TableName=database.name_of(table.name))
    found = answer["TimeToLiveDescription"]
    return found["TimeToLiveStatus"] in ("ENABLED", "ENABLING") and found["AttributeName"] == TTL
