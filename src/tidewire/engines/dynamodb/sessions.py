"""Logins. Opening a session, and ending all of a user's, moves the version in the user's row: two
at the same time cannot pass the limit on sessions, nor get past a changed password."""

from collections.abc import Callable, Sequence
from typing import Final

from tidewire.domain import accounts
from tidewire.domain.errors import InvalidCredentials
from tidewire.domain.ids import SessionId, UserId
from tidewire.domain.login_places import decode_places, encode_places, remember_places
from tidewire.domain.sessions import judge_refresh, make_room
from tidewire.domain.users import as_deleted, as_disabled, check_may_log_in
from tidewire.engines.dynamodb import rows, schema, values
from tidewire.engines.dynamodb.acts import act, until_committed
from tidewire.engines.dynamodb.rows import Row, Value, Write
from tidewire.engines.dynamodb.users import Users

ENDED_AT_ONCE_MAX: Final = 45
"""How many sessions end in one transaction: each has two rows."""

Fields = dict[str, Value]
Change = tuple[Fields, Fields]
"""Of a user's row: the fields to change beside the version, and the values to require."""
UNCHANGED: Final[Change] = ({}, {})


class Sessions(Users):
    @act
    async def session(self, session_id: SessionId) -> accounts.Session | None:
        row = await self._database.get(schema.SESSIONS, {"session_id": session_id})
        return None if row is None else values.SESSION.value(row)

    @act
    async def sessions(self, user_id: UserId, *, now_ms: int) -> list[accounts.Session]:
        own = await self._sessions_of(user_id)
        return [session for session in own if session.expires_at_ms > now_ms]

    async def _sessions_of(self, user_id: UserId) -> list[accounts.Session]:
        """All of a user's sessions, the oldest first."""
        own = await self._database.query(schema.USER_SESSIONS, user_id)
        session_ids = [row["session_id"] for row in own]
        found = await self._database.get_each(schema.SESSIONS, session_ids)
        return sorted(
            (values.SESSION.value(row) for row in found if row is not None),
            key=lambda session: (session.created_at_ms, session.session_id),
        )

    # Opening.

    @act
    async def open_session(
        self, command: accounts.OpenSession, *, sessions_max: int, now_ms: int
    ) -> accounts.OpenedSession:
        ended: list[SessionId] = []
        while True:
            with self._database.within_budget():
                session, chunk = await self._open(command, sessions_max, now_ms)
            ended += chunk
            if session is not None:
                return accounts.OpenedSession(session, ended)

    @until_committed
    async def _open(
        self, command: accounts.OpenSession, sessions_max: int, now_ms: int
    ) -> tuple[accounts.Session | None, list[SessionId]]:
        """The session, and those that ended to make room for it. None: only some of those ended,
        because all of them are too many for one transaction; call again."""
        session = command.session
        known = await self.session(session.session_id)
        if known is not None:
            return known, []
        user = await self._user_row(session.user_id)
        _check_may_open(user, command)
        own = await self._sessions_of(session.user_id)
        gone, ended = make_room(own, session, sessions_max=sessions_max, now_ms=now_ms)
        leaving = [*gone, *ended]
        if len(leaving) > ENDED_AT_ONCE_MAX:
            chunk = leaving[:ENDED_AT_ONCE_MAX]
            ending = _ending(session.user_id, chunk)
            await self._database.transact([_next_version(user, {}, {}), *ending])
            return None, [one for one in chunk if one in ended]
        row = values.session_row(session, refresh_hash=command.refresh_hash)
        await self._database.transact(
            [
                _opening(user, command),
                rows.put_new(schema.SESSIONS, row),
                rows.put(schema.USER_SESSIONS, values.user_session_row(session)),
                *_ending(session.user_id, leaving),
            ]
        )
        return session, ended

    # Ending.

    async def _end_sessions(
        self,
        user_id: UserId,
        *,
        keep: SessionId | None = None,
        bots: bool = True,
        change: Callable[[Row], Change] = lambda _: UNCHANGED,
        beside: Sequence[Write] = (),
    ) -> list[SessionId]:
        """End a user's sessions and change the user's row; return the sessions that ended.

        `change` gets the row as it is now, and may raise. `beside` is written together with it.
        """
        ended: list[SessionId] = []
        while True:
            chunk, is_last = await self._end_some(user_id, keep, bots, change, beside)
            ended += chunk
            if is_last:
                return sorted(ended)
            # The row is changed now: a login after this is checked against it.
            change, beside = (lambda _: UNCHANGED), ()

    @until_committed
    async def _end_some(
        self,
        user_id: UserId,
        keep: SessionId | None,
        bots: bool,
        change: Callable[[Row], Change],
        beside: Sequence[Write],
    ) -> tuple[list[SessionId], bool]:
        """End as many as one transaction can; return them, and whether these were all."""
        user = await self._user_row(user_id)
        fields, where = change(user)
        waiting = sorted(
            own.session_id
            for own in await self._sessions_of(user_id)
            if own.session_id != keep and (bots or own.kind is accounts.SessionKind.LOGIN)
        )
        chunk = waiting[:ENDED_AT_ONCE_MAX]
        version = _next_version(user, fields, where)
        await self._database.transact([version, *beside, *_ending(user_id, chunk)])
        return chunk, len(chunk) == len(waiting)

    @act
    async def set_password(
        self,
        user_id: UserId,
        password_hash: str,
        *,
        expected_hash: str | None,
        keep: SessionId | None,
        now_ms: int,
    ) -> list[SessionId]:
        def change(user: Row) -> Change:
            if expected_hash is None:
                return {"password_hash": password_hash}, {}
            if user.get("password_hash") != expected_hash:
                raise InvalidCredentials
            return {"password_hash": password_hash}, {"password_hash": expected_hash}

        return await self._end_sessions(user_id, keep=keep, bots=False, change=change)

    @act
    async def disable_user(self, user_id: UserId, *, now_ms: int) -> list[SessionId]:
        def change(row: Row) -> Change:
            user = values.USER.value(row)
            return values.USER.changes(user, as_disabled(user, now_ms=now_ms)), {}

        return await self._end_sessions(user_id, change=change)

    @act
    async def begin_deletion(
        self, user_id: UserId, *, now_ms: int, erases: bool = False
    ) -> list[SessionId]:
        def change(row: Row) -> Change:
            user = values.USER.value(row)
            changed = values.USER.changes(user, as_deleted(user, now_ms=now_ms))
            return changed | {"password_hash": None, "known_places": None}, {}

        if values.USER.value(await self._user_row(user_id)).deleted_at_ms is not None:
            return await self._end_sessions(user_id)
        named = {"user_id": user_id, "erases": erases or None}
        pending = rows.put(schema.USERNAMES, values.pending_key(user_id) | named)
        return await self._end_sessions(user_id, change=change, beside=[pending])

    @act
    async def revoke_session(self, user_id: UserId, session_id: SessionId) -> bool:
        session = await self.session(session_id)
        if session is None or session.user_id != user_id:
            return False
        key = {"session_id": session_id}
        listed = {"user_id": user_id, "session_id": session_id}
        return await self._database.commit(
            [
                rows.delete(schema.SESSIONS, key, condition="attribute_exists(#session_id)"),
                rows.delete(schema.USER_SESSIONS, listed),
            ]
        )

    @act
    async def revoke_sessions(self, user_id: UserId, *, keep: SessionId | None) -> list[SessionId]:
        """End all logins of a user except `keep`; an unknown user has none."""
        own = await self._database.query(schema.USER_SESSIONS, user_id, limit=1)
        return await self._end_sessions(user_id, keep=keep, bots=False) if own else []

    # Refreshing.

    @act
    @until_committed
    async def rotate_refresh(
        self, command: accounts.RotateRefresh, *, now_ms: int
    ) -> accounts.RefreshOutcome:
        row = await self._database.get(schema.SESSIONS, {"session_id": command.session_id})
        stored = None if row is None else values.stored_session_of(row)
        outcome = judge_refresh(stored, command, now_ms=now_ms)
        if row is None or isinstance(
            outcome, accounts.RefreshUnknown | accounts.RefreshOtherDevice
        ):
            return outcome
        session = outcome.session
        if isinstance(outcome, accounts.RefreshReused):
            await self._database.transact(_ending(session.user_id, [session.session_id]))
        elif outcome.repeated:
            await self._database.write(_rotation(row, command, outcome, now_ms))
        else:
            # The list of the user's sessions must not expire before the session does.
            listed = rows.put(schema.USER_SESSIONS, values.user_session_row(session))
            await self._database.transact([_rotation(row, command, outcome, now_ms), listed])
        return outcome

    @act
    async def touch_sessions(self, session_ids: Sequence[SessionId], *, now_ms: int) -> None:
        touches = [
            rows.update(
                schema.SESSIONS,
                {"session_id": session_id},
                "SET #last_active_at = :now",
                condition="#last_active_at < :now",
                now=now_ms,
            )
            for session_id in session_ids
        ]
        # A session may be gone or have a newer time, or the write is lost: its next use notes it.
        await self._side_by_side([self._database.try_write(touch) for touch in touches])


