"""Logging in and out: accounts, sessions, their tokens, and how they end.

Each method is one or two acts of the store; this file gives them ids, times, hashes and bounds.
Every end of a session is reported at once (`AccountPlane.revoked`), so that its sockets close.
"""

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Final

import msgspec

from tidewire.accounts.codes import (
    SECRET_BYTES,
    RefreshToken,
    invite_hash,
    parse_refresh_token,
    refresh_key,
)
from tidewire.accounts.deletion import AccountDeletion
from tidewire.accounts.login_limits import Admitted, LoginLimits, places_of
from tidewire.accounts.options import Registration
from tidewire.accounts.plane import AccountPlane, Opened
from tidewire.domain import errors
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
from tidewire.domain.addresses import address_key
from tidewire.domain.audit import AuditAction
from tidewire.domain.ids import SessionId, UserId, is_safe_token
from tidewire.domain.rates import Limiter, SharedView
from tidewire.domain.users import User, check_chosen_display_name, check_chosen_username
from tidewire.ports.audit import ORIGIN
from tidewire.ports.runtime import pause

TOO_MANY_TRIES: Final = "too many tries; wait a while"
REFRESH_GRACE_MS: Final = 30_000
"""How long a refresh whose answer was lost may be repeated (S-02)."""
GENERATIONS_AT_ONCE: Final = 64
"""How many generations of a refresh token are computed in one turn of the loop."""

_logger: Final = logging.getLogger(__name__)


class Tokens(msgspec.Struct, frozen=True, kw_only=True):
    """The tokens that a device gets to prove its identity."""

    access_token: Secret
    access_expires_at_ms: int
    refresh_token: Secret


class LoggedIn(Opened, frozen=True, kw_only=True):
    tokens: Tokens
    is_new_user: bool


class Refreshed(msgspec.Struct, frozen=True, kw_only=True):
    session: Session
    tokens: Tokens


