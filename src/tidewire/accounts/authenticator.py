"""Checks access tokens, ours and the identity provider's, and that their sessions still live.

Sessions that were found good are remembered, so that a request costs a signature and no read. A
revocation in this process drops them at once; one that happened elsewhere is seen when the memory
has aged.
"""

import logging
from collections.abc import Sequence
from typing import Final, Protocol, TypeVar

import msgspec

from tidewire.accounts.claims import Claims, issuer_of
from tidewire.accounts.external import ExternalPerson, ExternalTokens
from tidewire.accounts.options import AccountOptions
from tidewire.accounts.tokens import AccessTokens
from tidewire.domain.accounts import ExternalIdentity, external_session_id
from tidewire.domain.errors import AuthFailure, DeviceMismatch, Unauthorized, Unavailable
from tidewire.domain.ids import SessionId, UserId
from tidewire.domain.users import User, fallback_username
from tidewire.ports.accounts import AccountStore
from tidewire.ports.identity import Authenticator, Identity
from tidewire.ports.runtime import Clock, IdSource
from tidewire.ports.storage import UserStore

_logger: Final = logging.getLogger(__name__)

Key = TypeVar("Key")
Value = TypeVar("Value")


class AuthenticatorStore(AccountStore, UserStore, Protocol):
    """What of the store is needed here."""


class _Session(msgspec.Struct, frozen=True):
    """What is remembered of a good session."""

    user_id: UserId
    device_id: str | None
    good_until_ms: int


class _External(msgspec.Struct, frozen=True):
    """What is remembered of a user of the identity provider."""

    user_id: UserId
    session_id: SessionId
    good_until_ms: int


