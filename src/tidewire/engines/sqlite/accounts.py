"""`ports.accounts` on the database: who can log in (passwords, invites, external identities,
deletions), sessions, and the Idempotency-Keys of REST requests. Of tokens only hashes are
stored."""

from collections.abc import Iterable, Sequence
from typing import Any, Final

import apsw
import msgspec

from tidewire.domain import accounts
from tidewire.domain.errors import InvalidCredentials, InvalidInvite
from tidewire.domain.ids import SessionId, UserId
from tidewire.domain.limits import REQUEST_KEY_LIFE_MS
from tidewire.domain.login_places import decode_places, encode_places, remember_places
from tidewire.domain.sessions import StoredSession, judge_refresh, make_room
from tidewire.domain.users import (
    PendingDeletion,
    User,
    as_deleted,
    as_disabled,
    as_enabled,
    as_erased,
    check_may_log_in,
)
from tidewire.engines.sqlite import users
from tidewire.engines.sqlite.database import Shape

PUT_CREDENTIALS: Final = """
INSERT INTO credentials (user_id, password_hash, updated_at) VALUES (?, ?, ?)
ON CONFLICT DO UPDATE SET password_hash = excluded.password_hash, updated_at = excluded.updated_at
"""


def register(database: apsw.Connection, account: accounts.NewAccount, *, now_ms: int) -> User:
    user, invite_hash = account.user, account.invite_hash
    existing = users.find_users(database, (user.user_id,))
    if existing:
        return existing[0]
    if invite_hash is not None and not is_invite_open(database, invite_hash, now_ms=now_ms):
        raise InvalidInvite
    users.insert_user(database, user)
    database.execute(
        "UPDATE invites SET used_by = ?, used_at = ? WHERE code_hash = ?",
        (user.user_id, now_ms, invite_hash),
    )
    database.execute(PUT_CREDENTIALS, (user.user_id, account.password_hash, now_ms))
    return user


def add_invite(database: apsw.Connection, invite: accounts.Invite) -> None:
    database.execute(
        "INSERT OR IGNORE INTO invites (code_hash, created_by, created_at, expires_at)"
        " VALUES (?, ?, ?, ?)",
        (invite.code_hash, invite.created_by, invite.created_at_ms, invite.expires_at_ms),
    )


def is_invite_open(database: apsw.Connection, code_hash: bytes, *, now_ms: int) -> bool:
    found = database.execute(
        "SELECT 1 FROM invites WHERE code_hash = ? AND used_by IS NULL AND expires_at > ?",
        (code_hash, now_ms),
    )
    return found.get is not None


def credentials(database: apsw.Connection, username: str) -> accounts.Credentials | None:
    user = users.user_named(database, username)
    return None if user is None else _credentials(database, user)


def credentials_of(database: apsw.Connection, user_id: UserId) -> accounts.Credentials | None:
    found = users.find_users(database, (user_id,))
    return _credentials(database, found[0]) if found else None


def set_password(
    database: apsw.Connection,
    user_id: UserId,
    password_hash: str,
    *,
    expected_hash: str | None,
    keep: SessionId | None,
    now_ms: int,
) -> list[SessionId]:
    users.the_user(database, user_id)
    if expected_hash is not None and _stored_hash(database, user_id) != expected_hash:
        raise InvalidCredentials
    database.execute(PUT_CREDENTIALS, (user_id, password_hash, now_ms))
    return end_sessions(database, user_id, keep=keep)


def external_user(database: apsw.Connection, identity: accounts.ExternalIdentity) -> User | None:
    user_id: Any = database.execute(
        "SELECT user_id FROM external_identities WHERE issuer = ? AND subject = ?",
        (identity.issuer, identity.subject),
    ).get
    return None if user_id is None else users.the_user(database, user_id)


