"""Sessions in the database: opened, refreshed, ended. Only hashes of tokens are here."""

from collections.abc import Iterable, Sequence
from typing import Any, Final

import apsw
import msgspec

from tidewire.domain.accounts import (
    OpenedSession,
    OpenSession,
    RefreshOutcome,
    RefreshReused,
    RefreshRotated,
    RotateRefresh,
    Session,
    SessionKind,
)
from tidewire.domain.errors import Forbidden, InvalidCredentials
from tidewire.domain.events import Event
from tidewire.domain.ids import SessionId, UserId
from tidewire.domain.login_places import decode_places, encode_places, remember_places
from tidewire.domain.sessions import StoredSession, judge_refresh, make_room
from tidewire.engines.sqlite.users import the_user

COLUMNS: Final = """session_id, user_id, device_id, kind, label, token_generation,
    created_at, last_active_at, expires_at, address, client"""
FIND: Final = f"SELECT {COLUMNS} FROM sessions WHERE "  # noqa: S608 - a constant

INSERT: Final = f"""
INSERT INTO sessions ({COLUMNS}, refresh_token_hash) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""  # noqa: S608 - a constant

ROTATE: Final = """
UPDATE sessions SET prev_token_hash = refresh_token_hash, refresh_token_hash = ?1, rotated_at = ?2,
    token_generation = ?3, last_active_at = ?4, expires_at = ?5, address = ?6, client = ?7
WHERE session_id = ?8
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
    gone, ended = make_room(
        sessions(database, session.user_id, 0), session, sessions_max=sessions_max, now_ms=now_ms
    )
    _delete(database, [*gone, *ended])
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
    stored = _stored(database, command.session_id)
    outcome = judge_refresh(stored, command, now_ms=now_ms)
    if isinstance(outcome, RefreshReused):
        _delete(database, (command.session_id,))
    elif isinstance(outcome, RefreshRotated) and not outcome.repeated:
        session = outcome.session
        database.execute(
            ROTATE,
            (
                command.next_hash,
                now_ms,
                session.generation,
                session.last_active_at_ms,
                session.expires_at_ms,
                session.address,
                session.client,
                session.session_id,
            ),
        )
    elif isinstance(outcome, RefreshRotated):
        # Another one only if the key that tokens are derived with was changed within the grace.
        database.execute(
            "UPDATE sessions SET refresh_token_hash = ?1"
            " WHERE session_id = ?2 AND refresh_token_hash <> ?1",
            (command.next_hash, command.session_id),
        )
    return outcome, []


def _stored(database: apsw.Connection, session_id: SessionId) -> StoredSession | None:
    session = session_of(database, session_id)
    if session is None:
        return None
    row = database.execute(
        "SELECT refresh_token_hash, prev_token_hash, rotated_at FROM sessions WHERE session_id = ?",
        (session_id,),
    ).fetchone()
    assert row is not None
    refresh_hash, previous_hash, rotated_at = row
    return StoredSession(
        session=session,
        refresh_hash=refresh_hash,
        previous_hash=previous_hash,
        rotated_at_ms=rotated_at or 0,
    )


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
    return Session(
        session_id=row[0],
        user_id=row[1],
        device_id=row[2],
        kind=SessionKind(row[3]),
        label=row[4],
        generation=row[5],
        created_at_ms=row[6],
        last_active_at_ms=row[7],
        expires_at_ms=row[8],
        address=row[9],
        client=row[10],
    )