class TokenAuthenticator:
    """Satisfies `ports.identity.Authenticator`."""

    def __init__(
        self,
        *,
        store: AuthenticatorStore,
        tokens: AccessTokens,
        external: ExternalTokens | None,
        clock: Clock,
        ids: IdSource,
        options: AccountOptions,
    ) -> None:
        """Raises ValueError if the identity provider goes by our own name."""
        if external is not None and external.issuer == tokens.issuer:
            raise ValueError(f"the identity provider cannot be called {tokens.issuer!r}: we are")
        self._store = store
        self._tokens = tokens
        self._external = external
        self._clock = clock
        self._ids = ids
        self._options = options
        # All bounded by sessions_cached_max, the least recently used first.
        self._good: dict[SessionId, _Session] = {}
        self._externals_known: dict[ExternalIdentity, _External] = {}
        self._revoked: dict[SessionId, None] = {}
        self._touched_at_ms: dict[SessionId, int] = {}
        self._to_touch: dict[SessionId, None] = {}

    async def authenticate(self, token: str, *, device_id: str | None) -> Identity:
        issuer = issuer_of(token)
        device_id = None if device_id is None else device_id.lower()
        if issuer == self._tokens.issuer:
            return await self._own(token, device_id)
        if self._external is not None and issuer == self._external.issuer:
            return await self._externals(await self._external.verify(token), device_id)
        raise Unauthorized(AuthFailure.INVALID_TOKEN)

    def is_revoked(self, session_id: SessionId) -> bool:
        return session_id in self._revoked

    def revoked(self, session_ids: Sequence[SessionId]) -> None:
        """These sessions have ended: from this instant their tokens are refused."""
        for session_id in session_ids:
            self._good.pop(session_id, None)
            self._to_touch.pop(session_id, None)
            self._touched_at_ms.pop(session_id, None)
            self._keep(self._revoked, session_id, None)

    def forget(self) -> None:
        """Word of a revocation may have been missed: every session is looked up again."""
        self._good.clear()
        self._externals_known.clear()

    def take_touched(self) -> list[SessionId]:
        """The sessions that were in use since the last time, each only now and then."""
        touched = list(self._to_touch)
        self._to_touch.clear()
        return touched

    # Our own tokens.

    async def _own(self, token: str, device_id: str | None) -> Identity:
        claims = self._tokens.verify(token, now_ms=self._clock.wall_ms())
        session_id = SessionId(claims.sid or "")
        if claims.did is not None and device_id is not None and claims.did != device_id:
            raise DeviceMismatch
        session = self._good.get(session_id)
        if session is None or session.good_until_ms <= self._clock.monotonic_ms():
            session = await self._read_session(session_id)
        if session is None:
            raise Unauthorized(AuthFailure.TOKEN_REVOKED)
        if (session.user_id, session.device_id) != (claims.sub, claims.did):
            raise Unauthorized(AuthFailure.INVALID_TOKEN)
        self._keep(self._good, session_id, session)
        self._touch(session_id)
        return self._identity(claims, session_id, session)

    def _identity(self, claims: Claims, session_id: SessionId, session: _Session) -> Identity:
        return Identity(
            user_id=session.user_id,
            session_id=session_id,
            device_id=claims.did,
            expires_at_ms=claims.expires_at_ms + self._options.leeway_ms,
        )

    async def _read_session(self, session_id: SessionId) -> _Session | None:
        """The session if it lives. One that is revoked while it is read does not."""
        found = await self._store.session(session_id)
        if found is None or found.expires_at_ms <= self._clock.wall_ms():
            return None
        if session_id in self._revoked:
            return None
        return _Session(found.user_id, found.device_id, self._good_until_ms())

    # The identity provider's tokens.

    async def _externals(self, person: ExternalPerson, device_id: str | None) -> Identity:
        if person.device_id not in (None, device_id) and device_id is not None:
            raise DeviceMismatch
        known = self._externals_known.get(person.identity)
        if known is None or not self._is_good(known):
            known = await self._read_external(person)
        self._keep(self._externals_known, person.identity, known)
        return Identity(
            user_id=known.user_id,
            session_id=known.session_id,
            device_id=person.device_id,
            expires_at_ms=person.expires_at_ms,
        )

    def _is_good(self, known: _External) -> bool:
        is_fresh = known.good_until_ms > self._clock.monotonic_ms()
        return is_fresh and known.session_id not in self._revoked

    async def _read_external(self, person: ExternalPerson) -> _External:
        """The user, made if need be. Raises Unauthorized if he is disabled, also meanwhile."""
        user = await self._store.external_user(person.identity)
        if user is None:
            user = await self._make_user(person)
        elif person.display_name not in (None, user.display_name) and user.disabled_at_ms is None:
            user = await self._renamed(user, person.display_name)
        session_id = external_session_id(user)
        if user.disabled_at_ms is not None or session_id in self._revoked:
            raise Unauthorized(AuthFailure.TOKEN_REVOKED)
        return _External(user.user_id, session_id, self._good_until_ms())

    async def _make_user(self, person: ExternalPerson) -> User:
        now_ms = self._clock.wall_ms()
        user_id = self._ids.user_id(now_ms)
        fallback = fallback_username(user_id, person.username)
        username = person.username or fallback
        user = User(
            user_id=user_id,
            username=username,
            display_name=person.display_name or username,
            created_at_ms=now_ms,
            updated_at_ms=now_ms,
        )
        made = await self._store.ensure_external_user(
            person.identity, user, fallback_username=fallback
        )
        if made.username != username:
            _logger.warning(
                "the name %r of a new user of the identity provider is taken: the account %s is "
                "called %r. To decide it beforehand: tidewire users add NAME --external-sub SUB",
                username,
                made.user_id,
                made.username,
            )
        return made

    async def _renamed(self, user: User, display_name: str | None) -> User:
        """Who vouches for people says what they are called. A store that cannot write keeps nobody
        out: the next look tries again."""
        assert display_name is not None
        try:
            return await self._store.set_display_name(
                user.user_id, display_name, now_ms=self._clock.wall_ms()
            )
        except Unavailable:
            return user

    # What is remembered.

    def _touch(self, session_id: SessionId) -> None:
        now_ms = self._clock.monotonic_ms()
        last_ms = self._touched_at_ms.get(session_id)
        if last_ms is None or now_ms - last_ms >= self._options.touch_ms:
            self._keep(self._touched_at_ms, session_id, now_ms)
            self._keep(self._to_touch, session_id, None)

    def _good_until_ms(self) -> int:
        return self._clock.monotonic_ms() + self._options.session_cached_ms

    def _keep(self, memory: dict[Key, Value], key: Key, value: Value) -> None:
        """Put at the end; at the bound the least recently used one is forgotten."""
        memory.pop(key, None)
        memory[key] = value
        if len(memory) > self._options.sessions_cached_max:
            del memory[next(iter(memory))]


_CONFORMS: type[Authenticator] = TokenAuthenticator
