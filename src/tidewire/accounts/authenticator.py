"""Checks access tokens, ours and the identity provider's, and that their sessions are still valid.

Valid sessions are cached, so that a request costs a signature check and no read of the store. A
revocation in this process removes them at once; one in another process is seen when the cache entry
expires.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

import msgspec

from tidewire.accounts.claims import issuer_of
from tidewire.accounts.external import ExternalPerson, ExternalTokens
from tidewire.accounts.options import OWN_ISSUER
from tidewire.accounts.tokens import LEEWAY_MS, AccessTokens
from tidewire.domain.accounts import ExternalIdentity, external_session_id
from tidewire.domain.errors import AuthFailure, DeviceMismatch, Unauthorized, Unavailable
from tidewire.domain.ids import SessionId, UserId
from tidewire.domain.users import User, fallback_username
from tidewire.ports.runtime import Clock, IdSource
from tidewire.ports.services import Authenticator, Identity
from tidewire.ports.storage import Storage

TOUCH_MS: Final = 300_000
"""How precise the stored time of a session's last use is."""
SESSIONS_CACHED_MAX: Final = 20_000
"""How many sessions are known to be valid, or revoked, without a read of the store."""
SESSION_CACHED_MS: Final = 60_000
"""How long a cached session counts as valid. A revocation in this process takes effect at once."""

_logger: Final = logging.getLogger(__name__)

Key = TypeVar("Key")
Value = TypeVar("Value")


class _Known(msgspec.Struct, frozen=True):
    """The cache entry of a session of ours, or of a user of the identity provider."""

    user_id: UserId
    session_id: SessionId
    device_id: str | None
    good_until_ms: int


@dataclass(eq=False, kw_only=True)
class TokenAuthenticator:
    """Satisfies `ports.services.Authenticator`."""

    store: Storage
    tokens: AccessTokens
    external: ExternalTokens | None
    clock: Clock
    ids: IdSource

    def __post_init__(self) -> None:
        # All bounded by SESSIONS_CACHED_MAX, the least recently used first.
        self._good: dict[SessionId | ExternalIdentity, _Known] = {}
        self._revoked: dict[SessionId, None] = {}
        self._touched_at_ms: dict[SessionId, int] = {}
        self._to_touch: dict[SessionId, None] = {}

    async def authenticate(self, token: str, *, device_id: str | None) -> Identity:
        issuer = issuer_of(token)
        device_id = None if device_id is None else device_id.lower()
        if issuer == OWN_ISSUER:
            return await self._own(token, device_id)
        if self.external is not None and issuer == self.external.issuer:
            return await self._externals(await self.external.verify(token), device_id)
        raise Unauthorized(AuthFailure.INVALID_TOKEN)

    def is_revoked(self, session_id: SessionId) -> bool:
        return session_id in self._revoked

    def revoked(self, session_ids: Sequence[SessionId]) -> None:
        """These sessions have ended: from this instant their tokens are refused."""
        for session_id in session_ids:
            self._good.pop(session_id, None)
            self._to_touch.pop(session_id, None)
            self._touched_at_ms.pop(session_id, None)
            _keep(self._revoked, session_id, None)

    def forget(self) -> None:
        """Clear the cache, because the news of a revocation may have been missed."""
        self._good.clear()

    def take_touched(self) -> list[SessionId]:
        """The sessions in use since the last call; each is reported at most once per `TOUCH_MS`."""
        touched = list(self._to_touch)
        self._to_touch.clear()
        return touched

    # Our own tokens.

    async def _own(self, token: str, device_id: str | None) -> Identity:
        claims = self.tokens.verify(token, now_ms=self.clock.wall_ms())
        session_id = SessionId(claims.sid or "")
        if claims.did is not None and device_id is not None and claims.did != device_id:
            raise DeviceMismatch
        known = self._remembered(session_id) or await self._read_session(session_id)
        if known is None:
            raise Unauthorized(AuthFailure.TOKEN_REVOKED)
        if (known.user_id, known.device_id) != (claims.sub, claims.did):
            raise Unauthorized(AuthFailure.INVALID_TOKEN)
        _keep(self._good, session_id, known)
        self._touch(session_id)
        return _identity(known, claims.did, claims.expires_at_ms + LEEWAY_MS)

    async def _read_session(self, session_id: SessionId) -> _Known | None:
        """The session if it is valid. A session that is revoked during the read is not."""
        found = await self.store.session(session_id)
        if found is None or found.expires_at_ms <= self.clock.wall_ms():
            return None
        if session_id in self._revoked:
            return None
        return _Known(found.user_id, session_id, found.device_id, self._good_until_ms())

    # The identity provider's tokens.

    async def _externals(self, person: ExternalPerson, device_id: str | None) -> Identity:
        if person.device_id not in (None, device_id) and device_id is not None:
            raise DeviceMismatch
        known = self._remembered(person.identity) or await self._read_external(person)
        _keep(self._good, person.identity, known)
        return _identity(known, person.device_id, person.expires_at_ms)

    async def _read_external(self, person: ExternalPerson) -> _Known:
        """Find or make the user. Raises Unauthorized if disabled, also if during the read."""
        user = await self.store.external_user(person.identity)
        if user is None:
            user = await self._make_user(person)
        elif person.display_name not in (None, user.display_name) and user.disabled_at_ms is None:
            user = await self._renamed(user, person.display_name)
        session_id = external_session_id(user)
        if user.disabled_at_ms is not None or session_id in self._revoked:
            raise Unauthorized(AuthFailure.TOKEN_REVOKED)
        return _Known(user.user_id, session_id, None, self._good_until_ms())

    async def _make_user(self, person: ExternalPerson) -> User:
        now_ms = self.clock.wall_ms()
        user_id = self.ids.user_id(now_ms)
        fallback = fallback_username(user_id, person.username)
        username = person.username or fallback
        user = User.made(user_id, username, person.display_name, now_ms=now_ms)
        made = await self.store.ensure_external_user(
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
        """Store the name that the identity provider gives. If the store is unavailable, the user
        may still come in: the next read tries again."""
        assert display_name is not None
        try:
            return await self.store.set_display_name(
                user.user_id, display_name, now_ms=self.clock.wall_ms()
            )
        except Unavailable:
            return user

    # What is remembered.

    def _remembered(self, key: SessionId | ExternalIdentity) -> _Known | None:
        known = self._good.get(key)
        if known is None or known.good_until_ms <= self.clock.monotonic_ms():
            return None
        return None if known.session_id in self._revoked else known

    def _touch(self, session_id: SessionId) -> None:
        now_ms = self.clock.monotonic_ms()
        last_ms = self._touched_at_ms.get(session_id)
        if last_ms is None or now_ms - last_ms >= TOUCH_MS:
            _keep(self._touched_at_ms, session_id, now_ms)
            _keep(self._to_touch, session_id, None)

    def _good_until_ms(self) -> int:
        return self.clock.monotonic_ms() + SESSION_CACHED_MS


def _identity(known: _Known, device_id: str | None, expires_at_ms: int) -> Identity:
    return Identity(
        user_id=known.user_id,
        session_id=known.session_id,
        device_id=device_id,
        expires_at_ms=expires_at_ms,
    )


def _keep(memory: dict[Key, Value], key: Key, value: Value) -> None:
    """Put at the end; at the bound the least recently used one is forgotten."""
    memory.pop(key, None)
    memory[key] = value
    if len(memory) > SESSIONS_CACHED_MAX:
        del memory[next(iter(memory))]


_CONFORMS: type[Authenticator] = TokenAuthenticator
