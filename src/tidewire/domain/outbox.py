"""The outbox: commits that the event log may not have yet, and which relay publishes them. PURE.

A commit leaves one row. A row of messages names their sequences: the messages themselves are in
their table. A row of a change carries the event, because the state of the chat may change again.
Rows are in shards by their chat, the rows of a chat in the order of their commits.
"""

import zlib
from collections.abc import Sequence
from typing import Final

import msgspec

from tidewire.domain.events import ChangeEvent, LoggedEvent, MessageAppended
from tidewire.domain.ids import ChatId, ConnectionId

SHARDS: Final = 64


class OutboxKey(msgspec.Struct, frozen=True):
    """The place of a row."""

    shard: int
    row: str


class PersistedMessages(msgspec.Struct, frozen=True):
    """Messages of one commit. Origins are the connections they came from, in the same order."""

    chat_id: ChatId
    sequences: tuple[int, ...]
    membership_version: int
    origins: tuple[ConnectionId | None, ...]


class Unreadable(msgspec.Struct, frozen=True):
    """A row that cannot be read. It stays, so that an operator can examine it."""

    reason: str


class OutboxRow(msgspec.Struct, frozen=True):
    key: OutboxKey
    created_at_ms: int
    """0 in a row that cannot be read."""
    content: PersistedMessages | ChangeEvent | Unreadable


class Lease(msgspec.Struct, frozen=True):
    """The right of one relay to publish a shard's rows, until a time of the wall clock."""

    shard: int
    owner: str
    until_ms: int


class LeaseTable(msgspec.Struct, frozen=True):
    """The relays that are running, and the leases that they hold; without expired ones."""

    relays: tuple[str, ...]
    leases: tuple[Lease, ...]


def shard_of(chat_id: ChatId) -> int:
    return zlib.crc32(chat_id.encode()) % SHARDS


def messages_key(chat_id: ChatId, first_sequence: int) -> OutboxKey:
    return OutboxKey(shard_of(chat_id), f"{chat_id}#s#{first_sequence:016d}")


def change_key(chat_id: ChatId, membership_version: int) -> OutboxKey:
    return OutboxKey(shard_of(chat_id), f"{chat_id}#v#{membership_version:016d}")


def key_of_commit(events: Sequence[LoggedEvent]) -> OutboxKey:
    """The row that a commit of these events has left. A commit is messages of one chat, or one
    change of one chat."""
    first = events[0]
    if isinstance(first, MessageAppended):
        message = first.message
        return messages_key(message.chat_id, message.sequence)
    assert len(events) == 1, "a change is a commit of its own"
    return change_key(first.chat.chat_id, first.chat.membership_version)
