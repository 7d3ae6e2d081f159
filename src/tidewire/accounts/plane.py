"""Shared by the parts of the account plane: the store, clocks, keys, and how sessions end."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from tidewire.accounts.authenticator import TokenAuthenticator
from tidewire.accounts.keys import KeyRing
from tidewire.accounts.options import AccountOptions
from tidewire.accounts.passwords import Passwords
from tidewire.accounts.tokens import AccessTokens
from tidewire.domain.accounts import Session
from tidewire.domain.ids import SessionId, UserId
from tidewire.domain.users import User
from tidewire.ports.audit import AuditTrail
from tidewire.ports.runtime import Clock, IdSource, RandomBytes
from tidewire.ports.storage import Storage

OnRevoked = Callable[[Sequence[SessionId]], None]
"""Called on the event loop with the sessions that have ended, as soon as that is durable. Must not
raise."""


class Opened(msgspec.Struct, frozen=True, kw_only=True):
    """A session that was opened now, and its user."""

    user: User
    session: Session


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountPlane:
    """Given to every part; nothing in it changes."""

    store: Storage
    keys: KeyRing
    tokens: AccessTokens
    passwords: Passwords
    authenticator: TokenAuthenticator
    clock: Clock
    ids: IdSource
    random_bytes: RandomBytes
    options: AccountOptions
    trail: AuditTrail
    on_revoked: OnRevoked

    def new_user(self, username: str, display_name: str | None) -> User:
        """A user made now, who is not stored yet."""
        now_ms = self.clock.wall_ms()
        return User.made(self.ids.user_id(now_ms), username, display_name, now_ms=now_ms)

    def new_session(
        self, user_id: UserId, device_id: str | None, *, life_ms: int, now_ms: int, **facts: Any
    ) -> Session:
        """A session opened now, which is not stored yet; `facts` are its other fields."""
        return Session(
            session_id=self.ids.session_id(now_ms),
            user_id=user_id,
            device_id=device_id,
            created_at_ms=now_ms,
            last_active_at_ms=now_ms,
            expires_at_ms=now_ms + life_ms,
            **facts,
        )

    def revoked(self, session_ids: Sequence[SessionId]) -> None:
        """These sessions have ended: refuse their tokens, then close their sockets."""
        if session_ids:
            self.authenticator.revoked(session_ids)
            self.on_revoked(session_ids)
