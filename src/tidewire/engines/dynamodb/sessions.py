"""Logins. A user's sessions are opened and ended under the version of his row, so that neither the
bound on them nor a changed password can be passed by two at once."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

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
from tidewire.domain.ids import SessionId, UserId
from tidewire.domain.login_places import decode_places, encode_places, remember_places
from tidewire.domain.sessions import judge_refresh, make_room
from tidewire.domain.users import as_deleted
from tidewire.engines.dynamodb import rows, schema
from tidewire.engines.dynamodb.backoff import Hindrance
from tidewire.engines.dynamodb.database import Database
from tidewire.engines.dynamodb.errors import AnswerLost, Cancelled, ConditionFailed
from tidewire.engines.dynamodb.rows import Row, Value, Write
from tidewire.engines.dynamodb.session_rows import (
    moving_fields,
    session_of,
    session_row,
    stored_of,
    user_session_row,
)
from tidewire.engines.dynamodb.users import the_user_row
from tidewire.engines.dynamodb.values import pending_key, user_of

ENDED_AT_ONCE_MAX: Final = 45
"""Sessions that end in one transaction: two rows each."""


async def read_session(database: Database, session_id: SessionId) -> Session | None:
    row = await database.get(schema.SESSIONS, {"session_id": session_id})
    return None if row is None else session_of(row)


async def sessions_of(database: Database, user_id: UserId) -> list[Session]:
    """All of a user's sessions, the oldest first."""
    own = await database.query(schema.USER_SESSIONS, user_id)
    found = await database.get_many(
        [(schema.SESSIONS, {"session_id": row["session_id"]}) for row in own]
    )
    return sorted(
        (session_of(row) for row in found if row is not None),
        key=lambda session: (session.created_at_ms, session.session_id),
    )


def _ending(user_id: UserId, session_ids: Sequence[SessionId]) -> list[Write]:
    return [
        write
        for session_id in session_ids
        for write in (
            rows.delete(schema.SESSIONS, {"session_id": session_id}),
            rows.delete(schema.USER_SESSIONS, {"user_id": user_id, "session_id": session_id}),
        )
    ]


# Opening.


async def open_session(
    database: Database, command: OpenSession, *, sessions_max: int, now_ms: int
) -> OpenedSession:
    session = command.session
    tried = 0
    while True:
        known = await read_session(database, session.session_id)
        if known is not None:
            return OpenedSession(known, ())
        user = await the_user_row(database, session.user_id)
        _check_may_open(user, command)
        gone, ended = make_room(
            await sessions_of(database, session.user_id),
            session,
            sessions_max=sessions_max,
            now_ms=now_ms,
        )
        leaving = [*ended, *gone]
        if len(leaving) > ENDED_AT_ONCE_MAX:
            # Too many for one transaction: the expired ones, which nobody misses, go first.
            await database.transact(_ending(session.user_id, gone[:ENDED_AT_ONCE_MAX]))
            continue
        try:
            await database.transact(
                [
                    _opening(user, command),
                    rows.put_new(
                        schema.SESSIONS, session_row(session, refresh_hash=command.refresh_hash)
                    ),
                    rows.put(schema.USER_SESSIONS, user_session_row(session)),
                    *_ending(session.user_id, leaving),
                ]
            )
        except Cancelled:
            await database.pause(Hindrance.CONFLICT, min(tried, 2))
            tried += 1
        else:
            return OpenedSession(session, ended)


def _check_may_open(user: Row, command: OpenSession) -> None:
    if user.get("disabled_at") is not None:
        raise Forbidden("this account is disabled; ask whoever runs this server")
    if command.password_hash is not None and user.get("password_hash") != command.password_hash:
        raise InvalidCredentials


