"""What an operator does with accounts: makes users, disables them, gives out tokens and invites.

Nobody is asked for a password here: whoever may call this owns the data directory.
"""

import msgspec

from tidewire.accounts.authenticator import TokenAuthenticator
from tidewire.accounts.deletion import AccountDeletion
from tidewire.accounts.invites import INVITE_BYTES, encode_invite, invite_hash
from tidewire.accounts.options import AccountOptions
from tidewire.accounts.passwords import Passwords
from tidewire.accounts.service import OnRevoked
from tidewire.accounts.tokens import AccessTokens
from tidewire.domain.accounts import (
    ExternalIdentity,
    Invite,
    NewAccount,
    OpenSession,
    Secret,
    Session,
    SessionKind,
    check_password,
    check_subject,
    external_session_id,
)
from tidewire.domain.audit import OPERATOR, AuditAction
from tidewire.domain.errors import InvalidOperation, UsernameTaken, UserNotFound
from tidewire.domain.ids import SessionId, UserId
from tidewire.domain.limits import USERS_PAGE_MAX
from tidewire.domain.users import User, check_display_name, check_username, fallback_username
from tidewire.ports.audit import NO_TRAIL, AuditTrail
from tidewire.ports.runtime import Clock, IdSource, RandomBytes
from tidewire.ports.storage import Storage

SWEEP_ROWS_MAX = 1_000
_DAY_MS = 86_400_000


class BotToken(msgspec.Struct, frozen=True, kw_only=True):
    """A long-lived token, shown once. It ends with its session."""

    user: User
    session: Session
    token: Secret
    expires_at_ms: int


class NewInvite(msgspec.Struct, frozen=True, kw_only=True):
    """A code that lets one person register, shown once."""

    code: Secret
    expires_at_ms: int


