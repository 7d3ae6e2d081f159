"""The outbox: what was committed and is not in the event log yet."""

from collections.abc import Sequence

from tidewire.engines.dynamodb import rows, schema
from tidewire.engines.dynamodb.database import Database
from tidewire.engines.dynamodb.errors import AnswerLost
from tidewire.engines.dynamodb.outbox_rows import OutboxRow, outbox_row_of


async def read_outbox(database: Database, shard: int, *, count_max: int) -> list[OutboxRow]:
    """Rows of one shard, those of a chat in the order of their commits."""
    found = await database.query(schema.OUTBOX, shard, limit=count_max)
    return [outbox_row_of(row) for row in found]


async def forget_published(database: Database, published: Sequence[OutboxRow]) -> None:
    """Delete rows whose events the log has. A row that stays is published again, which is safe."""
    for one in published:
        try:
            await database.write(rows.delete(schema.OUTBOX, {"shard": one.shard, "row": one.row}))
        except AnswerLost:
            continue
