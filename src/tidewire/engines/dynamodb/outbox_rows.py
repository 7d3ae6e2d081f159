"""The rows of the outbox and of its leases, as DynamoDB keeps them. PURE.

All leases lie in one partition, beside the relays that are there to hold them, so that one query
shows who looks after what.
"""

from collections.abc import Iterable
from typing import Final

import msgspec

from tidewire.domain.events import ChangeEvent, ChatCreated, ChatRenamed, MembershipChanged
from tidewire.domain.ids import ChatId, ConnectionId
from tidewire.domain.messages import Message
from tidewire.domain.outbox import (
    Lease,
    LeaseTable,
    OutboxKey,
    OutboxRow,
    PersistedMessages,
    change_key,
    messages_key,
)
from tidewire.engines.dynamodb.rows import Row, Value

LEASES_OF: Final = "outbox"
"""The partition of the leases."""
_SHARD: Final = "shard#"
_RELAY: Final = "relay#"

_KINDS: Final[dict[str, type[ChangeEvent]]] = {
    kind.__name__: kind for kind in (ChatCreated, ChatRenamed, MembershipChanged)
}


def messages_row(
    messages: list[Message],
    origins: list[ConnectionId | None],
    *,
    membership_version: int,
    now_ms: int,
) -> dict[str, Value]:
    chat_id = messages[0].chat_id
    return row_key(messages_key(chat_id, messages[0].sequence)) | {
        "chat_id": chat_id,
        "sequences": [message.sequence for message in messages],
        "membership_version": membership_version,
        "origins": [origin or "" for origin in origins],
        "created_at": now_ms,
    }


def change_row(event: ChangeEvent, *, now_ms: int) -> dict[str, Value]:
    key = change_key(event.chat.chat_id, event.chat.membership_version)
    return row_key(key) | {
        "chat_id": event.chat.chat_id,
        "kind": type(event).__name__,
        "event": msgspec.json.encode(event),
        "created_at": now_ms,
    }


def outbox_row_of(row: Row) -> OutboxRow:
    content: PersistedMessages | ChangeEvent
    if "sequences" in row:
        content = PersistedMessages(
            chat_id=ChatId(row["chat_id"]),
            sequences=tuple(row["sequences"]),
            membership_version=row["membership_version"],
            origins=tuple(ConnectionId(origin) if origin else None for origin in row["origins"]),
        )
    else:
        content = msgspec.json.decode(row["event"], type=_KINDS[row["kind"]])
    return OutboxRow(OutboxKey(row["shard"], row["row"]), row["created_at"], content)


def row_key(key: OutboxKey) -> dict[str, Value]:
    return {"shard": key.shard, "row": key.row}


def lease_key(shard: int) -> dict[str, Value]:
    return {"leases_of": LEASES_OF, "lease": f"{_SHARD}{shard:04d}"}


def relay_key(relay_id: str) -> dict[str, Value]:
    return {"leases_of": LEASES_OF, "lease": _RELAY + relay_id}


def lease_table_of(rows: Iterable[Row], *, now_ms: int) -> LeaseTable:
    """What has run out counts as absent: DynamoDB deletes it late."""
    relays, leases = [], []
    for row in rows:
        name: str = row["lease"]
        if row["until"] <= now_ms:
            continue
        if name.startswith(_RELAY):
            relays.append(name.removeprefix(_RELAY))
        else:
            leases.append(Lease(int(name.removeprefix(_SHARD)), row["owner"], row["until"]))
    return LeaseTable(tuple(relays), tuple(leases))
