"""Request units, by the rules that AWS bills by. PURE.

A write unit is 1 KB of an item, as it was or as it is, whichever is larger; a read unit is 4 KB of
a strong read, and another read costs half. Both are counted for each item and rounded up; an item
that does not exist counts as the smallest. In a transaction everything counts twice, and a check of
a condition is a write. A write whose condition fails, and a transaction that is cancelled, is
billed all the same. A query is rounded up as a whole. An index entry is written outside the
transaction, so it counts once when it is added, once when it is removed, and both when it moves.
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from tidewire.engines.dynamodb import schema

WRITE_BYTES: Final = 1024
READ_BYTES: Final = 4096
WRITE_DOLLARS: Final = 0.625
READ_DOLLARS: Final = 0.125
"""The price of a million units on demand in us-east-1, as that of writes above."""

Item = Mapping[str, Mapping[str, Any]]


# Sizes.


def item_bytes(item: Item) -> int:
    return sum(len(name.encode()) + _value_bytes(value) for name, value in item.items())


def _value_bytes(value: Mapping[str, Any]) -> int:
    [(kind, content)] = value.items()
    match kind:
        case "S":
            return len(str(content).encode())
        case "N":
            # Two digits a byte, one more for the rest and one for a sign.
            digits = content.lstrip("-")
            return (len(digits) + 1) // 2 + 1 + (len(digits) < len(content))
        case "B":
            # In base 64.
            return len(content) * 3 // 4 - str(content).count("=")
        case "L":
            return 3 + sum(1 + _value_bytes(entry) for entry in content)
        case "M":
            return 3 + sum(
                1 + len(name.encode()) + _value_bytes(entry) for name, entry in content.items()
            )
        case _:
            # BOOL and NULL.
            return 1


def write_units(*sizes: int) -> int:
    """The units to write one item, from its sizes before and after."""
    return max(1, -(-max(sizes, default=0) // WRITE_BYTES))


def read_units(size: int, *, is_strong: bool) -> float:
    """The units to read one item, or all items that a query has looked at."""
    units = max(1, -(-size // READ_BYTES))
    return units if is_strong else units / 2


def index_units(table: schema.Table, before: Item | None, after: Item | None) -> int:
    """The units for entries of keys-only indexes that are added, removed or moved with an item."""
    units = 0
    for index in table.indexes:
        was = before.get(index.partition) if before else None
        now = after.get(index.partition) if after else None
        if was != now:
            units += (was is not None) + (now is not None)
    return units


# What it is for.


class Cause:
    """Why an item is read or written, as far as the request shows it."""

    APPEND: Final = "append"
    NUMBERS: Final = "numbers"
    OUTBOX: Final = "outbox"
    POSITIONS: Final = "positions"
    MEMBERS: Final = "members"
    RELAYS: Final = "relays"
    OTHER: Final = "other"


STANDING: Final = frozenset({Cause.RELAYS, Cause.OTHER})
"""Causes that cost by the second and not by the message (relays, sessions, sweeps): they count in
the idle mix alone."""

_BY_TABLE: Final = {
    schema.MESSAGES: Cause.APPEND,
    schema.AMENDMENTS: Cause.APPEND,
    schema.REACTIONS: Cause.APPEND,
    schema.KEYS: Cause.APPEND,
    schema.CHATS: Cause.APPEND,
    schema.COUNTERS: Cause.NUMBERS,
    schema.OUTBOX: Cause.OUTBOX,
    schema.OUTBOX_LEASES: Cause.RELAYS,
    schema.POSITIONS: Cause.POSITIONS,
    schema.MEMBERSHIPS: Cause.MEMBERS,
    schema.USER_CHATS: Cause.MEMBERS,
}


def cause_of(operation: str, table: str, tables: frozenset[str]) -> str:
    """Why an item of `table` is in this request, which has items of `tables`."""
    if operation == "Query" and table == schema.OUTBOX:
        return Cause.RELAYS
    if operation == "TransactWriteItems" and schema.MESSAGES in tables:
        return Cause.APPEND
    if schema.POSITIONS in tables and schema.KEYS not in tables and table == schema.CHATS:
        # Heads are read to bound a move, and together with the positions of all members.
        return Cause.POSITIONS
    return _BY_TABLE.get(table, Cause.OTHER)


class Spent(msgspec.Struct, frozen=True):
    """Units and requests."""

    writes: float = 0.0
    reads: float = 0.0
    requests: int = 0

    def __add__(self, other: "Spent") -> "Spent":
        return Spent(
            self.writes + other.writes, self.reads + other.reads, self.requests + other.requests
        )

    def __sub__(self, other: "Spent") -> "Spent":
        return Spent(
            self.writes - other.writes, self.reads - other.reads, self.requests - other.requests
        )

    @property
    def dollars(self) -> float:
        """The price of a million times this."""
        return self.writes * WRITE_DOLLARS + self.reads * READ_DOLLARS


class Tally:
    """What was spent so far, by cause and by table (units) or operation (requests)."""

    def __init__(self, spent: Mapping[tuple[str, str], Spent] | None = None) -> None:
        self._spent = dict(spent or {})

    def add(self, cause: str, what: str, spent: Spent) -> None:
        self._spent[cause, what] = self._spent.get((cause, what), Spent()) + spent

    def copy(self) -> "Tally":
        return Tally(self._spent)

    def since(self, earlier: "Tally") -> "Tally":
        rest = {key: spent - earlier._spent.get(key, Spent()) for key, spent in self._spent.items()}
        return Tally({key: spent for key, spent in rest.items() if spent != Spent()})

    def total(self, *, without: frozenset[str] = frozenset()) -> Spent:
        kept = (spent for (cause, _), spent in self._spent.items() if cause not in without)
        return sum(kept, Spent())

    def lines(self) -> list[tuple[str, str, Spent]]:
        return [(cause, what, self._spent[cause, what]) for cause, what in sorted(self._spent)]