def ensure_external_user(
    database: apsw.Connection,
    identity: accounts.ExternalIdentity,
    user: User,
    *,
    fallback_username: str,
) -> User:
    known = external_user(database, identity)
    if known is not None:
        return known
    if users.user_named(database, user.username) is not None:
        user = msgspec.structs.replace(user, username=fallback_username)
    users.insert_user(database, user)
    database.execute(
        "INSERT INTO external_identities VALUES (?, ?, ?, ?)",
        (identity.issuer, identity.subject, user.user_id, user.created_at_ms),
    )
    return user


def disable_user(database: apsw.Connection, user_id: UserId, *, now_ms: int) -> list[SessionId]:
    users.update_user(database, as_disabled(users.the_user(database, user_id), now_ms=now_ms))
    return end_sessions(database, user_id, bots=True)


def enable_user(database: apsw.Connection, user_id: UserId, *, now_ms: int) -> User:
    return users.update_user(database, as_enabled(users.the_user(database, user_id), now_ms=now_ms))


def begin_deletion(
    database: apsw.Connection, user_id: UserId, *, now_ms: int, erases: bool = False
) -> list[SessionId]:
    user = users.the_user(database, user_id)
    if user.deleted_at_ms is None:
        users.update_user(database, as_deleted(user, now_ms=now_ms))
        database.execute("INSERT INTO pending_deletions VALUES (?, ?)", (user_id, now_ms))
        if erases:
            database.execute("INSERT INTO pending_erasures VALUES (?, ?)", (user_id, now_ms))
        database.execute("DELETE FROM credentials WHERE user_id = ?", (user_id,))
    return end_sessions(database, user_id, bots=True)


def erase_name(database: apsw.Connection, user_id: UserId, *, now_ms: int) -> User:
    user = as_erased(users.the_user(database, user_id), now_ms=now_ms)
    users.USERS.update(database, user, ("username", "updated_at_ms"))
    return user


def pending_deletions(database: apsw.Connection, *, count_max: int) -> list[PendingDeletion]:
    rows: list[tuple[Any, ...]] = database.execute(
        "SELECT user_id, EXISTS (SELECT 1 FROM pending_erasures AS e WHERE e.user_id = d.user_id)"
        " FROM pending_deletions AS d ORDER BY user_id LIMIT ?",
        (count_max,),
    ).fetchall()
    erases = {user_id: bool(is_asked) for user_id, is_asked in rows}
    found = users.find_users(database, list(erases))
    return [PendingDeletion(user, erases[user.user_id]) for user in found]


def finish_deletion(database: apsw.Connection, user_id: UserId) -> None:
    database.execute("DELETE FROM pending_deletions WHERE user_id = ?", (user_id,))
    database.execute("DELETE FROM pending_erasures WHERE user_id = ?", (user_id,))


def _stored_hash(database: apsw.Connection, user_id: UserId) -> str | None:
    found: Any = database.execute(
        "SELECT password_hash FROM credentials WHERE user_id = ?", (user_id,)
    ).get
    return None if found is None else str(found)


def _credentials(database: apsw.Connection, user: User) -> accounts.Credentials:
    return accounts.Credentials(
        user=user,
        password_hash=_stored_hash(database, user.user_id),
        places=known_places(database, user.user_id),
    )


# Sessions.

SESSIONS: Final = Shape("sessions", accounts.Session, generation="token_generation")
REFRESHED: Final = ("generation", "last_active_at_ms", "expires_at_ms", "address", "client")
"""The fields of a session that a refresh changes, besides its tokens."""


def open_session(
    database: apsw.Connection, command: accounts.OpenSession, *, sessions_max: int, now_ms: int
) -> accounts.OpenedSession:
    session = command.session
    existing = session_of(database, session.session_id)
    if existing is not None:
        return accounts.OpenedSession(existing, ())
    check_may_log_in(users.the_user(database, session.user_id))
    if command.password_hash is not None:
        _check_password_unchanged(database, command, now_ms)
        _remember_places(database, session.user_id, command.places)
    own = sessions(database, session.user_id, now_ms=0)
    gone, ended = make_room(own, session, sessions_max=sessions_max, now_ms=now_ms)
    _delete(database, [*gone, *ended])
    SESSIONS.insert(database, session, refresh_token_hash=command.refresh_hash)
    return accounts.OpenedSession(session, ended)