class AccountAdmin:
    """The operator's side of accounts, and its housekeeping."""

    def __init__(
        self,
        *,
        store: Storage,
        passwords: Passwords,
        tokens: AccessTokens,
        clock: Clock,
        ids: IdSource,
        random_bytes: RandomBytes,
        options: AccountOptions,
        on_revoked: OnRevoked,
        external_issuer: str | None = None,
        authenticator: TokenAuthenticator | None = None,
        trail: AuditTrail = NO_TRAIL,
        deletion: AccountDeletion,
    ) -> None:
        """Without an authenticator (a command beside no server) there is nothing to note."""
        self._store = store
        self._passwords = passwords
        self._tokens = tokens
        self._clock = clock
        self._ids = ids
        self._random_bytes = random_bytes
        self._options = options
        self._on_revoked = on_revoked
        self._external_issuer = external_issuer
        self._authenticator = authenticator
        self._trail = trail
        self._deletion = deletion

    async def add_user(
        self, username: str, password: Secret | None, *, display_name: str | None = None
    ) -> User:
        """A new user; without a password he cannot log in (a bot). Raises UsernameTaken,
        InvalidOperation."""
        now_ms = self._clock.wall_ms()
        user = User(
            user_id=self._ids.user_id(now_ms),
            username=check_username(username),
            display_name=check_display_name(display_name or username),
            created_at_ms=now_ms,
            updated_at_ms=now_ms,
        )
        if password is None:
            user = await self._store.add_user(user)
        else:
            password_hash = await self._passwords.hash(check_password(password))
            user = await self._store.register(
                NewAccount(user=user, password_hash=password_hash), now_ms=now_ms
            )
        self._note(AuditAction.ACCOUNT_CREATED, user.user_id)
        return user

    async def add_external_user(
        self, username: str, subject: str, *, display_name: str | None = None
    ) -> User:
        """An account for a subject of the identity provider, before its first login.

        Raises UsernameTaken, InvalidOperation (no provider, or the subject has an account).
        """
        identity = self._external_identity(subject)
        known = await self._store.external_user(identity)
        if known is not None:
            raise InvalidOperation(f"this subject has an account already: {known.username}")
        if await self._store.user_named(check_username(username)) is not None:
            raise UsernameTaken(username)
        now_ms = self._clock.wall_ms()
        user = User(
            user_id=self._ids.user_id(now_ms),
            username=username,
            display_name=check_display_name(display_name or username),
            created_at_ms=now_ms,
            updated_at_ms=now_ms,
        )
        return await self._store.ensure_external_user(
            identity, user, fallback_username=fallback_username(user.user_id, username)
        )

    async def external_user(self, subject: str) -> User:
        """The account of a subject of the identity provider. Raises UserNotFound,
        InvalidOperation (no provider)."""
        user = await self._store.external_user(self._external_identity(subject))
        if user is None:
            raise UserNotFound(subject)
        return user

    def _external_identity(self, subject: str) -> ExternalIdentity:
        if self._external_issuer is None:
            raise InvalidOperation("there is no identity provider: identity.issuer is not set")
        return ExternalIdentity(self._external_issuer, check_subject(subject))

    async def list_users(
        self, *, after: str | None = None, count_max: int = USERS_PAGE_MAX
    ) -> list[User]:
        """Users by name, from above the name `after`."""
        return await self._store.list_users(after=after, count_max=min(count_max, USERS_PAGE_MAX))

    async def user_named(self, username: str) -> User:
        """Raises UserNotFound, also for an account that was deleted."""
        user = await self._store.user_named(username)
        if user is None or user.deleted_at_ms is not None:
            raise UserNotFound(username)
        return user

    async def delete_user(self, username: str) -> tuple[User, int]:
        """Delete an account, as its owner can; how many sessions ended. Again changes nothing.
        Raises UserNotFound."""
        user = await self._store.user_named(username)
        if user is None:
            raise UserNotFound(username)
        return user, await self._deletion.delete(user, actor=OPERATOR)

    async def sessions(self, user_id: UserId) -> list[Session]:
        """A user's sessions, bots' among them, the oldest first."""
        return await self._store.sessions(user_id, now_ms=self._clock.wall_ms())

    async def set_password(self, user_id: UserId, password: Secret) -> int:
        """Give a user another password and end his logins; how many. Raises UserNotFound,
        InvalidOperation."""
        ended = await self._store.set_password(
            user_id,
            await self._passwords.hash(check_password(password)),
            expected_hash=None,
            keep=None,
            now_ms=self._clock.wall_ms(),
        )
        if ended:
            self._on_revoked(ended)
        self._note(AuditAction.PASSWORD_CHANGED, user_id, count=len(ended))
        return len(ended)

    async def disable_user(self, user_id: UserId) -> int:
        """Lock a user out, at once: no login, no session, no socket, no bot. How many sessions
        ended. Raises UserNotFound."""
        found = await self._store.users((user_id,))
        ended = await self._store.disable_user(user_id, now_ms=self._clock.wall_ms())
        # His identity provider may have let him in: those connections end too.
        self._on_revoked((*ended, *(external_session_id(user) for user in found)))
        self._note(AuditAction.ACCOUNT_DISABLED, user_id, count=len(ended))
        return len(ended)

    async def enable_user(self, user_id: UserId) -> User:
        """Let him in again. Raises UserNotFound."""
        user = await self._store.enable_user(user_id, now_ms=self._clock.wall_ms())
        self._note(AuditAction.ACCOUNT_ENABLED, user_id)
        return user

    async def issue_bot_token(
        self, user_id: UserId, label: str, *, life_ms: int | None = None
    ) -> BotToken:
        """A long-lived token with a session of its own, which is listed and can be revoked.

        Raises UserNotFound, Forbidden (disabled), InvalidOperation.
        """
        check_display_name(label)
        life_ms = self._options.bot_token_ms if life_ms is None else life_ms
        if life_ms < 1_000:
            raise InvalidOperation("a token lives for a second at least")
        if life_ms > self._options.bot_token_ms:
            # Keys are kept for so long and no longer: the token would end before its time.
            days = self._options.bot_token_ms // _DAY_MS
            raise InvalidOperation(
                f"a token lives for {days} days at most; accounts.bot_token_ms sets it"
            )
        found = await self._store.users((user_id,))
        if not found:
            raise UserNotFound(user_id)
        now_ms = self._clock.wall_ms()
        session = Session(
            session_id=self._ids.session_id(now_ms),
            user_id=user_id,
            device_id=None,
            kind=SessionKind.BOT,
            label=label,
            created_at_ms=now_ms,
            last_active_at_ms=now_ms,
            expires_at_ms=now_ms + life_ms,
        )
        await self._store.open_session(
            OpenSession(session=session, refresh_hash=None),
            sessions_max=self._options.sessions_max,
            now_ms=now_ms,
        )
        self._note(AuditAction.TOKEN_ISSUED, user_id, session_id=session.session_id)
        token, expires_at_ms = self._tokens.issue(session, life_ms=life_ms, now_ms=now_ms)
        return BotToken(user=found[0], session=session, token=token, expires_at_ms=expires_at_ms)

    async def create_invite(self, *, created_by: UserId | None = None) -> NewInvite:
        """A code for one new account."""
        now_ms = self._clock.wall_ms()
        code = encode_invite(self._random_bytes(INVITE_BYTES))
        invite = Invite(
            code_hash=invite_hash(code),
            created_by=created_by,
            created_at_ms=now_ms,
            expires_at_ms=now_ms + self._options.invite_ms,
        )
        await self._store.add_invite(invite)
        self._note(AuditAction.INVITE_CREATED)
        return NewInvite(code=code, expires_at_ms=invite.expires_at_ms)

    async def keep_house(self) -> int:
        """Note which sessions were in use, go on with deletions of accounts that were begun, and
        delete some of what has expired; how many rows.

        To be called now and then (each minute). Raises StoreUnavailable; then nothing is lost but
        the exact time of somebody's last use.
        """
        now_ms = self._clock.wall_ms()
        touched = [] if self._authenticator is None else self._authenticator.take_touched()
        if touched:
            await self._store.touch_sessions(touched, now_ms=now_ms)
        await self._deletion.resume()
        return await self._store.sweep_accounts(now_ms=now_ms, count_max=SWEEP_ROWS_MAX)

    def _note(
        self,
        action: AuditAction,
        target: UserId | None = None,
        *,
        session_id: SessionId | None = None,
        count: int | None = None,
    ) -> None:
        self._trail.record(
            action, actor=OPERATOR, target=target, session_id=session_id, count=count
        )
