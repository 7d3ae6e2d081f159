"""The account part of the DynamoDB engine: joins its parts, keeps the Idempotency-Keys of REST
requests (pending, then done: A-05), and deletes expired rows."""

import uuid
from typing import Any, Final

from tidewire.domain.accounts import RequestClaim, RequestClaimed, RequestKey, judge_request
from tidewire.domain.limits import REQUEST_KEY_LIFE_MS
from tidewire.engines.dynamodb import rows, schema, values
from tidewire.engines.dynamodb.acts import act, until_answered, until_committed
from tidewire.engines.dynamodb.blocks import Blocks
from tidewire.engines.dynamodb.rows import Row, Value, Write
from tidewire.engines.dynamodb.sessions import Sessions
from tidewire.ports.accounts import AccountStore

LOOKED_AT_MAX: Final = 1_000
"""Rows of each table that one sweep reads."""


class Accounts(Sessions, Blocks):
    """Satisfies `ports.accounts.AccountStore`."""

    _sweep_from: dict[str, Any]
    """Where the next sweep of each table starts."""

    @act
    async def claim_request(
        self, key: RequestKey, body_hash: bytes, *, resource_id: str | None, now_ms: int
    ) -> RequestClaim:
        mark = str(uuid.uuid4())
        return await self._claim(key, body_hash, resource_id, mark, now_ms)

    @until_answered
    @until_committed
    async def _claim(
        self,
        key: RequestKey,
        body_hash: bytes,
        resource_id: str | None,
        mark: str,
        now_ms: int,
    ) -> RequestClaim:
        row = await self._database.get(schema.REQUESTS, _key(key))
        stored = None if row is None else values.REQUEST.value(row)
        claim = judge_request(stored, body_hash, now_ms=now_ms)
        if row is None or claim is None:
            await self._database.write(_new(key, body_hash, resource_id, mark, now_ms))
            return RequestClaimed(resource_id)
        if row["claimed_by"] == mark:
            # The answer to our own claim was lost.
            return RequestClaimed(row.get("resource_id"), resumed=row["resumed"])
        if isinstance(claim, RequestClaimed):
            await self._database.write(_takeover(key, row, mark, now_ms))
        return claim

    @act
    @until_answered
    async def finish_request(
        self, key: RequestKey, *, http_status: int, resource_id: str | None
    ) -> None:
        await self._database.write_if(
            rows.change(
                schema.REQUESTS,
                _key(key),
                {"http_status": http_status, "resource_id": resource_id},
                where={"user_id": rows.PRESENT, "http_status": None},
            )
        )

    @act
    @until_answered
    async def release_request(self, key: RequestKey) -> None:
        condition = "attribute_not_exists(#http_status)"
        await self._database.write_if(rows.delete(schema.REQUESTS, _key(key), condition=condition))

    # What has expired.

    @act
    async def sweep_accounts(self, *, now_ms: int, count_max: int) -> int:
        """Delete what has expired where DynamoDB does not (DynamoDB Local), or not yet.

        Each call reads a bounded part of each table; the next call goes on from there.
        """
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
        found, following = await self._database.scan_page(
            table, limit=LOOKED_AT_MAX, start=self._sweep_from.get(table)
        )
        expired = [row for row in found if row[field] <= before_ms]
        # If there is more than this call may delete, the next call starts at the same place again.
        if len(expired) <= count_max:
            self._sweep_from[table] = following
        gone = [await self._delete_expired(table, row, field) for row in expired[:count_max]]
        return sum(gone)

    async def _delete_expired(self, table: str, row: Row, field: str) -> bool:
        if table == schema.SESSIONS:
            listed = {"user_id": row["user_id"], "session_id": row["session_id"]}
            if not await self._database.try_write(rows.delete(schema.USER_SESSIONS, listed)):
                return False
        # An expired key may have been claimed anew meanwhile.
        return await self._database.try_write(
            rows.delete(
                table, schema.key_of(table, row), condition=f"#{field} = :seen", seen=row[field]
            )
        )


def _key(key: RequestKey) -> dict[str, Value]:
    # An endpoint has no line break, so no two keys make the same text.
    return {"user_id": key.user_id, "request": f"{key.endpoint}\n{key.key}"}


def _new(
    key: RequestKey, body_hash: bytes, resource_id: str | None, mark: str, now_ms: int
) -> Write:
    row: dict[str, Value] = _key(key) | {
        "body_hash": body_hash,
        "resource_id": resource_id,
        "created_at": now_ms,
        "claimed_at": now_ms,
        "claimed_by": mark,
        "resumed": False,
        "ttl": (now_ms + REQUEST_KEY_LIFE_MS) // 1000 + 1,
    }
    condition = "attribute_not_exists(#user_id) OR #created_at <= :oldest"
    oldest = now_ms - REQUEST_KEY_LIFE_MS
    return rows.put(schema.REQUESTS, row, condition=condition, oldest=oldest)


def _takeover(key: RequestKey, row: Row, mark: str, now_ms: int) -> Write:
    return rows.change(
        schema.REQUESTS,
        _key(key),
        {"claimed_at": now_ms, "claimed_by": mark, "resumed": True},
        where={"claimed_by": row["claimed_by"], "http_status": None},
    )


_CONFORMS: type[AccountStore] = Accounts
