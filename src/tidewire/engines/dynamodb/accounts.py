"""The account part of the DynamoDB engine, and what all parts share: the connection, its acts."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AsyncExitStack
from typing import Any, TypeVar

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
from tidewire.domain.errors import InvalidOperation, StoreUnavailable
from tidewire.domain.ids import SessionId, UserId
from tidewire.domain.users import User
from tidewire.engines.dynamodb import blocks, requests, sessions, users
from tidewire.engines.dynamodb.database import Counts, Database
from tidewire.engines.dynamodb.sweeping import Sweeper
from tidewire.ports.accounts import AccountStore

Result = TypeVar("Result")


class DynamoAccounts:
    """Satisfies `ports.accounts.AccountStore`."""

    def __init__(self, database: Database, exit_stack: AsyncExitStack) -> None:
        self._database = database
        self._exit_stack = exit_stack
        self._sweeper = Sweeper(database)
        self._acts: dict[asyncio.Task[Any], None] = {}
        self._is_closed = False

    @property
    def counts(self) -> Counts:
        """What the database made of our requests."""
        return self._database.counts

    async def close(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        await asyncio.gather(*self._acts, return_exceptions=True)
        await self._exit_stack.aclose()

    async def _act(
        self, act: Callable[..., Coroutine[Any, Any, Result]], *arguments: Any, **named: Any
    ) -> Result:
        """Carry out a function on the database, within its budget and to its end.

        Whoever waits for it may give up; what was begun is finished all the same, and told.
        """
        return await self._finish(act(self._database, *arguments, **named))

    async def _finish(self, work: Coroutine[Any, Any, Result]) -> Result:
        if self._is_closed:
            work.close()
            raise StoreUnavailable("the store is closed")

        async def within_budget() -> Result:
            with self._database.within_budget():
                return await work

        task = asyncio.create_task(within_budget())
        self._acts[task] = None
        task.add_done_callback(self._done)
        return await asyncio.shield(task)

    def _done(self, task: asyncio.Task[Any]) -> None:
        del self._acts[task]
        if not task.cancelled():
            # If nobody waits any more, nobody needs to hear of it either.
            task.exception()

    # Credentials.

    async def register(self, account: NewAccount, *, now_ms: int) -> User:
        return await self._act(users.register, account, now_ms=now_ms)

    async def add_invite(self, invite: Invite) -> None:
        await self._act(users.add_invite, invite)

    async def is_invite_open(self, code_hash: bytes, *, now_ms: int) -> bool:
        return await self._act(users.is_invite_open, code_hash, now_ms=now_ms)

    async def credentials(self, username: str) -> Credentials | None:
        return await self._act(users.credentials_by_name, username)

    async def credentials_of(self, user_id: UserId) -> Credentials | None:
        return await self._act(users.credentials_by_id, user_id)

    async def set_password(
        self,
        user_id: UserId,
        password_hash: str,
        *,
        expected_hash: str | None,
        keep: SessionId | None,
        now_ms: int,
    ) -> list[SessionId]:
        return await self._act(
            sessions.set_password, user_id, password_hash, expected_hash=expected_hash, keep=keep
        )

    async def external_user(self, identity: ExternalIdentity) -> User | None:
        return await self._act(users.external_user, identity)

    async def ensure_external_user(
        self, identity: ExternalIdentity, user: User, *, fallback_username: str
    ) -> User:
        return await self._act(
            users.ensure_external_user, identity, user, fallback_username=fallback_username
        )

    async def disable_user(self, user_id: UserId, *, now_ms: int) -> list[SessionId]:
        return await self._act(sessions.disable_user, user_id, now_ms=now_ms)

    async def enable_user(self, user_id: UserId, *, now_ms: int) -> User:
        return await self._act(users.enable_user, user_id, now_ms=now_ms)

    # Deletions.

    async def begin_deletion(self, user_id: UserId, *, now_ms: int) -> list[SessionId]:
        return await self._act(sessions.begin_deletion, user_id, now_ms=now_ms)

    async def pending_deletions(self, *, count_max: int) -> list[User]:
        return await self._act(users.pending_deletions, count_max=count_max)

    async def finish_deletion(self, user_id: UserId) -> None:
        await self._act(users.finish_deletion, user_id)

    # Sessions.

    async def open_session(
        self, command: OpenSession, *, sessions_max: int, now_ms: int
    ) -> OpenedSession:
        return await self._act(
            sessions.open_session, command, sessions_max=sessions_max, now_ms=now_ms
        )

    async def session(self, session_id: SessionId) -> Session | None:
        return await self._act(sessions.read_session, session_id)

    async def sessions(self, user_id: UserId, *, now_ms: int) -> list[Session]:
        own = await self._act(sessions.sessions_of, user_id)
        return [session for session in own if session.expires_at_ms > now_ms]

    async def rotate_refresh(self, command: RotateRefresh, *, now_ms: int) -> RefreshOutcome:
        return await self._act(sessions.rotate_refresh, command, now_ms=now_ms)

    async def revoke_session(self, user_id: UserId, session_id: SessionId) -> bool:
        return await self._act(sessions.revoke_session, user_id, session_id)

    async def revoke_sessions(self, user_id: UserId, *, keep: SessionId | None) -> list[SessionId]:
        return await self._act(sessions.revoke_sessions, user_id, keep=keep)

    async def touch_sessions(self, session_ids: Sequence[SessionId], *, now_ms: int) -> None:
        await self._act(sessions.touch_sessions, session_ids, now_ms=now_ms)

    # Blocks.

    async def block(self, user_id: UserId, blocked_id: UserId, *, now_ms: int) -> BlockChange:
        if user_id == blocked_id:
            raise InvalidOperation("nobody blocks himself")
        await self._act(users.the_user_row, blocked_id)
        return await self._act(blocks.set_block, user_id, blocked_id, wanted=True, now_ms=now_ms)

    async def unblock(self, user_id: UserId, blocked_id: UserId) -> BlockChange:
        return await self._act(blocks.set_block, user_id, blocked_id, wanted=False)

    async def blocked_users(
        self, user_id: UserId, *, after: UserId | None, count_max: int
    ) -> list[UserId]:
        return await self._act(blocks.blocked_users, user_id, after=after, count_max=count_max)

    # Requests.

    async def claim_request(
        self, key: RequestKey, body_hash: bytes, *, resource_id: str | None, now_ms: int
    ) -> RequestClaim:
        return await self._act(
            requests.claim_request, key, body_hash, resource_id=resource_id, now_ms=now_ms
        )

    async def finish_request(
        self, key: RequestKey, *, http_status: int, resource_id: str | None
    ) -> None:
        await self._act(
            requests.finish_request, key, http_status=http_status, resource_id=resource_id
        )

    async def release_request(self, key: RequestKey) -> None:
        await self._act(requests.release_request, key)

    async def sweep_accounts(self, *, now_ms: int, count_max: int) -> int:
        return await self._finish(self._sweeper.sweep(now_ms=now_ms, count_max=count_max))


_CONFORMS: type[AccountStore] = DynamoAccounts
