"""Deleting what has expired, where DynamoDB's own expiry does not (DynamoDB Local) or not yet.

Each call looks at a bounded piece of each table and goes on from there the next time.
"""

from typing import Any, Final

from tidewire.domain.limits import REQUEST_KEY_LIFE_MS
from tidewire.engines.dynamodb import rows, schema
from tidewire.engines.dynamodb.database import Database
from tidewire.engines.dynamodb.errors import AnswerLost, ConditionFailed
from tidewire.engines.dynamodb.rows import Row

LOOKED_AT_MAX: Final = 1_000


class Sweeper:
    def __init__(self, database: Database) -> None:
        self._database = database
        self._places: dict[str, Any] = {}
        """Where each table is looked at next."""

    async def sweep(self, *, now_ms: int, count_max: int) -> int:
        gone = 0
        for table, field, before_ms in (
            (schema.SESSIONS, "expires_at", now_ms),
            (schema.INVITES, "expires_at", now_ms),
            (schema.REQUESTS, "created_at", now_ms - REQUEST_KEY_LIFE_MS),
        ):
            with self._database.within_budget():
                gone += await self._sweep(table, field, before_ms, count_max)
        return gone

    async def _sweep(self, table: str, field: str, before_ms: int, count_max: int) -> int:
        request: dict[str, Any] = {
            "TableName": self._database.name_of(table),
            "Limit": LOOKED_AT_MAX,
            "ConsistentRead": True,
        }
        if self._places.get(table) is not None:
            request["ExclusiveStartKey"] = self._places[table]
        answer = await self._database.call("scan", **request)
        found = [rows.unpack(item) for item in answer["Items"]]
        expired = [row for row in found if row[field] <= before_ms]
        # What is too much for now is found again from the same place.
        if len(expired) <= count_max:
            self._places[table] = answer.get("LastEvaluatedKey")
        gone = [await self._delete(table, row, field) for row in expired[:count_max]]
        return sum(gone)

    async def _delete(self, table: str, row: Row, field: str) -> bool:
        key = {name: row[name] for name in schema.BY_NAME[table].keys}
        try:
            if table == schema.SESSIONS:
                listed = {"user_id": row["user_id"], "session_id": row["session_id"]}
                await self._database.write(rows.delete(schema.USER_SESSIONS, listed))
            # A key that was forgotten may have been used anew meanwhile.
            await self._database.write(
                rows.delete(table, key, condition=f"#{field} = :seen", seen=row[field])
            )
        except (ConditionFailed, AnswerLost):
            return False
        return True
