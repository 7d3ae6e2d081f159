"""Moving one position row: from where it was seen, or from where it turns out to be."""

from collections.abc import Callable

import msgspec

from tidewire.domain.delivery import NOWHERE, Positions
from tidewire.domain.errors import StoreUnavailable
from tidewire.domain.ids import ChatId, UserId
from tidewire.engines.dynamodb import rows, schema, values
from tidewire.engines.dynamodb.database import Database
from tidewire.engines.dynamodb.errors import AnswerLost, ConditionFailed
from tidewire.engines.dynamodb.rows import Write

TRIES_MAX = 20
"""Each lost race means that the row has grown; it cannot go on for long."""


class Moved(msgspec.Struct, frozen=True):
    before: Positions
    after: Positions


def position_write(
    user_id: UserId, chat_id: ChatId, before: Positions | None, after: Positions, *, now_ms: int
) -> Write:
    """The move, if the row stands where it was seen (None: there was none)."""
    move = "SET #last_acked_sequence = :delivered, #last_read_sequence = :read, #updated_at = :now"
    key: dict[str, rows.Value] = {"user_id": user_id, "chat_id": chat_id}
    new: dict[str, rows.Value] = {"delivered": after.delivered, "read": after.read, "now": now_ms}
    if before is None:
        return rows.update(
            schema.POSITIONS, key, move, condition="attribute_not_exists(#user_id)", **new
        )
    return rows.update(
        schema.POSITIONS,
        key,
        move,
        condition="#last_acked_sequence = :old_delivered AND #last_read_sequence = :old_read",
        old_delivered=before.delivered,
        old_read=before.read,
        **new,
    )


async def moved(
    database: Database,
    chat_id: ChatId,
    user_id: UserId,
    before: Positions | None,
    decide: Callable[[Positions], Positions],
    *,
    now_ms: int,
) -> Moved:
    """Move a row to where `decide` says, from where it stands at that instant."""
    key: dict[str, rows.Value] = {"user_id": user_id, "chat_id": chat_id}
    for _ in range(TRIES_MAX):
        start = NOWHERE if before is None else before
        after = decide(start)
        if after == start:
            return Moved(start, after)
        try:
            move = position_write(user_id, chat_id, before, after, now_ms=now_ms)
            await database.write_among(move)
        except ConditionFailed as failed:
            before = None if failed.row is None else values.positions_of(failed.row)
        except AnswerLost:
            row = await database.get(schema.POSITIONS, key)
            found = None if row is None else values.positions_of(row)
            if found == after:
                return Moved(start, after)
            before = found
        else:
            return Moved(start, after)
    raise StoreUnavailable("a position could not be moved; the same request may be sent again")
