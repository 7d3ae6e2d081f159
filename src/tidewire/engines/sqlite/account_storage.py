"""The account part of the SQLite engine: only wires, as `storage` does."""

from collections.abc import Sequence

from tidewire.domain.accounts import (
    BlockChange,
    Credentials,
    ExternalIdentity,
    Invite,
    NewAccount,
    OpenedSession,
    OpenSession,
    RefreshOutcome,
    RequestClaim,
    RequestKey,
    RotateRefresh,
    Session,
)
from tidewire.domain.ids import SessionId, UserId
from tidewire.domain.users import User
from tidewire.engines.sqlite import accounts, blocks, requests, sessions
from tidewire.engines.sqlite.calls import SqliteCalls
from tidewire.ports.accounts import AccountStore


class SqliteAccounts(SqliteCalls):
    """Satisfies `ports.accounts.AccountStore`."""

    # Credentials.

    async def register(self, account: NewAccount, *, now_ms: int) -> User:
        return await self._write(accounts.register, account, now_ms)

    async def add_invite(self, invite: Invite) -> None:
        await self._write(accounts.add_invite, invite)

    async def is_invite_open(self, code_hash: bytes, *, now_ms: int) -> bool:
        return await self._read(accounts.is_invite_open, code_hash, now_ms)

    async def credentials(self, username: str) -> Credentials | None:
        return await self._read(accounts.credentials, username)

    async def credentials_of(self, user_id: UserId) -> Credentials | None:
        return await self._read(accounts.credentials_of, user_id)

    async def set_password(
        self,
        user_id: UserId,
        password_hash: str,
        *,
        expected_hash: str | None,
        keep: SessionId | None,
        now_ms: int,
    ) -> list[SessionId]:
        return await self._write(
            accounts.set_password, user_id, password_hash, expected_hash, keep, now_ms
        )

    async def external_user(self, identity: ExternalIdentity) -> User | None:
        return await self._read(accounts.external_user, identity)

    async def ensure_external_user(
        self, identity: ExternalIdentity, user: User, *, fallback_username: str
    ) -> User:
        return await self._write(accounts.ensure_external_user, identity, user, fallback_username)

    async def disable_user(self, user_id: UserId, *, now_ms: int) -> list[SessionId]:
        return await self._write(accounts.disable_user, user_id, now_ms)

    async def enable_user(self, user_id: UserId, *, now_ms: int) -> User:
        return await self._write(accounts.enable_user, user_id, now_ms)

    # Deletions.

    async def begin_deletion(self, user_id: UserId, *, now_ms: int) -> list[SessionId]:
        return await self._write(accounts.begin_deletion, user_id, now_ms)

    async def pending_deletions(self, *, count_max: int) -> list[User]:
        return await self._read(accounts.pending_deletions, count_max)

    async def finish_deletion(self, user_id: UserId) -> None:
        await self._write(accounts.finish_deletion, user_id)

    # Sessions.

    async def open_session(
        self, command: OpenSession, *, sessions_max: int, now_ms: int
    ) -> OpenedSession:
        return await self._write(sessions.open_session, command, sessions_max, now_ms)

    async def session(self, session_id: SessionId) -> Session | None:
        return await self._read(sessions.session_of, session_id)

    async def sessions(self, user_id: UserId, *, now_ms: int) -> list[Session]:
        return await self._read(sessions.sessions, user_id, now_ms)

    async def rotate_refresh(self, command: RotateRefresh, *, now_ms: int) -> RefreshOutcome:
        return await self._write(sessions.rotate_refresh, command, now_ms)

    async def revoke_session(self, user_id: UserId, session_id: SessionId) -> bool:
        return await self._write(sessions.revoke_session, user_id, session_id)

    async def revoke_sessions(self, user_id: UserId, *, keep: SessionId | None) -> list[SessionId]:
        return await self._write(sessions.revoke_sessions, user_id, keep)

    async def touch_sessions(self, session_ids: Sequence[SessionId], *, now_ms: int) -> None:
        await self._write(sessions.touch_sessions, session_ids, now_ms)

    # Blocks.

    async def block(self, user_id: UserId, blocked_id: UserId, *, now_ms: int) -> BlockChange:
        return await self._write(blocks.block, user_id, blocked_id, now_ms)

    async def unblock(self, user_id: UserId, blocked_id: UserId) -> BlockChange:
        return await self._write(blocks.unblock, user_id, blocked_id)

    async def blocked_users(
        self, user_id: UserId, *, after: UserId | None, count_max: int
    ) -> list[UserId]:
        return await self._read(blocks.blocked_users, user_id, after, count_max)

    # Requests.

    async def claim_request(
        self, key: RequestKey, body_hash: bytes, *, resource_id: str | None, now_ms: int
    ) -> RequestClaim:
        return await self._write(requests.claim_request, key, body_hash, resource_id, now_ms)

    async def finish_request(
        self, key: RequestKey, *, http_status: int, resource_id: str | None
    ) -> None:
        await self._write(requests.finish_request, key, http_status, resource_id)

    async def release_request(self, key: RequestKey) -> None:
        await self._write(requests.release_request, key)

    async def sweep_accounts(self, *, now_ms: int, count_max: int) -> int:
        return await self._write(requests.sweep_accounts, now_ms, count_max)


_CONFORMS: type[AccountStore] = SqliteAccounts
