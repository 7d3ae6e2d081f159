"""The operator's actions on accounts: make and disable users, give out tokens and invites.

No password is needed here: the caller owns the data directory.
"""

from functools import partial

import msgspec

from tidewire.accounts.codes import INVITE_BYTES, encode_invite, invite_hash
from tidewire.accounts.deletion import AccountDeletion
from tidewire.accounts.plane import AccountPlane, Opened
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
from tidewire.domain.ids import UserId
from tidewire.domain.limits import USERS_PAGE_MAX
from tidewire.domain.users import User, check_display_name, check_username, fallback_username

SWEEP_ROWS_MAX = 1_000
_DAY_MS = 86_400_000


class BotToken(Opened, frozen=True, kw_only=True):
    """A long-lived token, shown once. It ends with its session."""

    token: Secret
    expires_at_ms: int


class NewInvite(msgspec.Struct, frozen=True, kw_only=True):
    """A code that lets one person register, shown once."""

    code: Secret
    expires_at_ms: int


class AccountAdmin:
    """The operator's side of accounts, and its housekeeping."""

    def __init__(
        self, plane: AccountPlane, deletion: AccountDeletion, *, external_issuer: str
    ) -> None:
        """`external_issuer` is the identity provider's name; empty if there is none."""
        self._plane = plane
        self._store = plane.store
        self._clock = plane.clock
        self._options = plane.options
        self._deletion = deletion
        self._external_issuer = external_issuer
        self._note = partial(plane.trail.record, actor=OPERATOR)

    async def add_user(
        self, username: str, password: Secret | None, *, display_name: str | None = None
    ) -> User:
        """A new user; one without a password cannot log in (a bot). Raises UsernameTaken,
        InvalidOperation."""
        user = self._new_user(username, display_name)
        if password is None:
            user = await self._store.add_user(user)
        else:
            password_hash = await self._plane.passwords.hash(check_password(password))
            user = await self._store.register(
                NewAccount(user=user, password_hash=password_hash), now_ms=user.created_at_ms
            )
        self._note(AuditAction.ACCOUNT_CREATED, target=user.user_id)
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
        user = self._new_user(username, display_name)
        if await self._store.user_named(username) is not None:
            raise UsernameTaken(username)
        return await self._store.ensure_external_user(
            identity, user, fallback_username=fallback_username(user.user_id, username)
        )

    def _new_user(self, username: str, display_name: str | None) -> User:
        check_username(username)
        check_display_name(display_name or username)
        return self._plane.new_user(username, display_name)

    async def external_user(self, subject: str) -> User:
        """The account of a subject of the identity provider. Raises UserNotFound,
        InvalidOperation (no provider)."""
        user = await self._store.external_user(self._external_identity(subject))
        if user is None:
            raise UserNotFound(subject)
        return user

    def _external_identity(self, subject: str) -> ExternalIdentity:
        if not self._external_issuer:
            raise InvalidOperation("there is no identity provider: identity.issuer is not set")
        return ExternalIdentity(self._external_issuer, check_subject(subject))

    async def list_users(
        self, *, after: str | None = None, count_max: int = USERS_PAGE_MAX
    ) -> list[User]:
        """Users sorted by name, from the first one after the name `after`."""
        return await self._store.list_users(after=after, count_max=min(count_max, USERS_PAGE_MAX))

    async def user_named(self, username: str) -> User:
        """Raises UserNotFound, also for an account that was deleted."""
        user = await self._store.user_named(username)
        if user is None or user.deleted_at_ms is not None:
            raise UserNotFound(username)
        return user

    async def delete_user(self, username: str) -> tuple[User, int]:
        """Delete an account, as its owner can; return how many sessions ended. A second call
        changes nothing. Raises UserNotFound."""
        user = await self._store.user_named(username)
        if user is None:
            raise UserNotFound(username)
        return user, await self._deletion.delete(user, actor=OPERATOR)

    async def sessions(self, user_id: UserId) -> list[Session]:
        """A user's sessions, bots' among them, the oldest first."""
        return await self._store.sessions(user_id, now_ms=self._clock.wall_ms())

    async def set_password(self, user_id: UserId, password: Secret) -> int:
        """Give a user another password and end the user's logins; return how many. Raises
        UserNotFound, InvalidOperation."""
        ended = await self._store.set_password(
            user_id,
            await self._plane.passwords.hash(check_password(password)),
            expected_hash=None,
            keep=None,
            now_ms=self._clock.wall_ms(),
        )
        self._plane.revoked(ended)
        self._note(AuditAction.PASSWORD_CHANGED, target=user_id, count=len(ended))
        return len(ended)

    async def disable_user(self, user_id: UserId) -> int:
        """Lock a user out, at once: no login, no session, no socket, no bot. Return how many
        sessions ended. Raises UserNotFound."""
        found = await self._store.users((user_id,))
        ended = await self._store.disable_user(user_id, now_ms=self._clock.wall_ms())
        # An identity provider may have let the person in: those connections end too.
        self._plane.revoked((*ended, *(external_session_id(user) for user in found)))
        self._note(AuditAction.ACCOUNT_DISABLED, target=user_id, count=len(ended))
        return len(ended)

    async def enable_user(self, user_id: UserId) -> User:
        """Let a disabled user in again. Raises UserNotFound."""
        user = await self._store.enable_user(user_id, now_ms=self._clock.wall_ms())
        self._note(AuditAction.ACCOUNT_ENABLED, target=user_id)
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
            # Keys are kept no longer than this, so the token would end before its time.
            days = self._options.bot_token_ms // _DAY_MS
            raise InvalidOperation(
                f"a token lives for {days} days at most; accounts.bot_token_ms sets it"
            )
        found = await self._store.users((user_id,))
        if not found:
            raise UserNotFound(user_id)
        now_ms = self._clock.wall_ms()
        session = self._plane.new_session(
            user_id, None, life_ms=life_ms, now_ms=now_ms, kind=SessionKind.BOT, label=label
        )
        await self._store.open_session(
            OpenSession(session=session, refresh_hash=None),
            sessions_max=self._options.sessions_max,
            now_ms=now_ms,
        )
        self._note(AuditAction.TOKEN_ISSUED, target=user_id, session_id=session.session_id)
        token, expires_at_ms = self._plane.tokens.issue(session, life_ms=life_ms, now_ms=now_ms)
        return BotToken(user=found[0], session=session, token=token, expires_at_ms=expires_at_ms)

    async def create_invite(self, *, created_by: UserId | None = None) -> NewInvite:
        """A code for one new account."""
        now_ms = self._clock.wall_ms()
        code = encode_invite(self._plane.random_bytes(INVITE_BYTES))
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
        """Store which sessions were in use, go on with account deletions that were begun, and
        delete some expired rows; return how many rows.

        Call it now and then (each minute). Raises StoreUnavailable; then only the exact time of a
        session's last use is lost.
        """
        now_ms = self._clock.wall_ms()
        touched = self._plane.authenticator.take_touched()
        if touched:
            await self._store.touch_sessions(touched, now_ms=now_ms)
        await self._deletion.resume()
        return await self._store.sweep_accounts(now_ms=now_ms, count_max=SWEEP_ROWS_MAX)
