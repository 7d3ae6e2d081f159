"""The outbox: what was committed and is not in the event log yet, and who sees to it."""

from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from tidewire.domain.events import LoggedEvent, MessageAppended
from tidewire.domain.outbox import LeaseTable, OutboxKey, OutboxRow, PersistedMessages, Unreadable
from tidewire.engines.dynamodb import rows, schema, values
from tidewire.engines.dynamodb.database import Database
from tidewire.engines.dynamodb.errors import AnswerLost, ConditionFailed
from tidewire.engines.dynamodb.outbox_rows import (
    LEASES_OF,
    lease_key,
    lease_table_of,
    outbox_row_of,
    relay_key,
    row_key,
)

_FREE: Final = "attribute_not_exists(#owner) OR #owner = :owner OR #until <= :now"


async def read_outbox(
    database: Database, shard: int, *, after: str | None, count_max: int
) -> list[OutboxRow]:
    """Rows of one shard, those of a chat in the order of their commits."""
    found = await database.query(schema.OUTBOX, shard, above=after, limit=count_max)
    return [outbox_row_of(row) for row in found]


async def read_events(database: Database, row: OutboxRow) -> list[LoggedEvent] | None:
    """Whole or not at all: the row may show itself before the last message of its commit does."""
    content = row.content
    if isinstance(content, Unreadable):
        return None
    if not isinstance(content, PersistedMessages):
        return [content]
    found = await database.get_many(
        [
            (schema.MESSAGES, {"chat_id": content.chat_id, "sequence": sequence})
            for sequence in content.sequences
        ]
    )
    messages = [values.message_of(one) for one in found if one is not None]
    if len(messages) < len(content.sequences):
        return None
    return [
        MessageAppended(message, content.membership_version, origin)
        for message, origin in zip(messages, content.origins, strict=True)
    ]


async def forget_published(database: Database, keys: Sequence[OutboxKey]) -> None:
    """Delete rows whose events the log has. A row that stays is published again, which is safe."""
    await database.delete_many(schema.OUTBOX, [row_key(key) for key in keys])


async def lease_table(
    database: Database, relay_id: str, *, until_ms: int, now_ms: int
) -> LeaseTable:
    here = relay_key(relay_id) | {"until": until_ms, schema.TTL: until_ms // 1000}
    with suppress(AnswerLost):  # Said, or said the next time.
        await database.write(rows.put(schema.OUTBOX_LEASES, here))
    found = await database.query(schema.OUTBOX_LEASES, LEASES_OF)
    return lease_table_of(found, now_ms=now_ms)


async def lease_shard(
    database: Database, shard: int, relay_id: str, *, until_ms: int, now_ms: int
) -> bool:
    try:
        await database.write(
            rows.update(
                schema.OUTBOX_LEASES,
                lease_key(shard),
                "SET #owner = :owner, #until = :until",
                condition=_FREE,
                owner=relay_id,
                until=until_ms,
                now=now_ms,
            )
        )
    except ConditionFailed:
        return False
    return True


async def release_shards(database: Database, shards: Sequence[int], relay_id: str) -> None:
    for shard in shards:
        try:
            await database.write(
                rows.delete(
                    schema.OUTBOX_LEASES,
                    lease_key(shard),
                    condition="#owner = :owner",
                    owner=relay_id,
                )
            )
        except (ConditionFailed, AnswerLost):
            continue


async def leave_relays(database: Database, relay_id: str) -> None:
    with suppress(AnswerLost):  # It runs out by itself.
        await database.write(rows.delete(schema.OUTBOX_LEASES, relay_key(relay_id)))
