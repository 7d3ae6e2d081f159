"""Tables in DynamoDB Local for tests: one set for each test process, emptied instead of made anew.

Scanning all tables would take longer than most tests, so the keys of all written rows are noted,
and exactly these rows are deleted before the next test.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Final

from tests.support import stack
from tidewire.domain.accounts import Secret
from tidewire.engines.dynamodb.database import Database
from tidewire.engines.dynamodb.options import DynamoOptions
from tidewire.engines.dynamodb.rows import Item
from tidewire.engines.dynamodb.schema import BY_NAME, TABLES, Table
from tidewire.engines.dynamodb.storage import DynamoStorage
from tidewire.engines.dynamodb.tables import create_tables

PATIENCE_MS: Final = 30_000
"""Long, because a busy machine is no fault: tests of time limits use a proxy that holds answers
back."""
DELETES_MAX: Final = 25

Call = Callable[..., Awaitable[dict[str, Any]]]
Written = dict[tuple[str, str], Item]

_written: dict[str, Written] = {}
"""By table prefix: the keys of the rows that were written. No entry: what is there is unknown."""


def local_options(port: int, **changed: Any) -> DynamoOptions:
    worker = os.environ.get("PYTEST_XDIST_WORKER", "main")
    settings: dict[str, Any] = {
        "table_prefix": f"test_{worker}_",
        "region": "local",
        "endpoint_url": f"http://127.0.0.1:{port}",
        "access_key": "local",
        "secret_key": Secret("local"),
        "attempt_ms": PATIENCE_MS,
        "budget_ms": 2 * PATIENCE_MS,
    }
    return DynamoOptions(**(settings | changed))


STAYS: Final[list[tuple[str, Item]]] = [
    ("store", {"name": {"S": name}}) for name in ("epoch", "schema_version")
]


class LocalTables:
    """All tables of a store; `prepare` empties them once, except for epoch and schema version."""

    def __init__(self) -> None:
        self._is_prepared = False
        self._options: DynamoOptions | None = None

    @property
    def options(self) -> DynamoOptions:
        if self._options is None:
            self._options = local_options(stack.ensure("dynamodb"))
        return self._options

    async def prepare(self) -> None:
        if self._is_prepared:
            return
        self._is_prepared = True
        prefix = self.options.table_prefix
        async with a_backdoor(self.options) as database:
            if prefix not in _written:
                await create_tables(database)
                keys = await asyncio.gather(*(_keys(database, table) for table in TABLES))
                found = zip(TABLES, keys, strict=True)
                rows = [(table.name, key) for table, keys in found for key in keys]
            else:
                rows = [(table, key) for (table, _), key in _written[prefix].items()]
            await _delete(database, [row for row in rows if row not in STAYS])
        _written[prefix] = {}


def watch(storage: DynamoStorage, options: DynamoOptions) -> None:
    """Note the key of every row that the store may write."""
    database = storage._database
    call: Call = database.call

    async def watched(operation: str, **request: Any) -> dict[str, Any]:
        writes = request.get("TransactItems") or [{operation: request}]
        for [(kind, body)] in (write.items() for write in writes):
            if kind in ("Put", "Update", "put_item", "update_item"):
                _note(options.table_prefix, body)
        return await call(operation, **request)

    setattr(database, "call", watched)  # noqa: B010 - a method, as mypy sees it


def _note(prefix: str, body: dict[str, Any]) -> None:
    name = body["TableName"].removeprefix(prefix)
    row: Item = body.get("Key") or body["Item"]
    key = {field: row[field] for field in BY_NAME[name].keys}
    _written[prefix][name, repr(key)] = key


@asynccontextmanager
async def a_backdoor(options: DynamoOptions) -> AsyncIterator[Database]:
    """Access to the tables without the engine."""
    async with Database.connect(options) as database:
        with database.within_budget():
            yield database


async def _keys(database: Database, table: Table) -> list[Item]:
    found: list[Item] = []
    request: dict[str, Any] = {
        "TableName": database.name_of(table.name),
        "ProjectionExpression": ", ".join(f"#{key}" for key in table.keys),
        "ExpressionAttributeNames": {f"#{key}": key for key in table.keys},
    }
    while True:
        answer = await database.call("scan", **request)
        found += answer["Items"]
        if "LastEvaluatedKey" not in answer:
            return found
        request["ExclusiveStartKey"] = answer["LastEvaluatedKey"]


async def _delete(database: Database, rows: list[tuple[str, Item]]) -> None:
    for start in range(0, len(rows), DELETES_MAX):
        deletes: dict[str, list[Any]] = {}
        for table, key in rows[start : start + DELETES_MAX]:
            requests = deletes.setdefault(database.name_of(table), [])
            requests.append({"DeleteRequest": {"Key": key}})
        answer = await database.call("batch_write_item", RequestItems=deletes)
        assert not answer.get("UnprocessedItems")