def session_of(database: apsw.Connection, session_id: SessionId) -> accounts.Session | None:
    return SESSIONS.first(database, "WHERE session_id = ?", session_id)


def sessions(database: apsw.Connection, user_id: UserId, *, now_ms: int) -> list[accounts.Session]:
    rest = "WHERE user_id = ? AND expires_at > ? ORDER BY created_at, session_id"
    return SESSIONS.find(database, rest, user_id, now_ms)


def rotate_refresh(
    database: apsw.Connection, command: accounts.RotateRefresh, *, now_ms: int
) -> accounts.RefreshOutcome:
    stored = _stored(database, command.session_id)
    outcome = judge_refresh(stored, command, now_ms=now_ms)
    if isinstance(outcome, accounts.RefreshReused):
        _delete(database, (command.session_id,))
    elif isinstance(outcome, accounts.RefreshRotated) and not outcome.repeated:
        assert stored is not None
        SESSIONS.update(
            database,
            outcome.session,
            REFRESHED,
            prev_token_hash=stored.refresh_hash,
            refresh_token_hash=command.next_hash,
            rotated_at=now_ms,
        )
    elif isinstance(outcome, accounts.RefreshRotated):
        # The hash differs only if the key that tokens are derived with changed within the grace.
        database.execute(
            "UPDATE sessions SET refresh_token_hash = ?1"
            " WHERE session_id = ?2 AND refresh_token_hash <> ?1",
            (command.next_hash, command.session_id),
        )
    return outcome


def _stored(database: apsw.Connection, session_id: SessionId) -> StoredSession | None:
    session = session_of(database, session_id)
    if session is None:
        return None
    row: Any = database.execute(
        "SELECT refresh_token_hash, prev_token_hash, coalesce(rotated_at, 0) FROM sessions"
        " WHERE session_id = ?",
        (session_id,),
    ).fetchone()
    current, previous, rotated_at = row
    return StoredSession(
        session=session, refresh_hash=current, previous_hash=previous, rotated_at_ms=rotated_at
    )


def revoke_session(database: apsw.Connection, user_id: UserId, session_id: SessionId) -> bool:
    database.execute(
        "DELETE FROM sessions WHERE user_id = ? AND session_id = ?", (user_id, session_id)
    )
    return database.changes() > 0


def revoke_sessions(
    database: apsw.Connection, user_id: UserId, *, keep: SessionId | None
) -> list[SessionId]:
    return end_sessions(database, user_id, keep=keep)


def touch_sessions(
    database: apsw.Connection, session_ids: Sequence[SessionId], *, now_ms: int
) -> None:
    database.executemany(
        "UPDATE sessions SET last_active_at = max(last_active_at, ?) WHERE session_id = ?",
        [(now_ms, session_id) for session_id in session_ids],
    )


def end_sessions(
    database: apsw.Connection,
    user_id: UserId,
    *,
    keep: SessionId | None = None,
    bots: bool = False,
) -> list[SessionId]:
    """Delete a user's logins but `keep`, with `bots` also sessions of bots; returns their ids."""
    rows: list[tuple[Any, ...]] = database.execute(
        "SELECT session_id FROM sessions"
        " WHERE user_id = ? AND session_id <> ? AND (kind = 'login' OR ?) ORDER BY session_id",
        (user_id, keep or "", bots),
    ).fetchall()
    ended = [session_id for (session_id,) in rows]
    _delete(database, ended)
    return ended


