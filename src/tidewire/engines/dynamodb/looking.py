"""Synchronous access to the tables, for an operator's inspection and repair; need not be fast.

Reads whole tables, which no server does. The vendor's own retries are on: no client waits for this.
"""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from heapq import merge
from itertools import chain, islice
from operator import itemgetter
from typing import Any, Final, Unpack
from uuid import uuid4

from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError
from botocore.session import get_session

from tidewire.domain.errors import StoreUnavailable, StoreUnusable
from tidewire.engines.dynamodb import rows, schema
from tidewire.engines.dynamodb.backoff import hindrance_of
from tidewire.engines.dynamodb.errors import Cancelled, code_of, translated
from tidewire.engines.dynamodb.options import DynamoOptions
from tidewire.engines.dynamodb.rows import Row, Value, Write

ATTEMPTS_MAX: Final = 5
CONFLICTS_MAX: Final = 10
KEYS_PER_GET_MAX: Final = 100
ENTRIES_PER_CHUNK: Final = 1_000

Place = tuple[str, Mapping[str, Value]]
"""A table, and a key in it."""


class Tables:
    """The tables of one store; each row is read with strong consistency."""

    def __init__(self, options: DynamoOptions) -> None:
        config = Config(retries={"total_max_attempts": ATTEMPTS_MAX, "mode": "standard"})
        self._prefix = options.table_prefix
        self._client = get_session().create_client(
            "dynamodb", config=config, **options.client_arguments()
        )

    def close(self) -> None:
        self._client.close()

    def call(self, operation: str, table: str | None = None, **request: Any) -> dict[str, Any]:
        if table is not None:
            request |= {"TableName": self._prefix + table}
        try:
            answer: dict[str, Any] = getattr(self._client, operation)(**request)
        except ClientError as error:
            ours = translated(error)
            if ours is error:
                raise StoreUnusable(f"the database refuses to answer ({code_of(error)})") from error
            raise ours from error
        except BotoCoreError as error:
            raise StoreUnavailable(f"the database does not answer: {error}") from error
        return answer

    def count(self, table: str) -> int:
        """About how many rows the table has, as the database last counted them."""
        described = self.call("describe_table", table)
        count: int = described["Table"]["ItemCount"]
        return count

    def get(self, table: str, key: Mapping[str, Value]) -> Row | None:
        answer = self.call("get_item", table, Key=rows.pack(key), ConsistentRead=True)
        return rows.unpack(answer["Item"]) if "Item" in answer else None

    def get_many(
        self, table: str, keys: Sequence[Mapping[str, Value]]
    ) -> dict[tuple[Any, ...], Row]:
        """Rows by their keys; those that are not there are left out."""
        found: dict[tuple[Any, ...], Row] = {}
        name = self._prefix + table
        pending = [rows.pack(key) for key in keys]
        while pending:
            chunk, pending = pending[:KEYS_PER_GET_MAX], pending[KEYS_PER_GET_MAX:]
            wanted = {name: {"Keys": chunk, "ConsistentRead": True}}
            answer = self.call("batch_get_item", RequestItems=wanted)
            for item in answer["Responses"].get(name, []):
                row = rows.unpack(item)
                found[tuple(schema.key_of(table, row).values())] = row
            pending += answer.get("UnprocessedKeys", {}).get(name, {}).get("Keys", [])
        return found

    def get_places(self, places: Iterable[Place]) -> dict[tuple[object, ...], Row]:
        """Rows of any tables, by table and key; those that are not there are left out."""
        by_table: dict[str, dict[tuple[Value, ...], Mapping[str, Value]]] = {}
        for table, key in places:
            by_table.setdefault(table, {})[tuple(key.values())] = key
        return {
            (table, *key): row
            for table, keys in by_table.items()
            for key, row in self.get_many(table, list(keys.values())).items()
        }

    def get_together(self, *wanted: Place) -> list[Row | None]:
        """Some rows as they were at one instant."""
        gets = [
            {"Get": {"TableName": self._prefix + table, "Key": rows.pack(key)}}
            for table, key in wanted
        ]
        for tried in range(CONFLICTS_MAX):
            try:
                answer = self.call("transact_get_items", TransactItems=gets)
            except Cancelled as cancelled:
                if hindrance_of(cancelled.codes) is None:
                    raise
                time.sleep(0.01 * 2**tried)
            else:
                found = [one.get("Item") for one in answer["Responses"]]
                return [None if item is None else rows.unpack(item) for item in found]
        raise StoreUnavailable("other processes changed the rows at each attempt; try again")

    def get_places_together(self, places: Iterable[Place]) -> dict[tuple[object, ...], Row]:
        """As `get_places`, as of one instant."""
        wanted = {(table, *key.values()): (table, key) for table, key in places}
        found = self.get_together(*wanted.values())
        return {name: row for name, row in zip(wanted, found, strict=True) if row is not None}

    def newest(self, table: str, chat_id: str) -> Row | None:
        """The row of a chat with the highest number, among its messages or its amendments."""
        request = rows.query_request(table, chat_id, ascending=False)
        answer = self.call("query", table, **request, Limit=1)
        return rows.unpack(answer["Items"][0]) if answer["Items"] else None

    def highest_entry(self, chat_id: str) -> int:
        """The sequence of the last entry of a chat, as the log itself has it; 0: it is empty."""
        found = [self.newest(table, chat_id) for table in (schema.MESSAGES, schema.AMENDMENTS)]
        return max(0 if row is None else row["sequence"] for row in found)

    def log(self, chat_id: str, head: int) -> Iterator[list[Row]]:
        """The entries of a chat up to its head, of all kinds, in order, in chunks."""
        if not head:
            return
        tables = [
            chain.from_iterable(self.query(table, chat_id, between=(1, head)))
            for table in (schema.MESSAGES, schema.AMENDMENTS)
        ]
        entries = merge(*tables, key=itemgetter("sequence"))
        while chunk := list(islice(entries, ENTRIES_PER_CHUNK)):
            yield chunk

    def write(self, write: Write) -> None:
        """Carry out one idempotent write. Raises ConditionFailed."""
        [(kind, body)] = write.items()
        operation = {"Put": "put_item", "Delete": "delete_item"}[kind]
        self.call(operation, body["TableName"], **body)

    def commit(self, *writes: Write) -> bool:
        """Carry out all writes or none; False: a row does not meet its condition."""
        items = [
            {kind: body | {"TableName": self._prefix + body["TableName"]}}
            for write in writes
            for kind, body in write.items()
        ]
        for tried in range(CONFLICTS_MAX):
            try:
                self.call(
                    "transact_write_items", TransactItems=items, ClientRequestToken=str(uuid4())
                )
            except Cancelled as cancelled:
                if hindrance_of(cancelled.codes) is None:
                    return False
                time.sleep(0.01 * 2**tried)
            else:
                return True
        raise StoreUnavailable("other processes changed the row at each attempt; try again")

    def query(
        self, table: str, partition: Value, **which: Unpack[rows.Range]
    ) -> Iterator[list[Row]]:
        """The rows of a partition by their sort key, in chunks of at most a megabyte."""
        return self._pages("query", table, rows.query_request(table, partition, **which))

    def scan_pages(
        self, table: str, *, index: str | None = None, having: Sequence[str] = ()
    ) -> Iterator[list[Row]]:
        """All rows, in no order; with `having` only rows that have one of these attributes.
        An index lags a little behind its table."""
        request = rows.scan_request(table, index=index)
        if having:
            wanted = " OR ".join(f"attribute_exists(#{name})" for name in having)
            request["FilterExpression"] = wanted
            request["ExpressionAttributeNames"] = rows.names_in(wanted)
        return self._pages("scan", table, request)

    def scan_from(self, table: str, start: Row | None) -> Iterator[tuple[list[Row], Row | None]]:
        """As `scan_pages`, from where another scan stopped; each page comes with where to go on."""
        request = rows.scan_request(table, start=start)
        while True:
            answer = self.call("scan", table, **request)
            end = answer.get("LastEvaluatedKey")
            yield [rows.unpack(item) for item in answer["Items"]], end
            if end is None:
                return
            request["ExclusiveStartKey"] = end

    def scan(self, table: str, *, index: str | None = None) -> Iterator[Row]:
        return chain.from_iterable(self.scan_pages(table, index=index))

    def _pages(self, operation: str, table: str, request: Row) -> Iterator[list[Row]]:
        while True:
            answer = self.call(operation, table, **request)
            if answer["Items"]:
                yield [rows.unpack(item) for item in answer["Items"]]
            if "LastEvaluatedKey" not in answer:
                return
            request["ExclusiveStartKey"] = answer["LastEvaluatedKey"]