def _opening(user: Row, command: OpenSession) -> Write:
    """The user is as he was when this was decided: not disabled, with the same password."""
    change = "SET #logins_version = :next"
    condition = "#logins_version = :version AND attribute_not_exists(#disabled_at)"
    fields: dict[str, Value] = {
        "version": user["logins_version"],
        "next": user["logins_version"] + 1,
    }
    if command.password_hash is not None:
        condition += " AND #password_hash = :checked"
        change += ", #password_hash = :password"
        fields["checked"] = command.password_hash
        fields["password"] = command.rehashed or command.password_hash
        change += ", #known_places = :places"
        known = decode_places(user.get("known_places", ""))
        fields["places"] = encode_places(remember_places(known, command.places))
    key = {"user_id": user["user_id"]}
    return rows.update(schema.USERS, key, change, condition=condition, **fields)


# Ending.


async def end_sessions(
    database: Database,
    user_id: UserId,
    *,
    keep: SessionId | None,
    bots: bool,
    change: Callable[[Row], tuple[str, str, dict[str, Value]]] | None = None,
    beside: Write | None = None,
) -> list[SessionId]:
    """End a user's sessions, with a change of his row if there is one; those that ended.

    `change` gives an update, a condition and their values for the row as it is; it may raise.
    `beside` is written with it.
    """
    ended: list[SessionId] = []
    tried = 0
    while True:
        user = await the_user_row(database, user_id)
        update, condition, fields = ("", "", {}) if change is None else change(user)
        waiting = sorted(
            own.session_id
            for own in await sessions_of(database, user_id)
            if own.session_id != keep and (bots or own.kind is SessionKind.LOGIN)
        )
        chunk = waiting[:ENDED_AT_ONCE_MAX]
        version = rows.update(
            schema.USERS,
            {"user_id": user_id},
            "SET #logins_version = :next" + update,
            condition="#logins_version = :version" + condition,
            version=user["logins_version"],
            next=user["logins_version"] + 1,
            **fields,
        )
        try:
            more = [] if beside is None else [beside]
            await database.transact([version, *more, *_ending(user_id, chunk)])
        except Cancelled:
            await database.pause(Hindrance.CONFLICT, min(tried, 2))
            tried += 1
            continue
        ended += chunk
        if len(chunk) == len(waiting):
            return sorted(ended)
        # The row is changed now: whoever comes in from here on is judged by it.
        change, beside = None, None


async def set_password(
    database: Database,
    user_id: UserId,
    password_hash: str,
    *,
    expected_hash: str | None,
    keep: SessionId | None,
) -> list[SessionId]:
    def change(user: Row) -> tuple[str, str, dict[str, Value]]:
        fields: dict[str, Value] = {"password": password_hash}
        if expected_hash is None:
            return ", #password_hash = :password", "", fields
        if user.get("password_hash") != expected_hash:
            raise InvalidCredentials
        fields["expected"] = expected_hash
        return ", #password_hash = :password", " AND #password_hash = :expected", fields

    return await end_sessions(database, user_id, keep=keep, bots=False, change=change)


async def disable_user(database: Database, user_id: UserId, *, now_ms: int) -> list[SessionId]:
    def change(user: Row) -> tuple[str, str, dict[str, Value]]:
        if user.get("disabled_at") is not None:
            return "", "", {}
        return ", #disabled_at = :now", "", {"now": now_ms}

    return await end_sessions(database, user_id, keep=None, bots=True, change=change)


async def begin_deletion(database: Database, user_id: UserId, *, now_ms: int) -> list[SessionId]:
    user = user_of(await the_user_row(database, user_id))
    if user.deleted_at_ms is not None:
        return await end_sessions(database, user_id, keep=None, bots=True)

    def change(row: Row) -> tuple[str, str, dict[str, Value]]:
        gone = as_deleted(user_of(row), now_ms=now_ms)
        assert gone.disabled_at_ms is not None
        assert gone.deleted_at_ms is not None
        update = (
            ", #display_name = :name, #updated_at = :updated, #disabled_at = :disabled"
            ", #deleted_at = :deleted REMOVE #password_hash, #known_places"
        )
        fields: dict[str, Value] = {
            "name": gone.display_name,
            "updated": gone.updated_at_ms,
            "disabled": gone.disabled_at_ms,
            "deleted": gone.deleted_at_ms,
        }
        return update, "", fields

    pending = rows.put(schema.USERNAMES, pending_key(user_id) | {"user_id": user_id})
    return await end_sessions(
        database, user_id, keep=None, bots=True, change=change, beside=pending
    )


