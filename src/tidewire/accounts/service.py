"""Logging in and out: accounts, sessions, their tokens, and what ends them.

Each method is one or two acts of the store; this file gives them ids, times, hashes and bounds.
Whatever ends a session tells `on_revoked` at once, so that its sockets close.
"""

import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final, Protocol

import msgspec

from tidewire.accounts.invites import invite_hash
from tidewire.accounts.keys import KeyRing
from tidewire.accounts.login_limits import Admitted, LoginLimits, places_of
from tidewire.accounts.options import AccountOptions, Registration
from tidewire.accounts.passwords import PasswordCheck, Passwords
from tidewire.accounts.refresh import (
    SECRET_BYTES,
    RefreshToken,
    parse_refresh_token,
    refresh_key,
)
from tidewire.accounts.throttle import Throttle, address_key
from tidewire.accounts.tokens import AccessTokens
from tidewire.domain.accounts import (
    Credentials,
    NewAccount,
    OpenSession,
    RefreshOtherDevice,
    RefreshReused,
    RefreshRotated,
    RefreshUnknown,
    RotateRefresh,
    Secret,
    Session,
    check_device_id,
    check_password,
    clean_client,
)
from tidewire.domain.audit import AuditAction
from tidewire.domain.errors import (
    DeviceMismatch,
    Forbidden,
    InvalidCredentials,
    InvalidInvite,
    InvalidRefreshToken,
    RateLimited,
    SessionNotFound,
    TooManyLogins,
    UserNotFound,
)
from tidewire.domain.ids import SessionId, UserId, is_safe_token
from tidewire.domain.shared_limits import SharedView
from tidewire.domain.users import User, check_chosen_display_name, check_chosen_username
from tidewire.ports.accounts import AccountStore
from tidewire.ports.audit import NO_TRAIL, ORIGIN, AuditTrail
from tidewire.ports.pausing import pause
from tidewire.ports.runtime import Clock, IdSource, RandomBytes

OnRevoked = Callable[[Sequence[SessionId]], None]
"""Is told which sessions have ended, on the event loop, as soon as that is durable."""

TOO_MANY_TRIES: Final = "too many tries; wait a while"


class DeleteAccount(Protocol):
    """Deletes an account (`accounts.deletion`); how many sessions ended."""

    def __call__(self, user: User, *, actor: str) -> Awaitable[int]: ...


GENERATIONS_AT_ONCE: Final = 64
"""How many steps from an old refresh token are made in one turn of the loop."""

_logger: Final = logging.getLogger(__name__)


class Tokens(msgspec.Struct, frozen=True, kw_only=True):
    """What a device is given to show who it is."""

    access_token: Secret
    access_expires_at_ms: int
    refresh_token: Secret


class LoggedIn(msgspec.Struct, frozen=True, kw_only=True):
    user: User
    session: Session
    tokens: Tokens
    is_new_user: bool


class Refreshed(msgspec.Struct, frozen=True, kw_only=True):
    session: Session
    tokens: Tokens


class _Attempt:
    """What is known of a try while it goes on: the account that it is about, if there is one."""

    __slots__ = ("user_id",)

    def __init__(self) -> None:
        self.user_id: UserId | None = None


