"""The Idempotency-Keys of REST requests: pending, then done (A-05)."""

import uuid

from tidewire.domain.accounts import (
    RequestClaim,
    RequestClaimed,
    RequestKey,
    RequestMismatch,
    RequestPending,
    RequestReplayed,
)
from tidewire.domain.limits import REQUEST_KEY_LIFE_MS, REQUEST_PENDING_MS_MAX
from tidewire.engines.dynamodb import rows, schema
from tidewire.engines.dynamodb.backoff import Hindrance
from tidewire.engines.dynamodb.database import Database
from tidewire.engines.dynamodb.errors import AnswerLost, ConditionFailed
from tidewire.engines.dynamodb.rows import Row, Value, Write


def _key(key: RequestKey) -> dict[str, Value]:
    # An endpoint has no line break, so no two keys make the same text.
    return {"user_id": key.user_id, "request": f"{key.endpoint}\n{key.key}"}


def judge_claim(row: Row | None, body_hash: bytes, *, now_ms: int) -> RequestClaim | None:
    """What became of a request by its row; None: it is new, or has been forgotten."""
    if row is None or row["created_at"] <= now_ms - REQUEST_KEY_LIFE_MS:
        return None
    if row["body_hash"] != body_hash:
        return RequestMismatch()
    if row.get("http_status") is not None:
        return RequestReplayed(row["http_status"], row.get("resource_id"))
    if now_ms - row["claimed_at"] < REQUEST_PENDING_MS_MAX:
        return RequestPending()
    return RequestClaimed(row.get("resource_id"), resumed=True)


async def claim_request(
    database: Database, key: RequestKey, body_hash: bytes, *, resource_id: str | None, now_ms: int
) -> RequestClaim:
    mark = str(uuid.uuid4())
    tried = 0
    while True:
        row = await database.get(schema.REQUESTS, _key(key))
        claim = judge_claim(row, body_hash, now_ms=now_ms)
        if claim is not None and row is not None and row["claimed_by"] == mark:
            # The answer to our own claim was lost.
            return RequestClaimed(row.get("resource_id"), resumed=tried > 0 and row["resumed"])
        if claim is not None and not isinstance(claim, RequestClaimed):
            return claim
        if claim is None:
            write = _new(key, body_hash, resource_id, mark, now_ms)
            claim = RequestClaimed(resource_id)
        else:
            assert row is not None
            write = _takeover(key, row, mark, now_ms)
        try:
            await database.write(write)
        except (ConditionFailed, AnswerLost):
            await database.pause(Hindrance.LOST, min(tried, 1))
            tried += 1
        else:
            return claim


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
    return rows.update(
        schema.REQUESTS,
        _key(key),
        "SET #claimed_at = :now, #claimed_by = :mark, #resumed = :yes",
        condition="#claimed_by = :before AND attribute_not_exists(#http_status)",
        now=now_ms,
        mark=mark,
        yes=True,
        before=row["claimed_by"],
    )


async def _settle(database: Database, write: Write) -> None:
    """Write what is the same when written twice."""
    tried = 0
    while True:
        try:
            await database.write(write)
        except ConditionFailed:
            return
        except AnswerLost:
            await database.pause(Hindrance.LOST, tried)
            tried += 1
        else:
            return


async def finish_request(
    database: Database, key: RequestKey, *, http_status: int, resource_id: str | None
) -> None:
    fields: dict[str, Value] = {"status": http_status}
    change = "SET #http_status = :status"
    if resource_id is None:
        change += " REMOVE #resource_id"
    else:
        change += ", #resource_id = :resource"
        fields["resource"] = resource_id
    condition = "attribute_exists(#user_id) AND attribute_not_exists(#http_status)"
    await _settle(
        database, rows.update(schema.REQUESTS, _key(key), change, condition=condition, **fields)
    )


async def release_request(database: Database, key: RequestKey) -> None:
    condition = "attribute_not_exists(#http_status)"
    await _settle(database, rows.delete(schema.REQUESTS, _key(key), condition=condition))
