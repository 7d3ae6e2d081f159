"""Counts the request units of everything that passes to DynamoDB Local, by `units`' rules.

DynamoDB Local's own figures are wrong for transactions and for items that do not exist, so items
are measured here: those that are written are read before and after; these reads are not counted.
"""

import asyncio
from collections.abc import Sequence
from functools import cache
from typing import Any, Final, NamedTuple

from tidewire.engines.dynamodb import schema
from tidewire_bench.dynamodb_relay import Answer, Body, DynamoRelay, Request
from tidewire_bench.units import (
    Spent,
    Tally,
    cause_of,
    index_units,
    item_bytes,
    read_units,
    write_units,
)

KEYS_PER_GET_MAX: Final = 100
_WRITES: Final = {"PutItem": "Put", "UpdateItem": "Update", "DeleteItem": "Delete"}
_NEW: Final = "attribute_not_exists(#"

Items = dict[tuple[str, str], Body]
"""By the full name of the table and the key as text."""


class Write(NamedTuple):
    kind: str
    """Put, Update, Delete or ConditionCheck."""
    table: str
    """Its full name."""
    key: Body
    item: Body | None
    """The item of a put; None for the other kinds."""
    is_new: bool
    """The write succeeds only if there is no such item yet."""


class CountingProxy(DynamoRelay):
    """Passes requests on, and adds each to `tally`."""

    def __init__(self, upstream_port: int) -> None:
        super().__init__(upstream_port)
        self.tally = Tally()

    async def exchange(self, request: Request, reader: asyncio.StreamReader) -> Answer:
        operation, body = request.operation, request.body
        writes = _writes(operation, body)
        if writes:
            return await self._counted_writes(request, operation, writes)
        if operation in ("Query", "Scan"):
            request = request.asking(operation, body | {"ReturnConsumedCapacity": "TOTAL"})
        answer = await self.ask(request)
        self._count_reads(operation, body, answer)
        return answer

    # Writes.

    async def _counted_writes(
        self, request: Request, operation: str, writes: Sequence[Write]
    ) -> Answer:
        before = await self._items(request, [one for one in writes if not one.is_new])
        answer = await self.ask(request)
        is_done = answer.status == 200
        updates = [one for one in writes if one.kind == "Update"]
        after = await self._items(request, updates) if is_done else {}
        tables = frozenset(table_of(one.table).name for one in writes)
        for one in writes:
            table = table_of(one.table)
            old = before.get(_place(one.table, one.key))
            new = after.get(_place(one.table, one.key)) if one.kind == "Update" else one.item
            units = write_units(*(item_bytes(item) for item in (old, new) if item))
            if operation == "TransactWriteItems":
                units *= 2
            if is_done and one.kind != "ConditionCheck":
                units += index_units(table, old, new)
            cause = cause_of(operation, table.name, tables)
            self.tally.add(cause, table.name, Spent(writes=units))
        first = table_of(writes[0].table).name
        self._count_request(operation, first, tables)
        return answer

    async def _items(self, request: Request, writes: Sequence[Write]) -> Items:
        found: Items = {}
        for at in range(0, len(writes), KEYS_PER_GET_MAX):
            asked: dict[str, Any] = {}
            for one in writes[at : at + KEYS_PER_GET_MAX]:
                wanted = asked.setdefault(one.table, {"ConsistentRead": True, "Keys": []})
                wanted["Keys"].append(one.key)
            answer = await self.ask(request.asking("BatchGetItem", {"RequestItems": asked}))
            for name, items in answer.body["Responses"].items():
                for item in items:
                    found[_place(name, schema.key_of(table_of(name).name, item))] = item
        return found

    # Reads.

    def _count_reads(self, operation: str, body: Body, answer: Answer) -> None:
        if operation == "BatchGetItem" and answer.status == 200:
            asked, found = body["RequestItems"], answer.body["Responses"]
            tables = frozenset(table_of(name).name for name in asked)
            for name, wanted in asked.items():
                items = found.get(name, [])
                is_strong = wanted.get("ConsistentRead", False)
                sizes = [item_bytes(item) for item in items]
                sizes += [0] * (len(wanted["Keys"]) - len(items))
                units = sum(read_units(size, is_strong=is_strong) for size in sizes)
                table = table_of(name).name
                self.tally.add(cause_of(operation, table, tables), table, Spent(reads=units))
            first = table_of(next(iter(asked))).name
            self._count_request(operation, first, tables)
            return
        if "TableName" not in body:
            self._count_request(operation, "", frozenset())
            return
        table = table_of(body["TableName"]).name
        tables = frozenset([table])
        is_strong = body.get("ConsistentRead", False)
        units = 0.0
        if operation == "GetItem":
            units = read_units(item_bytes(answer.body.get("Item", {})), is_strong=is_strong)
        elif operation in ("Query", "Scan"):
            least = read_units(0, is_strong=is_strong)
            units = max(least, answer.body["ConsumedCapacity"]["CapacityUnits"])
        self.tally.add(cause_of(operation, table, tables), table, Spent(reads=units))
        self._count_request(operation, table, tables)

    def _count_request(self, operation: str, table: str, tables: frozenset[str]) -> None:
        self.tally.add(cause_of(operation, table, tables), operation, Spent(requests=1))


def _writes(operation: str, body: Body) -> list[Write]:
    if operation in _WRITES:
        return [_write(_WRITES[operation], body)]
    if operation == "TransactWriteItems":
        return [_write(kind, one) for each in body["TransactItems"] for kind, one in each.items()]
    if operation == "BatchWriteItem":
        return [
            _write(kind.removesuffix("Request"), one | {"TableName": name})
            for name, requests in body["RequestItems"].items()
            for each in requests
            for kind, one in each.items()
        ]
    return []


def _write(kind: str, body: Body) -> Write:
    table, item = body["TableName"], body.get("Item")
    key = body["Key"] if item is None else schema.key_of(table_of(table).name, item)
    is_new = kind == "Put" and body.get("ConditionExpression", "").startswith(_NEW)
    return Write(kind, table, key, item, is_new)


@cache
def table_of(name: str) -> schema.Table:
    """The table of this name, whatever prefix it has."""
    endings = [one for one in schema.TABLES if name == one.name or name.endswith("_" + one.name)]
    return max(endings, key=lambda one: len(one.name))


def _place(table: str, key: Body) -> tuple[str, str]:
    return table, repr(sorted(key.items()))
