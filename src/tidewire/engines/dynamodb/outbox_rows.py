"""The rows of the outbox: which events of a commit are still to be put into the log. PURE.

A row of messages names their sequences: the messages themselves are in their table. A row of a
change carries the event, because the state it tells of goes on changing. Rows of a chat lie in one
shard, in the order of their commits.
"""

import zlib
from typing import Final

import msgspec

from tidewire.domain.events import ChatCreated, ChatRenamed, MembershipChanged
from tidewire.domain.ids import ChatId, ConnectionId
from tidewire.domain.messages import Message
from tidewire.engines.dynamodb.rows import Row, Value

SHARDS: Final = 64

ChangeEvent = ChatCreated | ChatRenamed | MembershipChanged

_KINDS: Final[dict[str, type[ChangeEvent]]] = {
    kind.__name__: kind for kind in (ChatCreated, ChatRenamed, MembershipChanged)
}


class PersistedMessages(msgspec.Struct, frozen=True):
    """Messages of one commit. Origins are the connections they came from, in the same order."""

    chat_id: ChatId
    sequences: tuple[int, ...]
    membership_version: int
    origins: tuple[ConnectionId | None, ...]


class OutboxRow(msgspec.Struct, frozen=True):
    shard: int
    row: str
    created_at_ms: int
    content: PersistedMessages | ChangeEvent


def shard_of(chat_id: ChatId) -> int:
    return zlib.crc32(chat_id.encode()) % SHARDS


def messages_key(chat_id: ChatId, first_sequence: int) -> dict[str, Value]:
    return {"shard": shard_of(chat_id), "row": f"{chat_id}#s#{first_sequence:016d}"}


def change_key(chat_id: ChatId, membership_version: int) -> dict[str, Value]:
    return {"shard": shard_of(chat_id), "row": f"{chat_id}#v#{membership_version:016d}"}


def messages_row(
    messages: list[Message],
    origins: list[ConnectionId | None],
    *,
    membership_version: int,
    now_ms: int,
) -> dict[str, Value]:
    chat_id = messages[0].chat_id
    return messages_key(chat_id, messages[0].sequence) | {
        "chat_id": chat_id,
        "sequences": [message.sequence for message in messages],
        "membership_version": membership_version,
        "origins": [origin or "" for origin in origins],
        "created_at": now_ms,
    }


def change_row(event: ChangeEvent, *, now_ms: int) -> dict[str, Value]:
    return change_key(event.chat.chat_id, event.chat.membership_version) | {
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
    return OutboxRow(row["shard"], row["row"], row["created_at"], content)
