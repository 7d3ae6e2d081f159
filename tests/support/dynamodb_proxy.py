"""A proxy in front of DynamoDB Local that does what the real service does and the local one never.

DynamoDB Local neither throttles nor reports conflicts, loses no answer, shows a committed
transaction at once and as a whole, and reads are never stale. Here requests meet rules: the first
one that wants a request decides what becomes of it.
"""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final

from tidewire.engines.dynamodb.schema import BY_NAME

HEAD_END: Final = b"\r\n\r\n"
NAMESPACE: Final = "com.amazonaws.dynamodb.v20120810#"
UPSTREAM_SECONDS_MAX: Final = 30

Body = dict[str, Any]
ItemKey = tuple[str, str]
"""A table, and a key as text."""


class Fate(Enum):
    PASS = "it gets through"
    THROTTLE = "it is refused for its rate"
    CONFLICT = "another transaction is in the way"
    SWALLOW = "it is carried out, and its answer is lost"
    DENY = "it is carried out, and the answer says that a condition failed"
    DROP = "it is lost before anything happens"
    UNAVAILABLE = "the service says that it is not available"


@dataclass
class Rule:
    """What becomes of the next requests of a kind."""

    operation: str
    fate: Fate
    times: int = 1
    table: str = ""
    """Only requests that name this table, or chat, somewhere."""
    hold: asyncio.Event | None = None
    """Wait for it before anything else."""
    seen: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the rule has met a request."""

    def wants(self, operation: str, body: Body) -> bool:
        return (
            self.times > 0
            and operation == self.operation
            and (not self.table or f'{self.table}"' in json.dumps(body))
        )


@dataclass
class Hidden:
    """An item as it was before a write; None: it was not there."""

    item: Body | None
    until: float


class Proxy:
    """Counts and bends what passes between an engine and DynamoDB Local."""

    def __init__(self, upstream_port: int) -> None:
        self._upstream_port = upstream_port
        self._connections: dict[asyncio.Task[None], None] = {}
        self.port = 0
        self.rules: list[Rule] = []
        self.operations: list[str] = []
        self.answers = 0
        """How many requests DynamoDB Local has answered."""
        self.withhold: Callable[[str, Body], bool] | None = None
        """Which items (table, item) of a transaction stay out of query answers for a while."""
        self.stale_seconds = 0.0
        """How long reads that are not strong show what was there before a write."""
        self.withhold_seconds = 0.5
        self._withheld: dict[ItemKey, float] = {}
        self._hidden: dict[ItemKey, Hidden] = {}

    @classmethod
    @asynccontextmanager
    async def running(cls, upstream_port: int) -> AsyncIterator["Proxy"]:
        proxy = cls(upstream_port)
        server = await asyncio.start_server(proxy._accepted, "127.0.0.1", 0)
        proxy.port = server.sockets[0].getsockname()[1]
        try:
            yield proxy
        finally:
            server.close()
            await server.wait_closed()
            for task in list(proxy._connections):
                task.cancel()
            await asyncio.gather(*proxy._connections, return_exceptions=True)

    def rule(self, operation: str, fate: Fate, **more: Any) -> Rule:
        rule = Rule(operation, fate, **more)
        self.rules.append(rule)
        return rule

    # Connections.

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections[task] = None
        try:
            # Cancelled: the proxy ends, and a task that says so only makes noise.
            with suppress(asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
                while True:
                    await self._exchange(reader, writer)
        finally:
            del self._connections[task]
            writer.close()

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head, content = await _read_message(reader)
        operation = _header(head, "x-amz-target").rpartition(".")[2]
        body: Body = json.loads(content) if content else {}
        self.operations.append(operation)
        rule = next((one for one in self.rules if one.wants(operation, body)), None)
        fate = Fate.PASS
        if rule is not None:
            rule.times -= 1
            fate = rule.fate
            rule.seen.set()
            if rule.hold is not None:
                await rule.hold.wait()
        if fate is Fate.DROP:
            await reader.read()  # Until the client gives up.
            raise ConnectionResetError
        if fate in _REFUSALS:
            writer.write(_answer(*_REFUSALS[fate](body)))
            await writer.drain()
            return
        answer_head, answer = await self._forward(operation, head, content, body)
        if fate is Fate.SWALLOW:
            await reader.read()
            raise ConnectionResetError
        if fate is Fate.DENY:
            writer.write(_answer(*_cancelled(body, "ConditionalCheckFailed")))
            await writer.drain()
            return
        changed = self._bent(operation, body, answer)
        if changed is not None:
            status = int(answer_head.split(b" ", 2)[1])
            writer.write(_answer(status, changed))
        else:
            writer.write(answer_head + answer)
        await writer.drain()

    async def _forward(
        self, operation: str, head: bytes, content: bytes, body: Body
    ) -> tuple[bytes, bytes]:
        if self.stale_seconds and operation in _WRITES:
            await self._remember(head, body)
        answer_head, answer = await self._ask(head, content)
        self.answers += 1
        if operation == "TransactWriteItems" and b" 200 " in answer_head.split(b"\r\n", 1)[0]:
            self._start_withholding(body)
        return answer_head, answer

    async def _ask(self, head: bytes, content: bytes) -> tuple[bytes, bytes]:
        async with asyncio.timeout(UPSTREAM_SECONDS_MAX):
            reader, writer = await asyncio.open_connection("127.0.0.1", self._upstream_port)
            try:
                writer.write(head + content)
                await writer.drain()
                return await _read_message(reader)
            finally:
                writer.close()

    # Transactions that show themselves in parts.

    def _start_withholding(self, body: Body) -> None:
        if self.withhold is None:
            return
        for write in body["TransactItems"]:
            put = write.get("Put")
            if put is not None and self.withhold(put["TableName"], put["Item"]):
                key = _key_of(put["TableName"], put["Item"])
                self._withheld[key] = time.monotonic() + self.withhold_seconds

    def _bent(self, operation: str, request: Body, answer: bytes) -> Body | None:
        """The answer with what cannot be seen yet taken out; None: as it is."""
        if operation == "Query" and self._withheld:
            return self._without_withheld(request, json.loads(answer))
        if self.stale_seconds and self._hidden:
            if operation == "GetItem" and not request.get("ConsistentRead"):
                return self._stale_item(request, json.loads(answer))
            if operation == "BatchGetItem":
                return self._stale_items(request, json.loads(answer))
            if operation == "Query" and not request.get("ConsistentRead"):
                return self._stale_query(request, json.loads(answer))
        return None

    def _without_withheld(self, request: Body, answer: Body) -> Body:
        now = time.monotonic()
        answer["Items"] = [
            item
            for item in answer.get("Items", [])
            if self._withheld.get(_key_of(request["TableName"], item), 0) < now
        ]
        return answer

    # Reads that are not strong.

    async def _remember(self, head: bytes, body: Body) -> None:
        """Keep the items that a write is about to change as they are now."""
        writes = body.get("TransactItems") or [{"Write": body}]
        for [(kind, write)] in (one.items() for one in writes):
            if kind == "ConditionCheck":
                continue
            table = write["TableName"]
            key = write.get("Key") or _key_item(table, write["Item"])
            asked = json.dumps({"TableName": table, "Key": key, "ConsistentRead": True}).encode()
            _, answer = await self._ask(_retargeted(head, "GetItem", len(asked)), asked)
            hidden = self._hidden.get(_key_of(table, key))
            if hidden is None or hidden.until < time.monotonic():
                until = time.monotonic() + self.stale_seconds
                self._hidden[_key_of(table, key)] = Hidden(json.loads(answer).get("Item"), until)

    def _old(self, table: str, key: Body) -> Hidden | None:
        hidden = self._hidden.get(_key_of(table, key))
        return hidden if hidden is not None and hidden.until > time.monotonic() else None

    def _stale_item(self, request: Body, answer: Body) -> Body:
        hidden = self._old(request["TableName"], request["Key"])
        if hidden is None:
            return answer
        return {} if hidden.item is None else {"Item": hidden.item}

    def _stale_items(self, request: Body, answer: Body) -> Body:
        for table, asked in request["RequestItems"].items():
            if asked.get("ConsistentRead"):
                continue
            found = {_key_of(table, item): item for item in answer["Responses"].get(table, [])}
            for key in asked["Keys"]:
                hidden = self._old(table, key)
                if hidden is not None:
                    found.pop(_key_of(table, key), None)
                    if hidden.item is not None:
                        found[_key_of(table, key)] = hidden.item
            answer["Responses"][table] = list(found.values())
        return answer

    def _stale_query(self, request: Body, answer: Body) -> Body:
        items = []
        for item in answer.get("Items", []):
            hidden = self._old(request["TableName"], item)
            if hidden is None:
                items.append(item)
            elif hidden.item is not None:
                items.append(hidden.item)
        return answer | {"Items": items}


def _conflict(body: Body) -> tuple[int, Body]:
    return _cancelled(body, "TransactionConflict")


def _cancelled(body: Body, code: str) -> tuple[int, Body]:
    reasons = [{"Code": code, "Message": "not now"}]
    reasons += [{"Code": "None"}] * (len(body.get("TransactItems", [0])) - 1)
    return 400, {
        "__type": NAMESPACE + "TransactionCanceledException",
        "Message": "Transaction cancelled",
        "CancellationReasons": reasons,
    }


def _throttle(_: Body) -> tuple[int, Body]:
    return 400, {
        "__type": NAMESPACE + "ProvisionedThroughputExceededException",
        "message": "too fast",
    }


def _unavailable(_: Body) -> tuple[int, Body]:
    return 503, {"__type": NAMESPACE + "ServiceUnavailable", "message": "not now"}


_REFUSALS: Final = {
    Fate.CONFLICT: _conflict,
    Fate.THROTTLE: _throttle,
    Fate.UNAVAILABLE: _unavailable,
}
_WRITES: Final = ("PutItem", "UpdateItem", "DeleteItem", "TransactWriteItems")


def _key_item(table: str, item: Body) -> Body:
    """The key of an item, by the tables of the engine whatever their prefix."""
    for name, definition in BY_NAME.items():
        if table.endswith("_" + name) and all(key in item for key in definition.keys):
            return {key: item[key] for key in definition.keys}
    return item


def _key_of(table: str, item: Body) -> ItemKey:
    return table, json.dumps(_key_item(table, item), sort_keys=True)


async def _read_message(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    head = await reader.readuntil(HEAD_END)
    length = _header(head, "content-length")
    return head, await reader.readexactly(int(length or 0))


def _header(head: bytes, name: str) -> str:
    for line in head.decode("latin-1").split("\r\n")[1:]:
        found, _, value = line.partition(":")
        if found.lower() == name:
            return value.strip()
    return ""


def _retargeted(head: bytes, operation: str, length: int) -> bytes:
    """The head of another request, with the same credentials."""
    lines = head.decode("latin-1").rstrip("\r\n").split("\r\n")
    kept = [
        line for line in lines if not line.lower().startswith(("x-amz-target", "content-length"))
    ]
    kept += [f"X-Amz-Target: DynamoDB_20120810.{operation}", f"Content-Length: {length}"]
    return "\r\n".join(kept).encode("latin-1") + HEAD_END


def _answer(status: int, body: Body) -> bytes:
    content = json.dumps(body).encode()
    head = (
        f"HTTP/1.1 {status} Answer\r\n"
        "Content-Type: application/x-amz-json-1.0\r\n"
        f"Content-Length: {len(content)}\r\n\r\n"
    )
    return head.encode() + content