class AccountService:
    """What people do with their accounts. `on_revoked` must not raise."""

    def __init__(
        self,
        *,
        store: AccountStore,
        passwords: Passwords,
        tokens: AccessTokens,
        secret: Secret | KeyRing,
        clock: Clock,
        ids: IdSource,
        random_bytes: RandomBytes,
        options: AccountOptions,
        on_revoked: OnRevoked,
        delete: DeleteAccount,
        trail: AuditTrail = NO_TRAIL,
    ) -> None:
        """`secret` is the server's own, which access tokens are signed with too."""
        self._store = store
        self._passwords = passwords
        self._tokens = tokens
        self._keys = KeyRing.of(secret)
        self._clock = clock
        self._ids = ids
        self._random_bytes = random_bytes
        self._options = options
        self._on_revoked = on_revoked
        self._delete = delete
        self._trail = trail
        limits = options.throttle
        self._logins = LoginLimits(limits)
        self._password_changes = self._throttle(
            limits.login_name_burst, limits.login_name_interval_ms
        )
        self._registrations = self._throttle(
            limits.register_ip_burst, limits.register_ip_interval_ms
        )
        self._refreshes = self._throttle(limits.refresh_burst, limits.refresh_interval_ms)

    def share_limits(self) -> dict[str, SharedView]:
        """Count tries over all processes."""
        return {
            **self._logins.share(),
            "password_change": self._password_changes.share(),
            "register_ip": self._registrations.share(),
            "refresh": self._refreshes.share(),
        }

    # Coming in.

    async def register(
        self,
        username: str,
        password: Secret,
        *,
        device_id: str,
        client_ip: str,
        display_name: str | None = None,
        invite: Secret | None = None,
    ) -> LoggedIn:
        """Make an account and log in.

        Raises InvalidOperation (a name or password that is none), Forbidden (closed, or an invite
        is needed), InvalidInvite, UsernameTaken, RateLimited, TooManyLogins.
        """
        with self._failures_noted(AuditAction.REGISTER_FAILED):
            return await self._register(
                username,
                password,
                device_id=device_id,
                client_ip=client_ip,
                display_name=display_name,
                invite=invite,
            )

    async def _register(
        self,
        username: str,
        password: Secret,
        *,
        device_id: str,
        client_ip: str,
        display_name: str | None,
        invite: Secret | None,
    ) -> LoggedIn:
        device_id = check_device_id(device_id)
        check_chosen_username(username)
        check_chosen_display_name(display_name or username)
        check_password(password)
        if self._options.registration is Registration.CLOSED:
            raise Forbidden("nobody can register here; ask whoever runs this server")
        if self._options.registration is Registration.OPEN:
            invite = None
        elif invite is None:
            raise Forbidden("an invite is needed to register here")
        address = address_key(client_ip)
        self._take(self._registrations, address)
        if invite is not None:
            # Before anything is hashed or said about names: who has no invite learns neither.
            await self._check_invite(invite)
        admitted = self._logins.stranger(address, self._clock.monotonic_ms())
        with self._in_queue(admitted):
            password_hash = await self._passwords.hash(password, rank=admitted.rank)
        now_ms = self._clock.wall_ms()
        user = User(
            user_id=self._ids.user_id(now_ms),
            username=username,
            display_name=display_name or username,
            created_at_ms=now_ms,
            updated_at_ms=now_ms,
        )
        account = NewAccount(
            user=user,
            password_hash=password_hash,
            invite_hash=None if invite is None else invite_hash(invite),
        )
        user = await self._store.register(account, now_ms=now_ms)
        self._trail.record(AuditAction.ACCOUNT_CREATED, actor=user.user_id, target=user.user_id)
        check = PasswordCheck(is_right=True)
        places = places_of(user.user_id, device_id, address)
        return await self._open(user, device_id, password_hash, check, places, is_new_user=True)

    async def login(
        self, username: str, password: Secret, *, device_id: str, client_ip: str
    ) -> LoggedIn:
        """Log in on a device; its earlier session ends, and beyond the bound the one that was not
        in use for the longest time.

        A name that nobody has takes as long as a wrong password and gets the same answer. Raises
        InvalidCredentials, Forbidden (disabled), RateLimited, TooManyLogins, InvalidOperation (not
        a device id).
        """
        with self._failures_noted(AuditAction.LOGIN_FAILED) as attempt:
            return await self._login(username, password, attempt, device_id, client_ip)

    async def _login(
        self, username: str, password: Secret, attempt: _Attempt, device_id: str, client_ip: str
    ) -> LoggedIn:
        device_id = check_device_id(device_id)
        address = address_key(client_ip)
        # What cannot be a name is nobody's, but takes as long.
        credentials = await self._store.credentials(username) if is_safe_token(username) else None
        if credentials is not None:
            attempt.user_id = credentials.user.user_id
        admitted = self._logins.admit(
            username,
            credentials,
            device_id=device_id,
            address=address,
            now_ms=self._clock.monotonic_ms(),
        )
        if isinstance(admitted, int):
            raise RateLimited(TOO_MANY_TRIES, retry_after_ms=admitted)
        stored = None if credentials is None else credentials.password_hash
        with self._in_queue(admitted):
            check = await self._passwords.check(stored, password, rank=admitted.rank)
        if not check.is_right or credentials is None or stored is None:
            raise InvalidCredentials
        user = credentials.user
        places = places_of(user.user_id, device_id, address)
        opened = await self._open(user, device_id, stored, check, places, is_new_user=False)
        self._logins.was_good(admitted, self._clock.monotonic_ms())
        return opened

    async def refresh(self, refresh_token: Secret, *, device_id: str) -> Refreshed:
        """New tokens for old. The refresh token is used up; its next one comes back.

        If the answer is lost, the same token gets the same answer for a while. A token that was
        used up before that is taken for stolen: the session ends (S-02). Raises
        InvalidRefreshToken, DeviceMismatch, RateLimited.
        """
        token = parse_refresh_token(refresh_token)
        if token is None:
            raise InvalidRefreshToken
        self._take(self._refreshes, token.session_id)
        following = token.following(self._refresh_key())
        now_ms = self._clock.wall_ms()
        origin = ORIGIN.get()
        outcome = await self._store.rotate_refresh(
            RotateRefresh(
                session_id=token.session_id,
                device_id=device_id.lower(),
                presented_hash=token.stored_hash(),
                next_hash=following.stored_hash(),
                grace_ms=self._options.refresh_grace_ms,
                life_ms=self._options.session_ms,
                life_ms_max=self._options.session_ms_max or None,
                address=origin.address,
                client=clean_client(origin.client),
            ),
            now_ms=now_ms,
        )
        match outcome:
            case RefreshRotated(session=session):
                return Refreshed(session=session, tokens=self._issue(session, following, now_ms))
            case RefreshOtherDevice():
                raise DeviceMismatch
            case RefreshReused(session=session):
                self._reused(session)
                raise InvalidRefreshToken
            case RefreshUnknown():
                await self._unknown(token, outcome)
                raise InvalidRefreshToken

    # Going out.

    async def logout(self, user_id: UserId, session_id: SessionId) -> None:
        """End the session that asks. One that is over already is fine, and so is one of an
        identity provider, who alone can end it."""
        if await self._store.revoke_session(user_id, session_id):
            self._on_revoked((session_id,))
            self._note_ended(user_id, "logout", session_id=session_id)

    async def sessions(self, user_id: UserId) -> list[Session]:
        """The user's sessions, bots' among them, the oldest first."""
        return await self._store.sessions(user_id, now_ms=self._clock.wall_ms())

    async def revoke_session(self, user_id: UserId, session_id: SessionId) -> None:
        """End one of the user's sessions. Raises SessionNotFound, also for somebody else's."""
        if not await self._store.revoke_session(user_id, session_id):
            raise SessionNotFound
        self._on_revoked((session_id,))
        self._note_ended(user_id, "revoked", session_id=session_id)

    async def revoke_sessions(self, user_id: UserId, *, keep: SessionId | None) -> int:
        """End all logins of the user but one (bots' sessions end one by one); how many."""
        ended = await self._store.revoke_sessions(user_id, keep=keep)
        self._ended(ended)
        if ended:
            self._note_ended(user_id, "revoked", count=len(ended))
        return len(ended)

    async def change_password(
        self, user_id: UserId, session_id: SessionId, *, old: Secret, new: Secret
    ) -> int:
        """Change one's own password and end all other logins; how many. Raises
        InvalidCredentials, InvalidOperation, RateLimited, TooManyLogins."""
        check_password(new)
        with self._failures_noted(AuditAction.PASSWORD_FAILED, actor=user_id) as attempt:
            attempt.user_id = user_id
            ended = await self._change_password(user_id, session_id, old=old, new=new)
        self._ended(ended)
        self._trail.record(
            AuditAction.PASSWORD_CHANGED, actor=user_id, target=user_id, count=len(ended)
        )
        return len(ended)

    async def _change_password(
        self, user_id: UserId, session_id: SessionId, *, old: Secret, new: Secret
    ) -> list[SessionId]:
        credentials = await self._own_credentials(user_id, old)
        admitted = self._logins.stranger(f"#{user_id}", self._clock.monotonic_ms())
        with self._in_queue(admitted):
            password_hash = await self._passwords.hash(new, rank=admitted.rank)
        return await self._store.set_password(
            user_id,
            password_hash,
            expected_hash=credentials.password_hash,
            keep=session_id,
            now_ms=self._clock.wall_ms(),
        )

    async def delete_account(self, user_id: UserId, *, password: Secret) -> None:
        """Delete one's own account: it leaves its groups, and all sessions end. Messages stay.

        It is deleted when this returns, even if groups remain to be left. Raises
        InvalidCredentials, RateLimited, Overloaded.
        """
        with self._failures_noted(AuditAction.PASSWORD_FAILED, actor=user_id) as attempt:
            attempt.user_id = user_id
            credentials = await self._own_credentials(user_id, password)
        await self._delete(credentials.user, actor=user_id)

    async def _own_credentials(self, user_id: UserId, password: Secret) -> Credentials:
        """What is stored of a person who shows the password once more. Such tries are limited, the
        good ones too, and wait in the queue as a stranger's login does."""
        key = f"#{user_id}"
        self._take(self._password_changes, key)
        credentials = await self._store.credentials_of(user_id)
        if credentials is None:
            raise UserNotFound(user_id)
        admitted = self._logins.stranger(key, self._clock.monotonic_ms())
        with self._in_queue(admitted._replace(counted_in=((self._password_changes, key),))):
            stored = credentials.password_hash
            check = await self._passwords.check(stored, password, rank=admitted.rank)
        if not check.is_right:
            raise InvalidCredentials
        return credentials

    # Inside.

    async def _open(
        self,
        user: User,
        device_id: str,
        password_hash: str,
        check: PasswordCheck,
        places: Sequence[str],
        *,
        is_new_user: bool,
    ) -> LoggedIn:
        now_ms = self._clock.wall_ms()
        origin = ORIGIN.get()
        session = Session(
            session_id=self._ids.session_id(now_ms),
            user_id=user.user_id,
            device_id=device_id,
            created_at_ms=now_ms,
            last_active_at_ms=now_ms,
            expires_at_ms=now_ms
            + min(
                self._options.session_ms, self._options.session_ms_max or self._options.session_ms
            ),
            address=origin.address,
            client=clean_client(origin.client),
        )
        refresh_token = RefreshToken(session.session_id, self._random_bytes(SECRET_BYTES))
        opened = await self._store.open_session(
            OpenSession(
                session=session,
                refresh_hash=refresh_token.stored_hash(),
                password_hash=password_hash,
                rehashed=check.rehashed,
                places=places,
            ),
            sessions_max=self._options.sessions_max,
            now_ms=now_ms,
        )
        self._ended(opened.ended)
        self._trail.record(
            AuditAction.LOGIN,
            actor=user.user_id,
            target=user.user_id,
            session_id=session.session_id,
        )
        if opened.ended:
            self._note_ended(user.user_id, "replaced", count=len(opened.ended))
        return LoggedIn(
            user=user,
            session=session,
            tokens=self._issue(session, refresh_token, now_ms),
            is_new_user=is_new_user,
        )

    def _issue(self, session: Session, refresh_token: RefreshToken, now_ms: int) -> Tokens:
        access_token, expires_at_ms = self._tokens.issue(
            session, life_ms=self._options.access_token_ms, now_ms=now_ms
        )
        return Tokens(
            access_token=access_token,
            access_expires_at_ms=expires_at_ms,
            refresh_token=refresh_token.encode(),
        )

    async def _unknown(self, token: RefreshToken, outcome: RefreshUnknown) -> None:
        """A token of an older generation ends the session; a guess changes nothing."""
        session, current_hash = outcome.session, outcome.refresh_hash
        if session is None or current_hash is None:
            return
        if await self._was_current(token, session, current_hash):
            await self._store.revoke_session(session.user_id, session.session_id)
            self._reused(session)

    async def _was_current(
        self, token: RefreshToken, session: Session, current_hash: bytes
    ) -> bool:
        """True if it was the session's token before. Others have a turn meanwhile: a guess costs
        as many steps as the session has generations."""
        successors = token.successors(self._refresh_key(), generations=session.generation)
        for number, successor in enumerate(successors, 1):
            if successor.is_stored_as(current_hash):
                return True
            if number % GENERATIONS_AT_ONCE == 0:
                await pause(0)
        return False

    def _reused(self, session: Session) -> None:
        _logger.warning(
            "auth.refresh_token_reuse: session %s of %s was ended",
            session.session_id,
            session.user_id,
        )
        self._on_revoked((session.session_id,))
        self._trail.record(
            AuditAction.SESSION_ENDED,
            actor=None,
            target=session.user_id,
            session_id=session.session_id,
            reason="refresh_token_reuse",
        )

    def _ended(self, session_ids: Sequence[SessionId]) -> None:
        if session_ids:
            self._on_revoked(session_ids)

    def _note_ended(
        self,
        user_id: UserId,
        reason: str,
        *,
        session_id: SessionId | None = None,
        count: int | None = None,
    ) -> None:
        self._trail.record(
            AuditAction.SESSION_ENDED,
            actor=user_id,
            target=user_id,
            session_id=session_id,
            reason=reason,
            count=count,
        )

    @contextmanager
    def _failures_noted(
        self, action: AuditAction, *, actor: UserId | None = None
    ) -> Iterator[_Attempt]:
        """Report a try that was refused. Of an account that does not exist not even the name is
        kept: people type their password there."""
        attempt = _Attempt()
        try:
            yield attempt
        except (Forbidden, InvalidCredentials, InvalidInvite, RateLimited) as error:
            self._trail.record(
                action, actor=actor, target=attempt.user_id, reason=error.code.value.lower()
            )
            raise

    def _refresh_key(self) -> bytes:
        return refresh_key(self._keys.oldest(self._clock.wall_ms()).secret)

    async def _check_invite(self, invite: Secret) -> None:
        now_ms = self._clock.wall_ms()
        if not await self._store.is_invite_open(invite_hash(invite), now_ms=now_ms):
            raise InvalidInvite

    @contextmanager
    def _in_queue(self, admitted: Admitted) -> Iterator[None]:
        """What the queue refuses was not tried: it counts for nothing, so a client that comes
        again as it was told is not worse off."""
        try:
            yield
        except TooManyLogins:
            self._logins.was_not_made(admitted, self._clock.monotonic_ms())
            raise

    def _throttle(self, burst: int, interval_ms: int) -> Throttle:
        keys_max = self._options.throttle.keys_max
        return Throttle(burst=burst, interval_ms=interval_ms, keys_max=keys_max)

    def _take(self, throttle: Throttle, key: str) -> None:
        wait_ms = throttle.take(key, self._clock.monotonic_ms())
        if wait_ms:
            raise RateLimited(TOO_MANY_TRIES, retry_after_ms=wait_ms)
