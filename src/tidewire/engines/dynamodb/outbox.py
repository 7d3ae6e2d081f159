"""The outbox: what was committed and is not in the event log yet, and which relay publishes it."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from tidewire.domain.events import LoggedEvent, MessageAppended
from tidewire.domain.outbox import LeaseTable, OutboxKey, OutboxRow, PersistedMessages, Unreadable
from tidewire.engines.dynamodb import rows, schema, values
from tidewire.engines.dynamodb.acts import Part, act
from tidewire.engines.dynamodb.entries import entry_of
from tidewire.ports.event_log import Outbox

if TYPE_CHECKING:
    from tidewire.domain.messages import Message

_FREE: Final = "attribute_not_exists(#owner) OR #owner = :owner OR #until <= :now"


class OutboxPart(Part):
    """Satisfies `ports.event_log.Outbox`."""

    @act
    async def outbox_rows(
        self, shard: int, *, after: str | None, count_max: int
    ) -> list[OutboxRow]:
        """Rows of one shard, those of a chat in the order of their commits. Not read strongly: a
        row that is not visible yet is found the next time."""
        found = await self._database.query(
            schema.OUTBOX, shard, above=after, limit=count_max, is_strong=False
        )
        return [values.outbox_row_of(row) for row in found]

    @act
    async def outbox_events(self, row: OutboxRow) -> list[LoggedEvent] | None:
        """All events or none: the row may be visible before the last message of its commit is.

        The messages are read now: one that was deleted since the commit is told as deleted."""
        content = row.content
        if isinstance(content, Unreadable):
            return None
        if not isinstance(content, PersistedMessages):
            return [content]
        found: dict[int, Message] = {}
        # Most are messages: only the others are looked for among the amendments.
        for table in (schema.MESSAGES, schema.AMENDMENTS):
            missing = [one for one in content.sequences if one not in found]
            there = await self._database.get_many(
                [(table, {"chat_id": content.chat_id, "sequence": one}) for one in missing]
            )
            found |= {row["sequence"]: entry_of(row) for row in there if row is not None}
        if len(found) < len(content.sequences):
            return None
        return [
            MessageAppended(found[sequence], content.membership_version, origin)
            for sequence, origin in zip(content.sequences, content.origins, strict=True)
        ]

    @act
    async def forget_published(self, keys: Sequence[OutboxKey]) -> None:
        """Delete rows whose events the log has. A row that stays is safely published again."""
        await self._database.delete_many(schema.OUTBOX, [values.outbox_key(key) for key in keys])

    def take_doubtful(self) -> set[int]:
        return self._database.take_doubtful()

    @act
    async def lease_table(self, relay_id: str, *, until_ms: int, now_ms: int) -> LeaseTable:
        here = values.relay_key(relay_id) | {"until": until_ms, schema.TTL: until_ms // 1000}
        # If this write fails, the next call makes it.
        await self._database.try_write(rows.put(schema.OUTBOX_LEASES, here))
        found = await self._database.query(schema.OUTBOX_LEASES, values.LEASES_OF)
        return values.lease_table_of(found, now_ms=now_ms)

    @act
    async def lease_shard(self, shard: int, relay_id: str, *, until_ms: int, now_ms: int) -> bool:
        return await self._database.write_if(
            rows.update(
                schema.OUTBOX_LEASES,
                values.lease_key(shard),
                "SET #owner = :owner, #until = :until",
                condition=_FREE,
                owner=relay_id,
                until=until_ms,
                now=now_ms,
            )
        )

    @act
    async def release_shards(self, shards: Sequence[int], relay_id: str) -> None:
        for shard in shards:
            key = values.lease_key(shard)
            await self._database.try_write(
                rows.delete(schema.OUTBOX_LEASES, key, condition="#owner = :owner", owner=relay_id)
            )

    @act
    async def leave_relays(self, relay_id: str) -> None:
        # If this write fails, the row expires by itself.
        await self._database.try_write(
            rows.delete(schema.OUTBOX_LEASES, values.relay_key(relay_id))
        )


_CONFORMS: type[Outbox] = OutboxPart
