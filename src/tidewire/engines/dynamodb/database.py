"""Requests to DynamoDB: a timeout for each, retries where that is safe, rows in and out.

The vendor's own retries are off: an act has one budget, and every request and pause comes out of it
(`within_budget`), so that the store gives up before the plane that asked it does (P-12).
"""

import asyncio
import time
import uuid
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from functools import cache
from random import Random
from typing import Any, Final, TypeVar, Unpack

from aiobotocore.config import AioConfig
from aiobotocore.credentials import AioCredentials
from aiobotocore.session import AioSession, get_session

from tidewire import __version__
from tidewire.domain.errors import StoreUnavailable
from tidewire.engines.dynamodb import backoff, rows, schema
from tidewire.engines.dynamodb.backoff import CONDITION_FAILED, Hindrance
from tidewire.engines.dynamodb.direct import OPERATIONS, Direct, direct_client
from tidewire.engines.dynamodb.errors import (
    AnswerLost,
    Cancelled,
    ConditionFailed,
    hindrance,
    translated,
    translated_or_lost,
)
from tidewire.engines.dynamodb.gathering import Gatherer
from tidewire.engines.dynamodb.options import DynamoOptions
from tidewire.engines.dynamodb.rows import Row, Value, Write

KEYS_PER_GET_MAX: Final = 100
WRITES_MAX: Final = 100
DELETES_MAX: Final = 25
GETS_AT_ONCE_MAX: Final = 2
"""How many requests for rows are under way at once; what is asked for meanwhile goes together."""
WRITES_AT_ONCE_MAX: Final = 2
WRITES_TOGETHER_MAX: Final = 12
"""The same for small writes. In a transaction each is billed twice, and a conflict about one row
holds up the rest: so they go alone while few are under way, and never very many together."""
TOO_SLOW: Final = "the database took too long; the same request may be sent again"

Item = TypeVar("Item")
Found = TypeVar("Found")
Key = Mapping[str, Value]
Wanted = tuple[str, Key]
"""A table, and which of its rows."""
Unwritten = ConditionFailed | AnswerLost
"""Why a write was not made, as far as is known."""

_deadline: ContextVar[float] = ContextVar("deadline")


class Counts:
    """Counts of our requests and their results since the start (`engine` says what each is).

    Skipped sequences are those before the commits of this process, whichever process skipped them.
    """

    requests = throttled = conflicts = answers_lost = 0
    fences_failed = sequences_skipped = pages_cut = author_moves_lost = 0


