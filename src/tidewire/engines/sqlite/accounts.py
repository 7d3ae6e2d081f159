"""Who can log in, in the database: passwords, invites, external identities."""

from typing import Any, Final

import apsw
import msgspec

from tidewire.domain.accounts import Credentials, ExternalIdentity, Invite, NewAccount
from tidewire.domain.errors import InvalidCredentials, InvalidInvite, UsernameTaken
from tidewire.domain.events import Event
from tidewire.domain.ids import SessionId, UserId
from tidewire.domain.users import User, as_deleted, check_enable
from tidewire.engines.sqlite.sessions import end_sessions, known_places
from tidewire.engines.sqlite.users import find_users, insert_user, the_user, user_named

PUT_CREDENTIALS: Final = """
INSERT INTO credentials (user_id, password_hash, updated_at) VALUES (?, ?, ?)
ON CONFLICT DO UPDATE SET password_hash = excluded.password_hash, updated_at = excluded.updated_at
"""


def register(
    database: apsw.Connection, account: NewAccount, now_ms: int
) -> tuple[User, list[Event]]:
    user = account.user
    existing = find_users(database, (user.user_id,))
    if existing:
        return existing[0], []
    if account.invite_hash is not None and not is_invite_open(
        database, account.invite_hash, now_ms
    ):
        raise InvalidInvite
    if user_named(database, user.username) is not None:
        raise UsernameTaken(user.username)
    if account.invite_hash is not None:
        database.execute(
            "UPDATE invites SET used_by = ?, used_at = ? WHERE code_hash = ?",
            (user.user_id, now_ms, account.invite_hash),
        )
    insert_user(database, user)
    database.execute(PUT_CREDENTIALS, (user.user_id, account.password_hash, now_ms))
    return user, []


def add_invite(database: apsw.Connection, invite: Invite) -> tuple[None, list[Event]]:
    database.execute(
        "INSERT OR IGNORE INTO invites (code_hash, created_by, created_at, expires_at)"
        " VALUES (?, ?, ?, ?)",
        (invite.code_hash, invite.created_by, invite.created_at_ms, invite.expires_at_ms),
    )
    return None, []


def is_invite_open(database: apsw.Connection, code_hash: bytes, now_ms: int) -> bool:
    row = database.execute(
        "SELECT 1 FROM invites WHERE code_hash = ? AND used_by IS NULL AND expires_at > ?",
        (code_hash, now_ms),
    ).fetchone()
    return row is not None


def credentials(database: apsw.Connection, username: str) -> Credentials | None:
    user = user_named(database, username)
    return None if user is None else _credentials(database, user)


def credentials_of(database: apsw.Connection, user_id: UserId) -> Credentials | None:
    found = find_users(database, (user_id,))
    return _credentials(database, found[0]) if found else None


def set_password(
    database: apsw.Connection,
    user_id: UserId,
    password_hash: str,
    expected_hash: str | None,
    keep: SessionId | None,
    now_ms: int,
) -> tuple[list[SessionId], list[Event]]:
    the_user(database, user_id)
    if expected_hash is not None and stored_hash(database, user_id) != expected_hash:
        raise InvalidCredentials
    database.execute(PUT_CREDENTIALS, (user_id, password_hash, now_ms))
    return end_sessions(database, user_id, keep=keep, bots=False), []


def external_user(database: apsw.Connection, identity: ExternalIdentity) -> User | None:
    row: tuple[Any, ...] | None = database.execute(
        "SELECT user_id FROM external_identities WHERE issuer = ? AND subject = ?",
        (identity.issuer, identity.subject),
    ).fetchone()
    return None if row is None else the_user(database, row[0])


def ensure_external_user(
    database: apsw.Connection, identity: ExternalIdentity, user: User, fallback_username: str
) -> tuple[User, list[Event]]:
    known = external_user(database, identity)
    if known is not None:
        return known, []
    if user_named(database, user.username) is not None:
        user = msgspec.structs.replace(user, username=fallback_username)
    insert_user(database, user)
    database.execute(
        "INSERT INTO external_identities VALUES (?, ?, ?, ?)",
        (identity.issuer, identity.subject, user.user_id, user.created_at_ms),
    )
    return user, []


def disable_user(
    database: apsw.Connection, user_id: UserId, now_ms: int
) -> tuple[list[SessionId], list[Event]]:
    user = the_user(database, user_id)
    if user.disabled_at_ms is None:
        database.execute("UPDATE users SET disabled_at = ? WHERE user_id = ?", (now_ms, user_id))
    return end_sessions(database, user_id, keep=None, bots=True), []


def enable_user(
    database: apsw.Connection, user_id: UserId, now_ms: int
) -> tuple[User, list[Event]]:
    user = the_user(database, user_id)
    if user.disabled_at_ms is None:
        return user, []
    check_enable(user)
    enabled_at_ms = max(now_ms, (user.enabled_at_ms or user.created_at_ms) + 1)
    database.execute(
        "UPDATE users SET disabled_at = NULL, enabled_at = ? WHERE user_id = ?",
        (enabled_at_ms, user_id),
    )
    return msgspec.structs.replace(user, disabled_at_ms=None, enabled_at_ms=enabled_at_ms), []


def begin_deletion(
    database: apsw.Connection, user_id: UserId, now_ms: int
) -> tuple[list[SessionId], list[Event]]:
    user = the_user(database, user_id)
    if user.deleted_at_ms is None:
        gone = as_deleted(user, now_ms=now_ms)
        database.execute(
            "UPDATE users SET display_name = ?, updated_at = ?, disabled_at = ?, deleted_at = ?"
            " WHERE user_id = ?",
            (
                gone.display_name,
                gone.updated_at_ms,
                gone.disabled_at_ms,
                gone.deleted_at_ms,
                user_id,
            ),
        )
        database.execute("INSERT INTO pending_deletions VALUES (?, ?)", (user_id, now_ms))
        database.execute("DELETE FROM credentials WHERE user_id = ?", (user_id,))
    return end_sessions(database, user_id, keep=None, bots=True), []


def pending_deletions(database: apsw.Connection, count_max: int) -> list[User]:
    rows: list[tuple[Any, ...]] = database.execute(
        "SELECT user_id FROM pending_deletions ORDER BY user_id LIMIT ?", (count_max,)
    ).fetchall()
    return find_users(database, [user_id for (user_id,) in rows])


def finish_deletion(database: apsw.Connection, user_id: UserId) -> tuple[None, list[Event]]:
    database.execute("DELETE FROM pending_deletions WHERE user_id = ?", (user_id,))
    return None, []


def stored_hash(database: apsw.Connection, user_id: UserId) -> str | None:
    row = database.execute(
        "SELECT password_hash FROM credentials WHERE user_id = ?", (user_id,)
    ).fetchone()
    return None if row is None else str(row[0])


def _credentials(database: apsw.Connection, user: User) -> Credentials:
    return Credentials(
        user=user,
        password_hash=stored_hash(database, user.user_id),
        places=known_places(database, user.user_id),
    )
