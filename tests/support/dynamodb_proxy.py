"""A proxy in front of DynamoDB Local that does what the real service does and the local one never.

DynamoDB Local neither throttles nor reports conflicts, loses no answer, shows a committed
transaction at once and as a whole, and its reads are never stale. Here requests meet rules: the
first rule that matches a request decides its fate.
"""

import asyncio
import json
import time
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

from tidewire.engines.dynamodb.schema import BY_NAME
from tidewire_bench.dynamodb_relay import Answer, Body, DynamoRelay, Request

if TYPE_CHECKING:
    from collections.abc import Callable

NAMESPACE: Final = "com.amazonaws.dynamodb.v20120810#"

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
    FAIL = "it is carried out, and the service says that it has failed"


@dataclass
class Rule:
    """The fate of the next requests of a kind."""

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


class Proxy(DynamoRelay):
    """Counts and changes what passes between an engine and DynamoDB Local."""

    def __init__(self, upstream_port: int) -> None:
        super().__init__(upstream_port)
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

    def rule(self, operation: str, fate: Fate, **more: Any) -> Rule:
        rule = Rule(operation, fate, **more)
        self.rules.append(rule)
        return rule

    async def exchange(self, request: Request, reader: asyncio.StreamReader) -> Answer:
        operation, body = request.operation, request.body
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
            return Answer.of(*_REFUSALS[fate](body))
        answer = await self._forward(request, operation, body)
        if fate is Fate.SWALLOW:
            await reader.read()
            raise ConnectionResetError
        if fate is Fate.FAIL:
            return Answer.of(500, {"__type": NAMESPACE + "InternalServerError", "message": "oh"})
        if fate is Fate.DENY:
            return Answer.of(*_cancelled(body, "ConditionalCheckFailed"))
        changed = self._bent(operation, body, answer)
        return answer if changed is None else Answer.of(answer.status, changed)

    async def _forward(self, request: Request, operation: str, body: Body) -> Answer:
        if self.stale_seconds and operation in _WRITES:
            await self._remember(request, body)
        answer = await self.ask(request)
        self.answers += 1
        if operation == "TransactWriteItems" and answer.status == 200:
            self._start_withholding(body)
        return answer

    # Transactions that become visible in parts.

    def _start_withholding(self, body: Body) -> None:
        if self.withhold is None:
            return
        for write in body["TransactItems"]:
            put = write.get("Put")
            if put is not None and self.withhold(put["TableName"], put["Item"]):
                key = _key_of(put["TableName"], put["Item"])
                self._withheld[key] = time.monotonic() + self.withhold_seconds

    def _bent(self, operation: str, request: Body, answer: Answer) -> Body | None:
        """The answer without what is not visible yet; None: the answer stays as it is."""
        if operation == "Query" and self._withheld:
            return self._without_withheld(request, answer.body)
        if self.stale_seconds and self._hidden:
            if operation == "GetItem" and not request.get("ConsistentRead"):
                return self._stale_item(request, answer.body)
            if operation == "BatchGetItem":
                return self._stale_items(request, answer.body)
            if operation == "Query" and not request.get("ConsistentRead"):
                return self._stale_query(request, answer.body)
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

    async def _remember(self, request: Request, body: Body) -> None:
        """Keep a copy of the items that a write is about to change."""
        writes = body.get("TransactItems") or [{"Write": body}]
        for [(kind, write)] in (one.items() for one in writes):
            if kind == "ConditionCheck":
                continue
            table = write["TableName"]
            key = write.get("Key") or _key_item(table, write["Item"])
            asked: Body = {"TableName": table, "Key": key, "ConsistentRead": True}
            answer = await self.ask(request.asking("GetItem", asked))
            hidden = self._hidden.get(_key_of(table, key))
            if hidden is None or hidden.until < time.monotonic():
                until = time.monotonic() + self.stale_seconds
                self._hidden[_key_of(table, key)] = Hidden(answer.body.get("Item"), until)

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
    """The key of an item, by the engine's definition of its table, with any prefix."""
    for name, definition in BY_NAME.items():
        if table.endswith("_" + name) and all(key in item for key in definition.keys):
            return {key: item[key] for key in definition.keys}
    return item


def _key_of(table: str, item: Body) -> ItemKey:
    return table, json.dumps(_key_item(table, item), sort_keys=True)
