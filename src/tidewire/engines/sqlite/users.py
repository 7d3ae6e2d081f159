"""People in the database."""

from collections.abc import Sequence
from typing import Final

import apsw
import msgspec

from tidewire.domain.errors import UsernameTaken, UserNotFound
from tidewire.domain.ids import UserId
from tidewire.domain.users import User, as_renamed
from tidewire.engines.sqlite.database import Shape

USERS: Final = Shape("users", User)
MAY_CHANGE: Final = (
    "display_name",
    "updated_at_ms",
    "disabled_at_ms",
    "enabled_at_ms",
    "deleted_at_ms",
)


def add_user(database: apsw.Connection, user: User) -> User:
    existing = find_users(database, (user.user_id,))
    if existing:
        return existing[0]
    insert_user(database, user)
    return user


def insert_user(database: apsw.Connection, user: User) -> None:
    if user_named(database, user.username) is not None:
        raise UsernameTaken(user.username)
    USERS.insert(database, user)


def update_user(database: apsw.Connection, user: User) -> User:
    """Write the fields of a user that may change; returns the user."""
    USERS.update(database, user, MAY_CHANGE)
    return user


def find_users(database: apsw.Connection, user_ids: Sequence[UserId]) -> list[User]:
    asked = msgspec.json.encode(user_ids).decode()
    return USERS.find(database, "WHERE user_id IN (SELECT value FROM json_each(?))", asked)


def user_named(database: apsw.Connection, username: str) -> User | None:
    return USERS.first(database, "WHERE username = ?", username)


def users_named(database: apsw.Connection, usernames: Sequence[str]) -> list[User]:
    rows = database.execute(
        f"SELECT DISTINCT {USERS.columns} FROM json_each(?)"  # noqa: S608 - a constant
        " CROSS JOIN users ON username = value",
        (msgspec.json.encode(usernames).decode(),),
    )
    return [USERS.value(row) for row in rows]


def list_users(database: apsw.Connection, *, after: str | None, count_max: int) -> list[User]:
    rest = "WHERE username > ? ORDER BY username LIMIT ?"
    return USERS.find(database, rest, after or "", count_max)


def set_display_name(
    database: apsw.Connection, user_id: UserId, display_name: str, *, now_ms: int
) -> User:
    user = the_user(database, user_id)
    return update_user(database, as_renamed(user, display_name, now_ms=now_ms))


def the_user(database: apsw.Connection, user_id: UserId) -> User:
    """The user, who must exist: raises UserNotFound."""
    found = find_users(database, (user_id,))
    if not found:
        raise UserNotFound(user_id)
    return found[0]


def missing_users(database: apsw.Connection, user_ids: Sequence[UserId]) -> list[UserId]:
    """The ids that belong to no user who can join a chat, sorted."""
    known = {user.user_id for user in find_users(database, user_ids) if user.can_join}
    return sorted(set(user_ids) - known)
