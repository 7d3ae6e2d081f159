"""People in the database."""

from collections.abc import Sequence
from typing import Final

import apsw
import msgspec

from tidewire.domain.errors import UsernameTaken, UserNotFound
from tidewire.domain.events import Event
from tidewire.domain.ids import UserId
from tidewire.domain.users import User

COLUMNS: Final = """user_id, username, display_name, created_at, updated_at, disabled_at,
    enabled_at, deleted_at"""


def add_user(database: apsw.Connection, user: User) -> tuple[User, list[Event]]:
    existing = find_users(database, (user.user_id,))
    if existing:
        return existing[0], []
    if user_named(database, user.username) is not None:
        raise UsernameTaken(user.username)
    insert_user(database, user)
    return user, []


def insert_user(database: apsw.Connection, user: User) -> None:
    database.execute(
        f"INSERT INTO users ({COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",  # noqa: S608 - a constant
        msgspec.structs.astuple(user),
    )


def find_users(database: apsw.Connection, user_ids: Sequence[UserId]) -> list[User]:
    rows = database.execute(
        f"SELECT {COLUMNS} FROM users"  # noqa: S608 - a constant
        " WHERE user_id IN (SELECT value FROM json_each(?))",
        (msgspec.json.encode(user_ids).decode(),),
    )
    return [_user(*row) for row in rows]


def user_named(database: apsw.Connection, username: str) -> User | None:
    row = database.execute(
        f"SELECT {COLUMNS} FROM users WHERE username = ?",  # noqa: S608 - a constant
        (username,),
    ).fetchone()
    return None if row is None else _user(*row)


def users_named(database: apsw.Connection, usernames: Sequence[str]) -> list[User]:
    rows = database.execute(
        f"SELECT DISTINCT {COLUMNS} FROM json_each(?)"  # noqa: S608 - a constant
        " CROSS JOIN users ON username = value",
        (msgspec.json.encode(usernames).decode(),),
    )
    return [_user(*row) for row in rows]


def list_users(database: apsw.Connection, after: str | None, count_max: int) -> list[User]:
    rows = database.execute(
        f"SELECT {COLUMNS} FROM users"  # noqa: S608 - a constant
        " WHERE username > ? ORDER BY username LIMIT ?",
        (after or "", count_max),
    )
    return [_user(*row) for row in rows]


def set_display_name(
    database: apsw.Connection, user_id: UserId, display_name: str, now_ms: int
) -> tuple[User, list[Event]]:
    user = the_user(database, user_id)
    if not user.can_join:
        raise UserNotFound(user_id)
    database.execute(
        "UPDATE users SET display_name = ?, updated_at = ? WHERE user_id = ?",
        (display_name, now_ms, user_id),
    )
    return msgspec.structs.replace(user, display_name=display_name, updated_at_ms=now_ms), []


def the_user(database: apsw.Connection, user_id: UserId) -> User:
    """The user, who must exist: raises UserNotFound."""
    found = find_users(database, (user_id,))
    if not found:
        raise UserNotFound(user_id)
    return found[0]


def missing_users(database: apsw.Connection, user_ids: Sequence[UserId]) -> list[UserId]:
    """Those of the ids of nobody who can join a chat, by id."""
    known = {user.user_id for user in find_users(database, user_ids) if user.can_join}
    return sorted(set(user_ids) - known)


def _user(
    user_id: UserId,
    username: str,
    display_name: str,
    created_at: int,
    updated_at: int,
    disabled_at: int | None,
    enabled_at: int | None,
    deleted_at: int | None,
) -> User:
    return User(
        user_id=user_id,
        username=username,
        display_name=display_name,
        created_at_ms=created_at,
        updated_at_ms=updated_at,
        disabled_at_ms=disabled_at,
        enabled_at_ms=enabled_at,
        deleted_at_ms=deleted_at,
    )
