"""Idempotency-Keys of REST requests in the database, and the sweeping of what has expired."""

from typing import Any, Final

import apsw

from tidewire.domain.accounts import (
    RequestClaim,
    RequestClaimed,
    RequestKey,
    RequestMismatch,
    RequestPending,
    RequestReplayed,
)
from tidewire.domain.events import Event
from tidewire.domain.limits import REQUEST_KEY_LIFE_MS, REQUEST_PENDING_MS_MAX

FIND: Final = """
SELECT body_hash, state, response_status, resource_id, claimed_at FROM request_keys
WHERE user_id = ? AND endpoint = ? AND request_key = ? AND created_at > ?
"""

# In place of one that has expired, which counts as absent.
CLAIM: Final = """
INSERT OR REPLACE INTO request_keys (user_id, endpoint, request_key, body_hash, state, resource_id,
    created_at, claimed_at)
VALUES (?, ?, ?, ?, 'pending', ?, ?, ?)
"""

TAKE_OVER: Final = """
UPDATE request_keys SET claimed_at = ? WHERE user_id = ? AND endpoint = ? AND request_key = ?
"""

FINISH: Final = """
UPDATE request_keys SET state = 'done', response_status = ?, resource_id = ?
WHERE user_id = ? AND endpoint = ? AND request_key = ? AND state = 'pending'
"""

RELEASE: Final = """
DELETE FROM request_keys
WHERE user_id = ? AND endpoint = ? AND request_key = ? AND state = 'pending'
"""

SWEEP_SESSIONS: Final = """
DELETE FROM sessions WHERE session_id IN (
    SELECT session_id FROM sessions WHERE expires_at <= ? LIMIT ?
)
"""

SWEEP_INVITES: Final = """
DELETE FROM invites WHERE code_hash IN (
    SELECT code_hash FROM invites WHERE expires_at <= ? LIMIT ?
)
"""

SWEEP_REQUESTS: Final = """
DELETE FROM request_keys WHERE (user_id, endpoint, request_key) IN (
    SELECT user_id, endpoint, request_key FROM request_keys WHERE created_at <= ? LIMIT ?
)
"""


def claim_request(
    database: apsw.Connection,
    key: RequestKey,
    body_hash: bytes,
    resource_id: str | None,
    now_ms: int,
) -> tuple[RequestClaim, list[Event]]:
    row: tuple[Any, ...] | None = database.execute(
        FIND, (*_columns(key), now_ms - REQUEST_KEY_LIFE_MS)
    ).fetchone()
    if row is None:
        database.execute(CLAIM, (*_columns(key), body_hash, resource_id, now_ms, now_ms))
        return RequestClaimed(resource_id), []
    first_body_hash, state, http_status, first_resource_id, claimed_at = row
    if first_body_hash != body_hash:
        return RequestMismatch(), []
    if state == "done":
        return RequestReplayed(http_status, first_resource_id), []
    if now_ms - claimed_at < REQUEST_PENDING_MS_MAX:
        return RequestPending(), []
    database.execute(TAKE_OVER, (now_ms, *_columns(key)))
    return RequestClaimed(first_resource_id, resumed=True), []


def finish_request(
    database: apsw.Connection, key: RequestKey, http_status: int, resource_id: str | None
) -> tuple[None, list[Event]]:
    database.execute(FINISH, (http_status, resource_id, *_columns(key)))
    return None, []


def release_request(database: apsw.Connection, key: RequestKey) -> tuple[None, list[Event]]:
    database.execute(RELEASE, _columns(key))
    return None, []


def sweep_accounts(
    database: apsw.Connection, now_ms: int, count_max: int
) -> tuple[int, list[Event]]:
    """A bounded piece of each table, found by index."""
    swept = 0
    for statement, until_ms in (
        (SWEEP_SESSIONS, now_ms),
        (SWEEP_INVITES, now_ms),
        (SWEEP_REQUESTS, now_ms - REQUEST_KEY_LIFE_MS),
    ):
        database.execute(statement, (until_ms, count_max))
        swept += database.changes()
    return swept, []


def _columns(key: RequestKey) -> tuple[str, str, str]:
    return key.user_id, key.endpoint, key.key
