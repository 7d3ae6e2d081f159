"""The tables: their keys, indexes and expiry (docs/data-model.md).
PURE.

Times are wall-clock milliseconds, except `ttl`, which DynamoDB wants in seconds. What a promise
rests on is read from base tables: a global index lags.
"""

from typing import Any, Final

import msgspec
from msgspec.structs import replace

TTL: Final = "ttl"
"""When DynamoDB may delete a row, in seconds. It does so late: every reader checks by itself."""


class Index(msgspec.Struct, frozen=True):
    """A global index of keys only."""

    name: str
    partition: str


class Table(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    partition: str
    sort: str | None = None
    numbers: tuple[str, ...] = ()
    """The keys that are numbers; `binaries` those that are bytes; all others are text."""
    binaries: tuple[str, ...] = ()
    expires: bool = False
    indexes: tuple[Index, ...] = ()

    @property
    def keys(self) -> tuple[str, ...]:
        return (self.partition,) if self.sort is None else (self.partition, self.sort)


MESSAGE_ID_INDEX: Final = "message_id-index"

MESSAGES: Final = "messages"
AMENDMENTS: Final = "amendments"
REACTIONS: Final = "reactions"
COUNTERS: Final = "chat_counters"
KEYS: Final = "idempotency_keys"
CHATS: Final = "chats"
MEMBERSHIPS: Final = "chat_memberships"
USER_CHATS: Final = "user_chats"
POSITIONS: Final = "delivery_state"
DIRECT_CHATS: Final = "direct_chat_index"
OUTBOX: Final = "outbox"
OUTBOX_LEASES: Final = "outbox_leases"
USERS: Final = "users"
USERNAMES: Final = "usernames"
EXTERNAL_USERS: Final = "external_users"
INVITES: Final = "invites"
SESSIONS: Final = "sessions"
USER_SESSIONS: Final = "user_sessions"
BLOCKS: Final = "blocks"
REQUESTS: Final = "rest_requests"
STORE: Final = "store"

_ENTRIES: Final = Table(
    name=MESSAGES,
    partition="chat_id",
    sort="sequence",
    numbers=("sequence",),
    indexes=(Index(MESSAGE_ID_INDEX, "message_id"),),
)

TABLES: Final = (
    _ENTRIES,
    # Entries of the same log that are no messages: edits, deletions, reactions.
    replace(_ENTRIES, name=AMENDMENTS),
    # Each user's last reaction with an emoji to a message.
    Table(name=REACTIONS, partition="chat_id", sort="reaction"),
    Table(name=COUNTERS, partition="chat_id"),
    Table(name=KEYS, partition="chat_id", sort="client_message_id", expires=True),
    # The head row: every write is fenced by its last_sequence and membership_version.
    Table(name=CHATS, partition="chat_id"),
    Table(name=MEMBERSHIPS, partition="chat_id", sort="user_id"),
    Table(name=USER_CHATS, partition="user_id", sort="chat_id"),
    Table(name=POSITIONS, partition="user_id", sort="chat_id"),
    Table(name=DIRECT_CHATS, partition="pair_key"),
    Table(name=OUTBOX, partition="shard", sort="row", numbers=("shard",)),
    # All in one partition, so that one query shows which relays there are and what each holds.
    Table(name=OUTBOX_LEASES, partition="leases_of", sort="lease", expires=True),
    Table(name=USERS, partition="user_id"),
    Table(name=USERNAMES, partition="initial", sort="username"),
    Table(name=EXTERNAL_USERS, partition="identity"),
    Table(name=INVITES, partition="code_hash", binaries=("code_hash",), expires=True),
    Table(name=SESSIONS, partition="session_id", expires=True),
    Table(name=USER_SESSIONS, partition="user_id", sort="session_id", expires=True),
    Table(name=BLOCKS, partition="user_id", sort="blocked_id"),
    Table(name=REQUESTS, partition="user_id", sort="request", expires=True),
    Table(name=STORE, partition="name"),
)

BY_NAME: Final = {table.name: table for table in TABLES}


def key_of(table: str, row: dict[str, Any]) -> dict[str, Any]:
    """The key of a row of this table."""
    return {name: row[name] for name in BY_NAME[table].keys}


def definition(table: Table, prefix: str) -> dict[str, object]:
    """The table as a request to CreateTable."""
    attributes = [*table.keys, *(index.partition for index in table.indexes)]
    wanted: dict[str, object] = {
        "TableName": prefix + table.name,
        "BillingMode": "PAY_PER_REQUEST",
        "AttributeDefinitions": [
            {"AttributeName": name, "AttributeType": _type_of(table, name)} for name in attributes
        ],
        "KeySchema": _key_schema(*table.keys),
    }
    if table.indexes:
        wanted["GlobalSecondaryIndexes"] = [
            {
                "IndexName": index.name,
                "KeySchema": _key_schema(index.partition),
                "Projection": {"ProjectionType": "KEYS_ONLY"},
            }
            for index in table.indexes
        ]
    return wanted


def differences(table: Table, found: dict[str, object], prefix: str) -> list[str]:
    """How a table, as DescribeTable describes it, differs from what is needed."""
    wanted = definition(table, prefix)
    faults = []
    if found["KeySchema"] != wanted["KeySchema"]:
        faults.append(f"{table.name}: its keys are {found['KeySchema']}")
    types = {
        one["AttributeName"]: one["AttributeType"]
        for one in _entries(found, "AttributeDefinitions")
    }
    faults += [
        f"{table.name}: {name} is of type {types.get(name)}"
        for name in table.keys
        if types.get(name) != _type_of(table, name)
    ]
    indexes = {str(one["IndexName"]): one for one in _entries(found, "GlobalSecondaryIndexes")}
    for index in table.indexes:
        one = indexes.get(index.name)
        if one is None or one["KeySchema"] != _key_schema(index.partition):
            faults.append(f"{table.name}: the index {index.name} on {index.partition} is missing")
    return faults


def _entries(found: dict[str, object], name: str) -> list[dict[str, object]]:
    entries = found.get(name, [])
    assert isinstance(entries, list)
    return entries


def _type_of(table: Table, name: str) -> str:
    if name in table.numbers:
        return "N"
    return "B" if name in table.binaries else "S"


def _key_schema(*names: str) -> list[dict[str, str]]:
    kinds = ("HASH", "RANGE")
    return [
        {"AttributeName": name, "KeyType": kind} for name, kind in zip(names, kinds, strict=False)
    ]
