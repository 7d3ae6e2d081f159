"""People in the database."""

from collections.abc import Sequence
from typing import Final

import apsw
import msgspec

from tidewire.domain.errors import UsernameTaken
from tidewire.domain.events import Event
from tidewire.domain.ids import UserId
from tidewire.domain.users import User

COLUMNS: Final = "user_id, username, display_name, created_at, updated_at"


def add_user(database: apsw.Connection, user: User) -> tuple[User, list[Event]]:
    existing = find_users(database, (user.user_id,))
    if existing:
        return existing[0], []
    if user_named(database, user.username) is not None:
        raise UsernameTaken(user.username)
    database.execute(
        f"INSERT INTO users ({COLUMNS}) VALUES (?, ?, ?, ?, ?)",  # noqa: S608 - a constant
        (user.user_id, user.username, user.display_name, user.created_at_ms, user.updated_at_ms),
    )
    return user, []


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


def missing_users(database: apsw.Connection, user_ids: Sequence[UserId]) -> list[UserId]:
    """Those of the ids that belong to nobody."""
    rows = database.execute(
        "SELECT value FROM json_each(?) EXCEPT SELECT user_id FROM users",
        (msgspec.json.encode(user_ids).decode(),),
    )
    return [user_id for (user_id,) in rows]


def _user(
    user_id: UserId, username: str, display_name: str, created_at: int, updated_at: int
) -> User:
    return User(
        user_id=user_id,
        username=username,
        display_name=display_name,
        created_at_ms=created_at,
        updated_at_ms=updated_at,
    )
