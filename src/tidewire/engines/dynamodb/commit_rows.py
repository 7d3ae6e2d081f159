"""The rows of a commit: the fence, the outbox row, and each entry with its key."""

from collections.abc import Iterable, Sequence
from itertools import repeat

from tidewire.domain.append import message_of
from tidewire.domain.ids import ConnectionId
from tidewire.domain.messages import Message, SendMessage
from tidewire.engines.dynamodb import rows, schema, values
from tidewire.engines.dynamodb.entries import entry_row, key_row, table_of
from tidewire.engines.dynamodb.rows import Write


def number(
    sends: Sequence[SendMessage],
    *,
    first: int,
    head: int,
    now_ms: int,
    counts: Iterable[int] = repeat(0),
) -> list[Message]:
    """Make entries of the sends: numbered from `first` on, the first one follows the head.
    `counts` has one value for each send: the count of a reaction."""
    before = [head, *range(first, first + len(sends) - 1)]
    return [
        message_of(send, sequence, prev_sequence, now_ms, count)
        for sequence, (send, prev_sequence, count) in enumerate(
            zip(sends, before, counts, strict=False), first
        )
    ]


def commit_writes(
    messages: Sequence[Message],
    origins: Sequence[ConnectionId | None],
    *,
    membership_version: int,
    now_ms: int,
    last_message: int = 0,
    are_indexed: bool = False,
) -> list[Write]:
    """Phase 2: the fence, the outbox row, and each entry with its key. `last_message`: the chat's
    last message so far. `are_indexed`: all ids go into the index, as earlier releases expect."""
    outbox = values.messages_row(
        messages, origins, membership_version=membership_version, now_ms=now_ms
    )
    writes = [
        _fence(messages, membership_version, last_message, now_ms=now_ms),
        rows.put_new(schema.OUTBOX, outbox),
    ]
    for message in messages:
        writes += [
            rows.put(
                schema.KEYS,
                key_row(message),
                condition="attribute_not_exists(#chat_id) OR #ttl <= :now",
                now=now_ms // 1000,
            ),
            rows.put_new(table_of(message.amends), entry_row(message, is_indexed=are_indexed)),
        ]
    return writes


def _fence(
    messages: Sequence[Message], membership_version: int, last_message: int, *, now_ms: int
) -> Write:
    """Move the head row, if it is still as it was read. It names the last message only if the last
    entry is no message."""
    last = messages[-1]
    fields: dict[str, rows.Value] = {"last_sequence": last.sequence, "last_message": None}
    spoken = [message for message in messages if message.amends is None]
    if spoken:
        fields["last_message_at"] = now_ms
        last_message = spoken[-1].sequence
    if last_message != last.sequence:
        fields["last_message"] = last_message
    mentioning = [message.sequence for message in spoken if message.mentions]
    if mentioning:
        fields["last_mention"] = mentioning[-1]
    return rows.change(
        schema.CHATS,
        {"chat_id": last.chat_id},
        fields,
        where={
            "last_sequence": messages[0].prev_sequence,
            "membership_version": membership_version,
        },
    )