class Database:
    """Requests to the tables of one store."""

    def __init__(self, client: Any, options: DynamoOptions, direct: Direct | None = None) -> None:
        """`client` is the vendor's; `direct` takes the frequent operations over from it."""
        self._client = client
        self._direct = direct
        self._options = options
        self._random = Random()
        self.counts = Counts()
        self._doubtful: set[int] = set()
        self._gets: Gatherer[Wanted, Row | None] = Gatherer(
            self._fetch, items_max=KEYS_PER_GET_MAX, at_once_max=GETS_AT_ONCE_MAX
        )
        self._writes: Gatherer[Write, Unwritten | None] = Gatherer(
            self._write_all, items_max=WRITES_TOGETHER_MAX, at_once_max=WRITES_AT_ONCE_MAX
        )

    @classmethod
    @asynccontextmanager
    async def connect(cls, options: DynamoOptions) -> AsyncIterator["Database"]:
        config = AioConfig(
            connect_timeout=options.attempt_ms / 1000,
            read_timeout=options.attempt_ms / 1000,
            retries={"total_max_attempts": 1},
            max_pool_connections=options.connections_max,
            parameter_validation=False,
            # Set here, because the vendor builds its own anew for every request.
            user_agent=f"tidewire/{__version__}",
            # One address for all requests, whether they go through this client or directly.
            account_id_endpoint_mode="disabled",
        )
        arguments = options.client_arguments()
        session = _session()
        async with session.create_client("dynamodb", config=config, **arguments) as client:
            if options.secret_key is None:
                credentials = await session.get_credentials()
            else:
                credentials = AioCredentials(options.access_key, options.secret_key.reveal())
            direct = await direct_client(
                client, session, credentials=credentials, connections_max=options.connections_max
            )
            try:
                yield cls(client, options, direct)
            finally:
                if direct is not None:
                    direct.close()

    # Time.

    @contextmanager
    def within_budget(self) -> Iterator[None]:
        """All requests inside share one budget."""
        token = _deadline.set(time.monotonic() + self._options.budget_ms / 1000)
        try:
            yield
        finally:
            _deadline.reset(token)

    def _remaining(self) -> float:
        remaining = _deadline.get() - time.monotonic()
        if remaining <= 0:
            raise StoreUnavailable(TOO_SLOW)
        return remaining

    async def pause(self, kind: Hindrance, tried: int) -> None:
        """Wait before another try; raises if the pace or the budget allows no more tries."""
        pace = backoff.PACES[kind]
        delay = backoff.delay_ms(pace, tried, self._random) / 1000
        if tried >= pace.tries or delay >= self._remaining():
            if kind is Hindrance.LOST:
                raise AnswerLost
            raise StoreUnavailable("the database is busy; the same request may be sent again")
        await asyncio.sleep(delay)

    async def until_shown(self, look: Callable[[], Awaitable[Found | None]]) -> Found:
        """Repeat a look for something that is committed, but may not be visible yet."""
        tried = 0
        while (found := await look()) is None:
            await self.pause(Hindrance.PARTIAL, tried)
            tried += 1
        return found

    # Requests.

    async def call(
        self,
        operation: str,
        *,
        repeatable: bool = True,
        tries_conflicts: bool = True,
        **request: Any,
    ) -> Row:
        """One request, retried where it cannot be carried out twice.

        With `repeatable` False a request without an answer raises AnswerLost instead; without
        `tries_conflicts` a transaction that conflicts with another raises Cancelled.
        """
        tries: dict[Hindrance, int] = {}
        while True:
            timeout = min(self._options.attempt_ms / 1000, self._remaining())
            self.counts.requests += 1
            try:
                async with asyncio.timeout(timeout):
                    answer = await self._ask(operation, request)
            except Exception as error:
                kind = self._hindrance(error)
                if kind is None or (kind is Hindrance.CONFLICT and not tries_conflicts):
                    raise translated(error) from error
                if kind is Hindrance.LOST and not repeatable:
                    raise AnswerLost from error
                failed = error
            else:
                return answer
            try:
                await self.pause(kind, tries.get(kind, 0))
            except AnswerLost:
                # If the database itself reported a fault, that is raised as what it is.
                raise translated_or_lost(failed) from failed
            tries[kind] = tries.get(kind, 0) + 1

    async def _ask(self, operation: str, request: Row) -> Row:
        if self._direct is not None and operation in OPERATIONS:
            return await self._direct.ask(operation, request)
        answer: Row = await getattr(self._client, operation)(**request)
        return answer

    def _hindrance(self, error: Exception) -> Hindrance | None:
        kind = hindrance(error)
        ours = translated(error)
        if isinstance(ours, Cancelled):
            kind = backoff.hindrance_of(ours.codes)
        match kind:
            case Hindrance.THROTTLED:
                self.counts.throttled += 1
            case Hindrance.CONFLICT:
                self.counts.conflicts += 1
            case Hindrance.LOST:
                self.counts.answers_lost += 1
            case Hindrance.PARTIAL | None:
                pass
        return kind

    def name_of(self, table: str) -> str:
        return self._options.table_prefix + table

    def _named(self, request: Row) -> Row:
        """A request with the full name of its table."""
        return request | {"TableName": self.name_of(request["TableName"])}

    async def get(self, table: str, key: Key) -> Row | None:
        """A row, read with strong consistency: with every write that was answered."""
        answer = await self.call(
            "get_item", TableName=self.name_of(table), Key=rows.pack(key), ConsistentRead=True
        )
        return rows.unpack(answer["Item"]) if "Item" in answer else None

    async def get_many(self, wanted: Sequence[Wanted]) -> list[Row | None]:
        """Some rows, each as `get` gives it, but not all of one instant; None: there is none.

        The request is shared with other callers, so the rows may be read a little later."""
        found: list[Row | None] = []
        for start in range(0, len(wanted), KEYS_PER_GET_MAX):
            chunk = wanted[start : start + KEYS_PER_GET_MAX]
            found += await self._gathered(self._gets, chunk)
        return found

    async def get_each(self, table: str, keys: Iterable[Value]) -> list[Row | None]:
        """As `get_many`, for rows of one table that has only a partition key."""
        name = schema.BY_NAME[table].partition
        return await self.get_many([(table, {name: key}) for key in keys])

    async def _gathered(
        self, gatherer: Gatherer[Item, Found], items: Sequence[Item]
    ) -> Sequence[Found]:
        """The shared request has a budget of its own; each caller waits no longer than its own."""
        try:
            async with asyncio.timeout(self._remaining()):
                return await gatherer.ask(items)
        except TimeoutError:
            raise StoreUnavailable(TOO_SLOW) from None

    async def _fetch(self, wanted: Sequence[Wanted]) -> list[Row | None]:
        """Read at most as many rows as one request takes, within a budget of its own."""
        found: dict[tuple[str, tuple[Value, ...]], Row] = {}
        pending = list(
            {(table, _key_values(table, key)): (table, key) for table, key in wanted}.values()
        )
        tried = 0
        with self.within_budget():
            while pending:
                answer = await self.call("batch_get_item", RequestItems=self._asked(pending))
                for name, items in answer["Responses"].items():
                    table = name.removeprefix(self._options.table_prefix)
                    for item in items:
                        row = rows.unpack(item)
                        found[table, _key_values(table, row)] = row
                pending = [
                    (name.removeprefix(self._options.table_prefix), rows.unpack(key))
                    for name, request in answer.get("UnprocessedKeys", {}).items()
                    for key in request["Keys"]
                ]
                if pending:
                    await self.pause(Hindrance.THROTTLED, tried)
                    tried += 1
        return [found.get((table, _key_values(table, key))) for table, key in wanted]

    def _asked(self, wanted: Sequence[Wanted]) -> dict[str, Any]:
        asked: dict[str, Any] = {}
        for table, key in wanted:
            request = asked.setdefault(self.name_of(table), {"ConsistentRead": True, "Keys": []})
            request["Keys"].append(rows.pack(key))
        return asked

    async def query(
        self,
        table: str,
        partition: Value,
        *,
        limit: int | None = None,
        **which: Unpack[rows.Range],
    ) -> list[Row]:
        """The rows of a partition, however many requests it takes."""
        pages = self.pages(rows.query_request(table, partition, **which), limit=limit)
        return [row async for page in pages for row in page]

    async def pages(self, query: Row, *, limit: int | None = None) -> AsyncIterator[list[Row]]:
        """The rows of a query, at most a megabyte at a time."""
        request = dict(query)
        while limit is None or limit > 0:
            if limit is not None:
                request["Limit"] = limit
            page, start = await self._page("query", request)
            yield page
            if start is None:
                return
            request["ExclusiveStartKey"] = start
            limit = None if limit is None else limit - len(page)

    async def scan_page(
        self, table: str, *, limit: int, start: Row | None
    ) -> tuple[list[Row], Row | None]:
        """Some rows of a table, in no order, perhaps out of date, and where to go on."""
        request = rows.scan_request(table, limit=limit, start=start)
        return await self._page("scan", request | {"ConsistentRead": False})

    async def _page(self, operation: str, request: Row) -> tuple[list[Row], Row | None]:
        answer = await self.call(operation, **self._named(request))
        return [rows.unpack(item) for item in answer["Items"]], answer.get("LastEvaluatedKey")

    async def transact(self, writes: Sequence[Write], *, tries_conflicts: bool = True) -> None:
        """All writes or none. Raises Cancelled if a row is not as a condition expects it; without
        `tries_conflicts` also if another transaction works on one of the rows.

        The token makes the request repeatable: if the first try was carried out, though its answer
        was lost or the database reported a fault, the second try is told so.
        """
        assert 0 < len(writes) <= WRITES_MAX
        items = [{kind: self._named(body)} for write in writes for kind, body in write.items()]
        try:
            await self.call(
                "transact_write_items",
                tries_conflicts=tries_conflicts,
                TransactItems=items,
                ClientRequestToken=str(uuid.uuid4()),
            )
        except StoreUnavailable:
            # It may have been carried out all the same.
            self._doubtful |= shards_written(writes)
            raise

    def take_doubtful(self) -> set[int]:
        """Return and forget the outbox shards where a commit without an answer may have written."""
        doubtful, self._doubtful = self._doubtful, set()
        return doubtful

    async def commit(self, writes: Sequence[Write]) -> bool:
        """As `transact`; False: a row is not as a condition expects it, and nothing was written."""
        try:
            await self.transact(writes)
        except Cancelled:
            return False
        return True

    async def write(self, write: Write, *, returned: str = "NONE") -> Row:
        """One write by itself, not retried when its answer is lost.

        Raises ConditionFailed or AnswerLost. `returned` as DynamoDB's ReturnValues.
        """
        [(kind, body)] = write.items()
        operation = {"Put": "put_item", "Update": "update_item", "Delete": "delete_item"}[kind]
        request = self._named(body) | {"ReturnValues": returned}
        answer = await self.call(operation, repeatable=False, **request)
        return rows.unpack(answer.get("Attributes", {}))

    async def write_if(self, write: Write) -> bool:
        """As `write`; False: its condition does not hold."""
        try:
            await self.write(write)
        except ConditionFailed:
            return False
        return True

    async def try_write(self, write: Write) -> bool:
        """As `write_if`, for a write whose loss does no harm: False also without an answer."""
        try:
            return await self.write_if(write)
        except AnswerLost:
            return False

    async def write_among(self, write: Write) -> None:
        """As `write`, but perhaps together with other waiting writes; each must be of another row.

        Raises StoreUnavailable if it takes too long: then the write may still be made."""
        [failed] = await self._gathered(self._writes, [write])
        if failed is not None:
            raise failed

    async def _write_all(self, writes: Sequence[Write]) -> list[Unwritten | None]:
        """Make each write whose condition holds, whatever happens to the others."""
        failed: dict[int, Unwritten] = {}
        waiting = dict(enumerate(writes))
        with self.within_budget():
            while len(waiting) > 1:
                try:
                    await self.transact([*waiting.values()])
                except Cancelled as cancelled:
                    unmet = _unmet(waiting, cancelled)
                    failed |= unmet
                    waiting = {index: waiting[index] for index in waiting if index not in unmet}
                else:
                    waiting = {}
            for index, write in waiting.items():
                try:
                    await self.write(write)
                except (ConditionFailed, AnswerLost) as error:
                    failed[index] = error
        return [failed.get(index) for index in range(len(writes))]

    async def delete_many(self, table: str, keys: Sequence[Key]) -> None:
        """Delete rows, each by itself and whether it is there or not."""
        name = self.name_of(table)
        pending = [{"DeleteRequest": {"Key": rows.pack(key)}} for key in keys]
        tried = 0
        while pending:
            chunk, pending = pending[:DELETES_MAX], pending[DELETES_MAX:]
            answer = await self.call("batch_write_item", RequestItems={name: chunk})
            left = answer.get("UnprocessedItems", {}).get(name, [])
            if left:
                await self.pause(Hindrance.THROTTLED, tried)
                tried += 1
            pending += left


def _key_values(table: str, row: Key) -> tuple[Value, ...]:
    return tuple(row[name] for name in schema.BY_NAME[table].keys)


def shards_written(writes: Iterable[Write]) -> set[int]:
    """The shards of the outbox in which writes put rows."""
    puts = (write["Put"] for write in writes if "Put" in write)
    return {
        rows.unpack_value(put["Item"]["shard"]) for put in puts if put["TableName"] == schema.OUTBOX
    }


def _unmet(indexes: Iterable[int], cancelled: Cancelled) -> dict[int, ConditionFailed]:
    """Which conditions did not hold, by the index of their write."""
    unmet = {
        index: ConditionFailed(row)
        for index, code, row in zip(indexes, cancelled.codes, cancelled.rows, strict=True)
        if code == CONDITION_FAILED
    }
    assert unmet
    return unmet


@cache
def _session() -> AioSession:
    """One for the process: it reads the vendor's models from disk, which takes a while."""
    return get_session()