def _ending(user_id: UserId, session_ids: Sequence[SessionId]) -> list[Write]:
    return [
        write
        for session_id in session_ids
        for write in (
            rows.delete(schema.SESSIONS, {"session_id": session_id}),
            rows.delete(schema.USER_SESSIONS, {"user_id": user_id, "session_id": session_id}),
        )
    ]


def _check_may_open(user: Row, command: accounts.OpenSession) -> None:
    check_may_log_in(values.USER.value(user))
    if command.password_hash is not None and user.get("password_hash") != command.password_hash:
        raise InvalidCredentials


def _next_version(user: Row, fields: Fields, where: Fields) -> Write:
    """Change a user's row and raise its version, if the version is still the one that was read."""
    version = user["logins_version"]
    return rows.change(
        schema.USERS,
        {"user_id": user["user_id"]},
        fields | {"logins_version": version + 1},
        where=where | {"logins_version": version},
    )


def _opening(user: Row, command: accounts.OpenSession) -> Write:
    """The write to the user's row: the user is still not disabled, and has the same password."""
    where: Fields = {"disabled_at": None}
    if command.password_hash is None:
        return _next_version(user, {}, where)
    known = decode_places(user.get("known_places", ""))
    fields: Fields = {
        "password_hash": command.rehashed or command.password_hash,
        "known_places": encode_places(remember_places(known, command.places)),
    }
    return _next_version(user, fields, where | {"password_hash": command.password_hash})


def _rotation(
    row: Row, command: accounts.RotateRefresh, outcome: accounts.RefreshRotated, now_ms: int
) -> Write:
    current = row["refresh_token_hash"]
    fields: Fields = {"refresh_token_hash": command.next_hash}
    if not outcome.repeated:
        fields |= {
            "prev_token_hash": current,
            "rotated_at": now_ms,
            "token_generation": outcome.session.generation,
        }
        fields |= values.moving_fields(outcome.session)
    return rows.change(
        schema.SESSIONS,
        {"session_id": command.session_id},
        fields,
        where={"refresh_token_hash": current, "token_generation": row["token_generation"]},
    )