class AccountService:
    """The actions of users on their own accounts."""

    def __init__(self, plane: AccountPlane, deletion: AccountDeletion) -> None:
        self._plane = plane
        self._store = plane.store
        self._clock = plane.clock
        self._options = plane.options
        self._passwords = plane.passwords
        self._deletion = deletion
        self._note_ended = partial(plane.trail.record, AuditAction.SESSION_ENDED)
        self._logins = LoginLimits(plane.options.throttle)

    @property
    def registration(self) -> Registration:
        """Who may make an account."""
        return self._options.registration

    def share_limits(self) -> dict[str, SharedView]:
        """Count tries over all processes."""
        return self._logins.share()

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

        Raises InvalidOperation (an unusable name or password), Forbidden (closed, or an invite is
        needed), InvalidInvite, UsernameTaken, RateLimited, TooManyLogins.
        """
        with self._failures_noted(AuditAction.REGISTER_FAILED):
            device_id = check_device_id(device_id)
            check_chosen_username(username)
            check_chosen_display_name(display_name or username)
            check_password(password)
            invite = self._needed_invite(invite)
            address = address_key(client_ip)
            self._take(self._logins.registrations, address)
            if invite is not None:
                # Before any hash or answer about names: nothing is revealed without an invite.
                await self._check_invite(invite)
            admitted = self._logins.stranger(address, self._clock.monotonic_ms())
            with self._in_queue(admitted):
                password_hash = await self._passwords.hash(password, rank=admitted.rank)
            user = self._plane.new_user(username, display_name)
            account = NewAccount(
                user=user,
                password_hash=password_hash,
                invite_hash=None if invite is None else invite_hash(invite),
            )
            user = await self._store.register(account, now_ms=user.created_at_ms)
            self._plane.trail.record(
                AuditAction.ACCOUNT_CREATED, actor=user.user_id, target=user.user_id
            )
            places = places_of(user.user_id, device_id, address)
            return await self._open(user, device_id, password_hash, places, is_new_user=True)

    async def login(
        self, username: str, password: Secret, *, device_id: str, client_ip: str
    ) -> LoggedIn:
        """Log in on a device. Its earlier session ends; beyond the bound, so does the session that
        was not in use for the longest time.

        A name without an account takes as long as a wrong password and gets the same answer. Raises
        InvalidCredentials, Forbidden (disabled), RateLimited, TooManyLogins, InvalidOperation (not
        a device id).
        """
        device_id = check_device_id(device_id)
        address = address_key(client_ip)
        # A text that cannot be a name has no account, but the check takes as long.
        credentials = await self._store.credentials(username) if is_safe_token(username) else None
        target = None if credentials is None else credentials.user.user_id
        with self._failures_noted(AuditAction.LOGIN_FAILED, target=target):
            admitted = self._logins.admit(
                username,
                credentials,
                device_id=device_id,
                address=address,
                now_ms=self._clock.monotonic_ms(),
            )
            if isinstance(admitted, int):
                raise errors.RateLimited(TOO_MANY_TRIES, retry_after_ms=admitted)
            stored = None if credentials is None else credentials.password_hash
            with self._in_queue(admitted):
                check = await self._passwords.check(stored, password, rank=admitted.rank)
            if not check.is_right or credentials is None or stored is None:
                raise errors.InvalidCredentials
            user = credentials.user
            places = places_of(user.user_id, device_id, address)
            opened = await self._open(user, device_id, stored, places, check.rehashed)
            self._logins.was_good(admitted, self._clock.monotonic_ms())
            return opened

    async def refresh(self, refresh_token: Secret, *, device_id: str) -> Refreshed:
        """Replace a session's tokens. The refresh token is used up, and the next one is returned.

        If the answer is lost, the same token gets the same answer for a while. An older used token
        counts as stolen: the session ends (S-02). Raises InvalidRefreshToken, DeviceMismatch,
        RateLimited.
        """
        token = parse_refresh_token(refresh_token)
        if token is None:
            raise errors.InvalidRefreshToken
        self._take(self._logins.refreshes, token.session_id)
        following = token.following(self._refresh_key())
        now_ms = self._clock.wall_ms()
        origin = ORIGIN.get()
        outcome = await self._store.rotate_refresh(
            RotateRefresh(
                session_id=token.session_id,
                device_id=device_id.lower(),
                presented_hash=token.stored_hash(),
                next_hash=following.stored_hash(),
                grace_ms=REFRESH_GRACE_MS,
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
                raise errors.DeviceMismatch
            case RefreshReused(session=session):
                self._reused(session)
                raise errors.InvalidRefreshToken
            case RefreshUnknown():
                await self._unknown(token, outcome)
                raise errors.InvalidRefreshToken

    # Going out.

    async def logout(self, user_id: UserId, session_id: SessionId) -> None:
        """End the session of the caller. Does nothing if it has ended already, or if it belongs to
        an identity provider, which alone can end it."""
        await self._end(user_id, session_id, "logout")

    async def sessions(self, user_id: UserId) -> list[Session]:
        """The user's sessions, bots' among them, the oldest first."""
        return await self._store.sessions(user_id, now_ms=self._clock.wall_ms())

    async def revoke_session(self, user_id: UserId, session_id: SessionId) -> None:
        """End one of the user's sessions. Raises SessionNotFound, also for another user's."""
        if not await self._end(user_id, session_id, "revoked"):
            raise errors.SessionNotFound

    async def _end(self, user_id: UserId, session_id: SessionId, reason: str) -> bool:
        is_ended = await self._store.revoke_session(user_id, session_id)
        if is_ended:
            self._plane.revoked((session_id,))
            self._note_ended(actor=user_id, target=user_id, reason=reason, session_id=session_id)
        return is_ended

    async def revoke_sessions(self, user_id: UserId, *, keep: SessionId | None) -> int:
        """End all logins of the user but `keep`; return how many. Bots' sessions end one by one."""
        ended = await self._store.revoke_sessions(user_id, keep=keep)
        self._plane.revoked(ended)
        if ended:
            self._note_ended(actor=user_id, target=user_id, reason="revoked", count=len(ended))
        return len(ended)

    async def change_password(
        self, user_id: UserId, session_id: SessionId, *, old: Secret, new: Secret
    ) -> int:
        """Change one's own password and end all other logins; return how many. Raises
        InvalidCredentials, InvalidOperation, RateLimited, TooManyLogins."""
        check_password(new)
        with self._failures_noted(AuditAction.PASSWORD_FAILED, actor=user_id):
            credentials = await self._own_credentials(user_id, old)
            admitted = self._logins.stranger(f"#{user_id}", self._clock.monotonic_ms())
            with self._in_queue(admitted):
                password_hash = await self._passwords.hash(new, rank=admitted.rank)
            ended = await self._store.set_password(
                user_id,
                password_hash,
                expected_hash=credentials.password_hash,
                keep=session_id,
                now_ms=self._clock.wall_ms(),
            )
        self._plane.revoked(ended)
        self._plane.trail.record(
            AuditAction.PASSWORD_CHANGED, actor=user_id, target=user_id, count=len(ended)
        )
        return len(ended)

    async def delete_account(
        self, user_id: UserId, *, password: Secret, erases: bool = False
    ) -> None:
        """Delete one's own account: it leaves its groups, and all sessions end. Messages stay,
        unless it `erases` them.

        The account is deleted when this returns, even if there are groups left to leave and
        messages to erase. Raises InvalidCredentials, RateLimited, Overloaded.
        """
        with self._failures_noted(AuditAction.PASSWORD_FAILED, actor=user_id):
            credentials = await self._own_credentials(user_id, password)
        await self._deletion.delete(credentials.user, actor=user_id, erases=erases)

    async def _own_credentials(self, user_id: UserId, password: Secret) -> Credentials:
        """The stored credentials of a user who gives the password once more. Such tries are
        limited, also the right ones, and wait in the queue as a stranger's login does."""
        key = f"#{user_id}"
        self._take(self._logins.password_changes, key)
        credentials = await self._store.credentials_of(user_id)
        if credentials is None:
            raise errors.UserNotFound(user_id)
        admitted = self._logins.stranger(key, self._clock.monotonic_ms())
        with self._in_queue(admitted._replace(counted_in=((self._logins.password_changes, key),))):
            stored = credentials.password_hash
            check = await self._passwords.check(stored, password, rank=admitted.rank)
        if not check.is_right:
            raise errors.InvalidCredentials
        return credentials

    # Inside.

    def _needed_invite(self, invite: Secret | None) -> Secret | None:
        """The invite if one is needed here. Raises Forbidden."""
        if self._options.registration is Registration.CLOSED:
            raise errors.Forbidden("registration is closed; ask the operator of this server")
        if self._options.registration is Registration.OPEN:
            return None
        if invite is None:
            raise errors.Forbidden("an invite is needed to register here")
        return invite

    async def _open(
        self,
        user: User,
        device_id: str,
        password_hash: str,
        places: Sequence[str],
        rehashed: str | None = None,
        *,
        is_new_user: bool = False,
    ) -> LoggedIn:
        now_ms = self._clock.wall_ms()
        life_ms, life_ms_max = self._options.session_ms, self._options.session_ms_max
        origin = ORIGIN.get()
        session = self._plane.new_session(
            user.user_id,
            device_id,
            life_ms=min(life_ms, life_ms_max or life_ms),
            now_ms=now_ms,
            address=origin.address,
            client=clean_client(origin.client),
        )
        refresh_token = RefreshToken(session.session_id, self._plane.random_bytes(SECRET_BYTES))
        opened = await self._store.open_session(
            OpenSession(
                session=session,
                refresh_hash=refresh_token.stored_hash(),
                password_hash=password_hash,
                rehashed=rehashed,
                places=places,
            ),
            sessions_max=self._options.sessions_max,
            now_ms=now_ms,
        )
        self._plane.revoked(opened.ended)
        self._plane.trail.record(
            AuditAction.LOGIN,
            actor=user.user_id,
            target=user.user_id,
            session_id=session.session_id,
        )
        if opened.ended:
            self._note_ended(
                actor=user.user_id,
                target=user.user_id,
                reason="replaced",
                count=len(opened.ended),
            )
        return LoggedIn(
            user=user,
            session=session,
            tokens=self._issue(session, refresh_token, now_ms),
            is_new_user=is_new_user,
        )

    def _issue(self, session: Session, refresh_token: RefreshToken, now_ms: int) -> Tokens:
        access_token, expires_at_ms = self._plane.tokens.issue(
            session, life_ms=self._options.access_token_ms, now_ms=now_ms
        )
        return Tokens(
            access_token=access_token,
            access_expires_at_ms=expires_at_ms,
            refresh_token=refresh_token.encode(),
        )

    async def _unknown(self, token: RefreshToken, outcome: RefreshUnknown) -> None:
        """If the token is of an older generation, end the session; a guess changes nothing."""
        session, current_hash = outcome.session, outcome.refresh_hash
        if session is None or current_hash is None:
            return
        if await self._was_current(token, session, current_hash):
            await self._store.revoke_session(session.user_id, session.session_id)
            self._reused(session)

    async def _was_current(
        self, token: RefreshToken, session: Session, current_hash: bytes
    ) -> bool:
        """True if it was the session's token before. A guess costs one step for each generation of
        the session, so other tasks get their turn in between."""
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
        self._plane.revoked((session.session_id,))
        self._note_ended(
            actor=None,
            target=session.user_id,
            reason="refresh_token_reuse",
            session_id=session.session_id,
        )

    @contextmanager
    def _failures_noted(
        self, action: AuditAction, *, actor: UserId | None = None, target: UserId | None = None
    ) -> Iterator[None]:
        """Record a try that was refused. If the account does not exist, not even the name is
        recorded: people type their password there."""
        try:
            yield
        except (
            errors.Forbidden,
            errors.InvalidCredentials,
            errors.InvalidInvite,
            errors.RateLimited,
        ) as error:
            reason = error.code.value.lower()
            self._plane.trail.record(action, actor=actor, target=actor or target, reason=reason)
            raise

    def _refresh_key(self) -> bytes:
        return refresh_key(self._plane.keys.oldest(self._clock.wall_ms()).secret)

    async def _check_invite(self, invite: Secret) -> None:
        now_ms = self._clock.wall_ms()
        if not await self._store.is_invite_open(invite_hash(invite), now_ms=now_ms):
            raise errors.InvalidInvite

    @contextmanager
    def _in_queue(self, admitted: Admitted) -> Iterator[None]:
        """If the queue refuses a try, do not count it, so that a client that tries again as told
        has no disadvantage."""
        try:
            yield
        except errors.TooManyLogins:
            self._logins.was_not_made(admitted, self._clock.monotonic_ms())
            raise

    def _take(self, limiter: Limiter[str], key: str) -> None:
        wait_ms = limiter.take(key, self._clock.monotonic_ms())
        if wait_ms:
            raise errors.RateLimited(TOO_MANY_TRIES, retry_after_ms=wait_ms)
