"""Sessions in the database: opened, refreshed, ended. Only hashes of tokens are here."""

from collections.abc import Iterable, Sequence
from typing import Any, Final

import apsw
import msgspec

from tidewire.domain.accounts import (
    OpenedSession,
    OpenSession,
    RefreshOtherDevice,
    RefreshOutcome,
    RefreshReused,
    RefreshRotated,
    RefreshUnknown,
    RotateRefresh,
    Session,
    SessionKind,
)
from tidewire.domain.errors import Forbidden, InvalidCredentials
from tidewire.domain.events import Event
from tidewire.domain.ids import SessionId, UserId
from tidewire.domain.login_places import decode_places, encode_places, remember_places
from tidewire.engines.sqlite.users import the_user

COLUMNS: Final = """session_id, user_id, device_id, kind, label, token_generation,
    created_at, last_active_at, expires_at"""
FIND: Final = f"SELECT {COLUMNS} FROM sessions WHERE "  # noqa: S608 - a constant

INSERT: Final = f"""
INSERT INTO sessions ({COLUMNS}, refresh_token_hash) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""  # noqa: S608 - a constant

# The oldest logins beyond the bound, and that of the same device whatever its age.
FIND_SUPERFLUOUS: Final = """
SELECT session_id FROM sessions WHERE user_id = ?1 AND device_id = ?2
UNION ALL
SELECT session_id FROM (
    SELECT session_id FROM sessions
    WHERE user_id = ?1 AND kind = 'login' AND device_id <> ?2
    ORDER BY created_at DESC, session_id DESC LIMIT -1 OFFSET ?3
)
"""

ROTATE: Final = """
UPDATE sessions SET prev_token_hash = refresh_token_hash, refresh_token_hash = ?1, rotated_at = ?2,
    token_generation = token_generation + 1, last_active_at = max(last_active_at, ?2)
WHERE session_id = ?3
"""


def open_session(
    database: apsw.Connection, command: OpenSession, sessions_max: int, now_ms: int
) -> tuple[OpenedSession, list[Event]]:
    session = command.session
    existing = session_of(database, session.session_id)
    if existing is not None:
        return OpenedSession(existing, ()), []
    if the_user(database, session.user_id).disabled_at_ms is not None:
        raise Forbidden("this account is disabled; ask whoever runs this server")
    if command.password_hash is not None:
        _check_password_unchanged(database, command, now_ms)
        _remember_places(database, session.user_id, command.places)
    ended: list[SessionId] = []
    if session.kind is SessionKind.LOGIN:
        # Those that have expired count no longer, and nobody needs to be told of them.
        database.execute(
            "DELETE FROM sessions WHERE user_id = ? AND expires_at <= ?", (session.user_id, now_ms)
        )
        rows: list[tuple[Any, ...]] = database.execute(
            FIND_SUPERFLUOUS, (session.user_id, session.device_id, sessions_max - 1)
        ).fetchall()
        ended = [session_id for (session_id,) in rows]
        _delete(database, ended)
    database.execute(INSERT, (*msgspec.structs.astuple(session), command.refresh_hash))
    return OpenedSession(session, ended), []


def session_of(database: apsw.Connection, session_id: SessionId) -> Session | None:
    row = database.execute(FIND + "session_id = ?", (session_id,)).fetchone()
    return None if row is None else _session(row)


def sessions(database: apsw.Connection, user_id: UserId, now_ms: int) -> list[Session]:
    rows = database.execute(
        FIND + "user_id = ? AND expires_at > ? ORDER BY created_at, session_id", (user_id, now_ms)
    )
    return [_session(row) for row in rows]


def rotate_refresh(
    database: apsw.Connection, command: RotateRefresh, now_ms: int
) -> tuple[RefreshOutcome, list[Event]]:
    session = session_of(database, command.session_id)
    if session is None or session.expires_at_ms <= now_ms or session.kind is not SessionKind.LOGIN:
        return RefreshUnknown(), []
    row = database.execute(
        "SELECT refresh_token_hash, prev_token_hash, rotated_at FROM sessions WHERE session_id = ?",
        (session.session_id,),
    ).fetchone()
    assert row is not None
    current, previous, rotated_at = row
    is_current = command.presented_hash == current
    if not is_current and command.presented_hash != previous:
        return RefreshUnknown(session, current), []
    if not is_current and now_ms - rotated_at > command.grace_ms:
        _delete(database, (session.session_id,))
        return RefreshReused(session), []
    if command.device_id != session.device_id:
        return RefreshOtherDevice(), []
    if is_current:
        database.execute(ROTATE, (command.next_hash, now_ms, session.session_id))
        session = msgspec.structs.replace(
            session,
            generation=session.generation + 1,
            last_active_at_ms=max(session.last_active_at_ms, now_ms),
        )
    elif command.next_hash != current:
        # Only if the key that tokens are derived with was changed within the grace.
        database.execute(
            "UPDATE sessions SET refresh_token_hash = ? WHERE session_id = ?",
            (command.next_hash, session.session_id),
        )
    return RefreshRotated(session, repeated=not is_current), []


def revoke_session(
    database: apsw.Connection, user_id: UserId, session_id: SessionId
) -> tuple[bool, list[Event]]:
    database.execute(
        "DELETE FROM sessions WHERE user_id = ? AND session_id = ?", (user_id, session_id)
    )
    return database.changes() > 0, []


def revoke_sessions(
    database: apsw.Connection, user_id: UserId, keep: SessionId | None
) -> tuple[list[SessionId], list[Event]]:
    return end_sessions(database, user_id, keep=keep, bots=False), []


def touch_sessions(
    database: apsw.Connection, session_ids: Sequence[SessionId], now_ms: int
) -> tuple[None, list[Event]]:
    database.executemany(
        "UPDATE sessions SET last_active_at = max(last_active_at, ?) WHERE session_id = ?",
        [(now_ms, session_id) for session_id in session_ids],
    )
    return None, []


def end_sessions(
    database: apsw.Connection, user_id: UserId, *, keep: SessionId | None, bots: bool
) -> list[SessionId]:
    """Delete a user's sessions but one; those that went."""
    rows: list[tuple[Any, ...]] = database.execute(
        "SELECT session_id FROM sessions"
        " WHERE user_id = ? AND session_id <> ? AND (kind = 'login' OR ?) ORDER BY session_id",
        (user_id, keep or "", bots),
    ).fetchall()
    ended = [session_id for (session_id,) in rows]
    _delete(database, ended)
    return ended


def _check_password_unchanged(database: apsw.Connection, command: OpenSession, now_ms: int) -> None:
    """Between the check of a password and now it may have been changed, to lock somebody out."""
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
    row = database.execute(
        "SELECT known_places FROM credentials WHERE user_id = ?", (user_id,)
    ).fetchone()
    return () if row is None else decode_places(str(row[0]))


def _delete(database: apsw.Connection, session_ids: Iterable[SessionId]) -> None:
    database.executemany(
        "DELETE FROM sessions WHERE session_id = ?", [(session_id,) for session_id in session_ids]
    )


def _session(row: tuple[Any, ...]) -> Session:
    session_id, user_id, device_id, kind, label, generation, created_at, active_at, expires_at = row
    return Session(
        session_id=session_id,
        user_id=user_id,
        device_id=device_id,
        kind=SessionKind(kind),
        label=label,
        generation=generation,
        created_at_ms=created_at,
        last_active_at_ms=active_at,
        expires_at_ms=expires_at,
    )