async def revoke_session(database: Database, user_id: UserId, session_id: SessionId) -> bool:
    session = await read_session(database, session_id)
    if session is None or session.user_id != user_id:
        return False
    key = {"session_id": session_id}
    listed = {"user_id": user_id, "session_id": session_id}
    try:
        await database.transact(
            [
                rows.delete(schema.SESSIONS, key, condition="attribute_exists(#session_id)"),
                rows.delete(schema.USER_SESSIONS, listed),
            ]
        )
    except Cancelled:
        return False
    return True


# Refreshing.


async def rotate_refresh(
    database: Database, command: RotateRefresh, *, now_ms: int
) -> RefreshOutcome:
    key = {"session_id": command.session_id}
    tried = 0
    while True:
        row = await database.get(schema.SESSIONS, key)
        stored = None if row is None else stored_of(row)
        outcome = judge_refresh(stored, command, now_ms=now_ms)
        if row is None or isinstance(outcome, RefreshUnknown | RefreshOtherDevice):
            return outcome
        session = outcome.session
        try:
            if isinstance(outcome, RefreshReused):
                await database.transact(_ending(session.user_id, [session.session_id]))
            elif outcome.repeated:
                await database.write(_rotation(row, command, outcome, now_ms))
            else:
                # The list of the user's sessions must not expire before the session does.
                listed = rows.put(schema.USER_SESSIONS, user_session_row(session))
                await database.transact([_rotation(row, command, outcome, now_ms), listed])
        except (Cancelled, ConditionFailed):
            await database.pause(Hindrance.CONFLICT, min(tried, 2))
            tried += 1
        else:
            return outcome


def _rotation(row: Row, command: RotateRefresh, outcome: RefreshRotated, now_ms: int) -> Write:
    change = "SET #refresh_token_hash = :next"
    fields: dict[str, Value] = {
        "next": command.next_hash,
        "current": row["refresh_token_hash"],
        "generation": row["token_generation"],
    }
    if not outcome.repeated:
        change += (
            ", #prev_token_hash = :current, #rotated_at = :now, #token_generation = :following"
        )
        fields["now"] = now_ms
        fields["following"] = outcome.session.generation
        for name, value in moving_fields(outcome.session).items():
            change += f", #{name} = :{name}"
            fields[name] = value
    return rows.update(
        schema.SESSIONS,
        {"session_id": command.session_id},
        change,
        condition="#refresh_token_hash = :current AND #token_generation = :generation",
        **fields,
    )


async def touch_sessions(
    database: Database, session_ids: Sequence[SessionId], *, now_ms: int
) -> None:
    async def touch(session_id: SessionId) -> None:
        write = rows.update(
            schema.SESSIONS,
            {"session_id": session_id},
            "SET #last_active_at = :now",
            condition="#last_active_at < :now",
            now=now_ms,
        )
        try:
            await database.write(write)
        except (ConditionFailed, AnswerLost):
            # Gone, or newer already, or perhaps lost: the next use notes it again.
            return

    await asyncio.gather(*(touch(session_id) for session_id in session_ids))


async def revoke_sessions(
    database: Database, user_id: UserId, *, keep: SessionId | None
) -> list[SessionId]:
    """End all logins of a user but one; of somebody who is not known, none."""
    own = await database.query(schema.USER_SESSIONS, user_id, limit=1)
    return await end_sessions(database, user_id, keep=keep, bots=False) if own else []
