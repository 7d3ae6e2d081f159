"""The rows of the outbox and of its leases, as DynamoDB keeps them. PURE.

All leases lie in one partition, beside the relays that are there to hold them, so that one query
shows who looks after what.
"""

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from tidewire.domain.events import (
    ChangeEvent,
    ChatClosed,
    ChatCreated,
    ChatRenamed,
    MembershipChanged,
)
from tidewire.domain.ids import ConnectionId
from tidewire.domain.messages import Message
from tidewire.domain.outbox import (
    Lease,
    LeaseTable,
    OutboxKey,
    OutboxRow,
    PersistedMessages,
    Unreadable,
    change_key,
    messages_key,
)
from tidewire.engines.dynamodb.rows import Row, Value

LEASES_OF: Final = "outbox"
"""The partition of the leases."""
_SHARD: Final = "shard#"
_RELAY: Final = "relay#"

_KINDS: Final[dict[str, type[ChangeEvent]]] = {
    kind.__name__: kind for kind in (ChatCreated, ChatRenamed, MembershipChanged, ChatClosed)
}


def messages_row(
    messages: Sequence[Message],
    origins: Sequence[ConnectionId | None],
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
    """A row that is not one of ours must not keep the others from being read."""
    key = OutboxKey(row["shard"], row["row"])
    try:
        created_at_ms = msgspec.convert(row["created_at"], int)
        content = _messages_of(row) if "sequences" in row else _change_of(row)
    except (KeyError, TypeError, ValueError) as error:
        # The kind of fault and no more: the row may hold what people have written.
        return OutboxRow(key, 0, Unreadable(type(error).__name__))
    return OutboxRow(key, created_at_ms, content)


def _messages_of(row: Row) -> PersistedMessages:
    fields = {name: row[name] for name in ("chat_id", "sequences", "membership_version")}
    origins = [origin or None for origin in row["origins"]]
    content = msgspec.convert(fields | {"origins": origins}, PersistedMessages)
    if not 0 < len(content.sequences) == len(content.origins):
        raise ValueError("each message has an origin")
    return content


def _change_of(row: Row) -> ChangeEvent:
    return msgspec.json.decode(row["event"], type=_KINDS[row["kind"]])


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
