"""The account part of the memory engine: credentials, sessions, blocks, request keys."""

from collections.abc import Sequence
from typing import TypeVar

from msgspec.structs import replace

from tests.support.memory.tables import MemoryTables
from tidewire.domain import access
from tidewire.domain.accounts import (
    BlockChange,
    Credentials,
    ExternalIdentity,
    Invite,
    NewAccount,
    OpenedSession,
    OpenSession,
    RefreshOutcome,
    RefreshReused,
    RefreshRotated,
    RequestClaim,
    RequestClaimed,
    RequestKey,
    RotateRefresh,
    Session,
    SessionKind,
    StoredRequest,
    judge_request,
)
from tidewire.domain.chats import pair_key
from tidewire.domain.errors import (
    InvalidCredentials,
    InvalidInvite,
    StoreUnavailable,
    UsernameTaken,
    UserNotFound,
)
from tidewire.domain.ids import SessionId, UserId
from tidewire.domain.limits import REQUEST_KEY_LIFE_MS
from tidewire.domain.login_places import remember_places
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
from tidewire.ports.accounts import AccountStore

Key = TypeVar("Key")
Row = TypeVar("Row")


class MemoryAccounts:
    """Satisfies `ports.accounts.AccountStore`, and holds the tables for the rest of the engine."""

    def __init__(self, tables: MemoryTables) -> None:
        self._tables = tables
        self._is_closed = False

    def _open_tables(self) -> MemoryTables:
        if self._is_closed:
            raise StoreUnavailable("the store is closed")
        return self._tables

    def _the_user(self, user_id: UserId) -> User:
        user = self._open_tables().users.get(user_id)
        if user is None:
            raise UserNotFound(user_id)
        return user

    # Credentials.

    async def register(self, account: NewAccount, *, now_ms: int) -> User:
        tables, user = self._open_tables(), account.user
        if user.user_id in tables.users:
            return tables.users[user.user_id]
        if account.invite_hash is not None and not await self.is_invite_open(
            account.invite_hash, now_ms=now_ms
        ):
            raise InvalidInvite
        if tables.user_named(user.username) is not None:
            raise UsernameTaken(user.username)
        if account.invite_hash is not None:
            tables.accounts.used_invites[account.invite_hash] = user.user_id
        tables.add_user(user)
        tables.accounts.passwords[user.user_id] = account.password_hash
        return user

    async def add_invite(self, invite: Invite) -> None:
        self._open_tables().accounts.invites.setdefault(invite.code_hash, invite)

    async def is_invite_open(self, code_hash: bytes, *, now_ms: int) -> bool:
        accounts = self._open_tables().accounts
        invite = accounts.invites.get(code_hash)
        if invite is None or code_hash in accounts.used_invites:
            return False
        return invite.expires_at_ms > now_ms

    async def credentials(self, username: str) -> Credentials | None:
        user = self._open_tables().user_named(username)
        return None if user is None else self._credentials(user)

    async def credentials_of(self, user_id: UserId) -> Credentials | None:
        user = self._open_tables().users.get(user_id)
        return None if user is None else self._credentials(user)

    def _credentials(self, user: User) -> Credentials:
        accounts = self._tables.accounts
        return Credentials(
            user=user,
            password_hash=accounts.passwords.get(user.user_id),
            places=accounts.places.get(user.user_id, ()),
        )

    async def set_password(
        self,
        user_id: UserId,
        password_hash: str,
        *,
        expected_hash: str | None,
        keep: SessionId | None,
        now_ms: int,
    ) -> list[SessionId]:
        self._the_user(user_id)
        passwords = self._tables.accounts.passwords
        if expected_hash is not None and passwords.get(user_id) != expected_hash:
            raise InvalidCredentials
        passwords[user_id] = password_hash
        return self._end_sessions(user_id, keep=keep, bots=False)

    async def external_user(self, identity: ExternalIdentity) -> User | None:
        tables = self._open_tables()
        user_id = tables.accounts.external_users.get(identity)
        return None if user_id is None else tables.users[user_id]

    async def ensure_external_user(
        self, identity: ExternalIdentity, user: User, *, fallback_username: str
    ) -> User:
        tables = self._open_tables()
        known = await self.external_user(identity)
        if known is not None:
            return known
        if tables.user_named(user.username) is not None:
            user = replace(user, username=fallback_username)
        tables.add_user(user)
        tables.accounts.external_users[identity] = user.user_id
        return user

    async def disable_user(self, user_id: UserId, *, now_ms: int) -> list[SessionId]:
        self._tables.users[user_id] = as_disabled(self._the_user(user_id), now_ms=now_ms)
        return self._end_sessions(user_id, keep=None, bots=True)

    async def enable_user(self, user_id: UserId, *, now_ms: int) -> User:
        self._tables.users[user_id] = user = as_enabled(self._the_user(user_id), now_ms=now_ms)
        return user

    # Deletions.

    async def begin_deletion(
        self, user_id: UserId, *, now_ms: int, erases: bool = False
    ) -> list[SessionId]:
        user = self._the_user(user_id)
        if user.deleted_at_ms is None:
            accounts = self._tables.accounts
            self._tables.users[user_id] = as_deleted(user, now_ms=now_ms)
            accounts.pending_deletions[user_id] = erases
            accounts.passwords.pop(user_id, None)
            accounts.places.pop(user_id, None)
        return self._end_sessions(user_id, keep=None, bots=True)

    async def erase_name(self, user_id: UserId, *, now_ms: int) -> User:
        tables = self._open_tables()
        user = self._the_user(user_id)
        erased = as_erased(user, now_ms=now_ms)
        if erased != user:
            del tables.user_ids_by_name[user.username.casefold()]
            tables.users[user_id] = erased
            tables.user_ids_by_name[erased.username] = user_id
        return erased

    async def pending_deletions(self, *, count_max: int) -> list[PendingDeletion]:
        tables = self._open_tables()
        pending = list(tables.accounts.pending_deletions.items())[:count_max]
        return [PendingDeletion(tables.users[one], erases) for one, erases in pending]

    async def finish_deletion(self, user_id: UserId) -> None:
        self._open_tables().accounts.pending_deletions.pop(user_id, None)

    # Sessions.

    async def open_session(
        self, command: OpenSession, *, sessions_max: int, now_ms: int
    ) -> OpenedSession:
        session, rows = command.session, self._open_tables().accounts.sessions
        if session.session_id in rows:
            return OpenedSession(rows[session.session_id].session, ())
        check_may_log_in(self._the_user(session.user_id))
        if command.password_hash is not None:
            passwords = self._tables.accounts.passwords
            if passwords.get(session.user_id) != command.password_hash:
                raise InvalidCredentials
            passwords[session.user_id] = command.rehashed or command.password_hash
            places = self._tables.accounts.places
            places[session.user_id] = remember_places(
                places.get(session.user_id, ()), command.places
            )
        ended = self._make_room(session, sessions_max, now_ms)
        rows[session.session_id] = StoredSession(session=session, refresh_hash=command.refresh_hash)
        return OpenedSession(session, ended)

    def _make_room(self, session: Session, sessions_max: int, now_ms: int) -> list[SessionId]:
        own = self._sessions_of(session.user_id)
        gone, ended = make_room(own, session, sessions_max=sessions_max, now_ms=now_ms)
        for session_id in (*gone, *ended):
            del self._tables.accounts.sessions[session_id]
        return ended

    async def session(self, session_id: SessionId) -> Session | None:
        row = self._open_tables().accounts.sessions.get(session_id)
        return None if row is None else row.session

    async def sessions(self, user_id: UserId, *, now_ms: int) -> list[Session]:
        return [own for own in self._sessions_of(user_id) if own.expires_at_ms > now_ms]

    async def rotate_refresh(self, command: RotateRefresh, *, now_ms: int) -> RefreshOutcome:
        rows = self._open_tables().accounts.sessions
        row = rows.get(command.session_id)
        outcome = judge_refresh(row, command, now_ms=now_ms)
        if isinstance(outcome, RefreshReused):
            del rows[command.session_id]
        elif isinstance(outcome, RefreshRotated):
            assert row is not None
            if not outcome.repeated:
                row = StoredSession(
                    session=outcome.session,
                    refresh_hash=row.refresh_hash,
                    previous_hash=row.refresh_hash,
                    rotated_at_ms=now_ms,
                )
            rows[command.session_id] = replace(row, refresh_hash=command.next_hash)
        return outcome

    async def revoke_session(self, user_id: UserId, session_id: SessionId) -> bool:
        rows = self._open_tables().accounts.sessions
        if session_id not in rows or rows[session_id].session.user_id != user_id:
            return False
        del rows[session_id]
        return True

    async def revoke_sessions(self, user_id: UserId, *, keep: SessionId | None) -> list[SessionId]:
        return self._end_sessions(user_id, keep=keep, bots=False)

    async def touch_sessions(self, session_ids: Sequence[SessionId], *, now_ms: int) -> None:
        rows = self._open_tables().accounts.sessions
        for session_id in session_ids:
            if (row := rows.get(session_id)) is not None:
                active_at_ms = max(row.session.last_active_at_ms, now_ms)
                session = replace(row.session, last_active_at_ms=active_at_ms)
                rows[session_id] = replace(row, session=session)

    def _sessions_of(self, user_id: UserId) -> list[Session]:
        rows = self._open_tables().accounts.sessions.values()
        return sorted(
            (row.session for row in rows if row.session.user_id == user_id),
            key=lambda session: (session.created_at_ms, session.session_id),
        )

    def _end_sessions(
        self, user_id: UserId, *, keep: SessionId | None, bots: bool
    ) -> list[SessionId]:
        ended = sorted(
            own.session_id
            for own in self._sessions_of(user_id)
            if own.session_id != keep and (bots or own.kind is SessionKind.LOGIN)
        )
        for session_id in ended:
            del self._tables.accounts.sessions[session_id]
        return ended

    # Blocks.

    async def block(self, user_id: UserId, blocked_id: UserId, *, now_ms: int) -> BlockChange:
        access.check_block(user_id, blocked_id)
        self._the_user(blocked_id)
        blocks = self._tables.accounts.blocks.setdefault(user_id, {})
        if blocked_id in blocks:
            return BlockChange(changed=False)
        access.check_block_count(len(blocks))
        blocks[blocked_id] = None
        return self._mark(user_id, blocked_id, is_blocked=True)

    async def unblock(self, user_id: UserId, blocked_id: UserId) -> BlockChange:
        blocks = self._open_tables().accounts.blocks.get(user_id, {})
        if blocked_id not in blocks:
            return BlockChange(changed=False)
        del blocks[blocked_id]
        return self._mark(user_id, blocked_id, is_blocked=False)

    def _mark(self, user_id: UserId, blocked_id: UserId, *, is_blocked: bool) -> BlockChange:
        chat_id = self._tables.direct_chats.get(pair_key(user_id, blocked_id))
        if chat_id is None:
            return BlockChange(changed=True)
        record = self._tables.chats[chat_id]
        if is_blocked:
            record.blocked[blocked_id] = None
        else:
            del record.blocked[blocked_id]
        record.stored = replace(
            record.stored,
            membership_version=record.stored.membership_version + 1,
            block_changes=record.stored.block_changes + 1,
        )
        return BlockChange(changed=True, chat_id=chat_id)

    async def blocked_users(
        self, user_id: UserId, *, after: UserId | None, count_max: int
    ) -> list[UserId]:
        blocked = sorted(self._open_tables().accounts.blocks.get(user_id, {}))
        return [other for other in blocked if after is None or other > after][:count_max]

    # Requests.

    async def claim_request(
        self, key: RequestKey, body_hash: bytes, *, resource_id: str | None, now_ms: int
    ) -> RequestClaim:
        rows = self._open_tables().accounts.requests
        claim = judge_request(rows.get(key), body_hash, now_ms=now_ms)
        if claim is None:
            rows[key] = StoredRequest(
                body_hash=body_hash,
                resource_id=resource_id,
                http_status=None,
                created_at_ms=now_ms,
                claimed_at_ms=now_ms,
            )
            return RequestClaimed(resource_id)
        if isinstance(claim, RequestClaimed):
            rows[key] = replace(rows[key], claimed_at_ms=now_ms)
        return claim

    async def finish_request(
        self, key: RequestKey, *, http_status: int, resource_id: str | None
    ) -> None:
        rows = self._open_tables().accounts.requests
        if key in rows and rows[key].http_status is None:
            rows[key] = replace(rows[key], http_status=http_status, resource_id=resource_id)

    async def release_request(self, key: RequestKey) -> None:
        rows = self._open_tables().accounts.requests
        if key in rows and rows[key].http_status is None:
            del rows[key]

    async def sweep_accounts(self, *, now_ms: int, count_max: int) -> int:
        tables = self._open_tables().accounts
        sessions = [i for i, row in tables.sessions.items() if row.session.expires_at_ms <= now_ms]
        invites = [i for i, row in tables.invites.items() if row.expires_at_ms <= now_ms]
        oldest_ms = now_ms - REQUEST_KEY_LIFE_MS
        requests = [i for i, row in tables.requests.items() if row.created_at_ms <= oldest_ms]
        return (
            _drop(tables.sessions, sessions[:count_max])
            + _drop(tables.invites, invites[:count_max])
            + _drop(tables.requests, requests[:count_max])
        )


def _drop(rows: dict[Key, Row], keys: Sequence[Key]) -> int:
    for key in keys:
        del rows[key]
    return len(keys)


_CONFORMS: type[AccountStore] = MemoryAccounts