def _check_password_unchanged(
    database: apsw.Connection, command: accounts.OpenSession, now_ms: int
) -> None:
    """The password may have been changed since it was checked, perhaps to lock a thief out."""
    database.execute(
        "UPDATE credentials SET password_hash = ?1, updated_at = iif(?1 = ?2, updated_at, ?3)"
        " WHERE user_id = ?4 AND password_hash = ?2",
        (
            command.rehashed or command.password_hash,
            command.password_hash,
            now_ms,
            command.session.user_id,
        ),
    )
    if not database.changes():
        raise InvalidCredentials


def _remember_places(database: apsw.Connection, user_id: UserId, seen: Sequence[str]) -> None:
    known = known_places(database, user_id)
    places = remember_places(known, seen)
    if places != known:
        database.execute(
            "UPDATE credentials SET known_places = ? WHERE user_id = ?",
            (encode_places(places), user_id),
        )


def known_places(database: apsw.Connection, user_id: UserId) -> tuple[str, ...]:
    places = database.execute(
        "SELECT known_places FROM credentials WHERE user_id = ?", (user_id,)
    ).get
    return () if places is None else decode_places(str(places))


def _delete(database: apsw.Connection, session_ids: Iterable[SessionId]) -> None:
    database.executemany(
        "DELETE FROM sessions WHERE session_id = ?", [(session_id,) for session_id in session_ids]
    )


# Idempotency-Keys of REST requests, and the sweeping of what has expired.

REQUESTS: Final = Shape("request_keys", accounts.StoredRequest, http_status="response_status")
_KEY: Final = "WHERE user_id = ? AND endpoint = ? AND request_key = ?"

# Replaces a key that has expired, which counts as absent.
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

_SWEEP: Final = (
    "DELETE FROM {table} WHERE ({key}) IN (SELECT {key} FROM {table} WHERE {old} LIMIT ?)"
)
SWEEP_SESSIONS: Final = _SWEEP.format(table="sessions", key="session_id", old="expires_at <= ?")
SWEEP_INVITES: Final = _SWEEP.format(table="invites", key="code_hash", old="expires_at <= ?")
SWEEP_REQUESTS: Final = _SWEEP.format(
    table="request_keys", key="user_id, endpoint, request_key", old="created_at <= ?"
)


def claim_request(
    database: apsw.Connection,
    key: accounts.RequestKey,
    body_hash: bytes,
    *,
    resource_id: str | None,
    now_ms: int,
) -> accounts.RequestClaim:
    stored = REQUESTS.first(database, _KEY, *_columns(key))
    claim = accounts.judge_request(stored, body_hash, now_ms=now_ms)
    if claim is None:
        database.execute(CLAIM, (*_columns(key), body_hash, resource_id, now_ms, now_ms))
        return accounts.RequestClaimed(resource_id)
    if isinstance(claim, accounts.RequestClaimed):
        database.execute(TAKE_OVER, (now_ms, *_columns(key)))
    return claim


def finish_request(
    database: apsw.Connection,
    key: accounts.RequestKey,
    *,
    http_status: int,
    resource_id: str | None,
) -> None:
    database.execute(FINISH, (http_status, resource_id, *_columns(key)))


def release_request(database: apsw.Connection, key: accounts.RequestKey) -> None:
    database.execute(RELEASE, _columns(key))


def sweep_accounts(database: apsw.Connection, *, now_ms: int, count_max: int) -> int:
    """Deletes a bounded number of expired rows of each table, found by index."""
    swept = 0
    for statement, until_ms in (
        (SWEEP_SESSIONS, now_ms),
        (SWEEP_INVITES, now_ms),
        (SWEEP_REQUESTS, now_ms - REQUEST_KEY_LIFE_MS),
    ):
        database.execute(statement, (until_ms, count_max))
        swept += database.changes()
    return swept


def _columns(key: accounts.RequestKey) -> tuple[str, str, str]:
    return key.user_id, key.endpoint, key.key
