"""Who somebody is: tokens in, people out."""

from typing import Protocol

import msgspec

from tidewire.domain.ids import SessionId, UserId


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """A person on a device, as a valid token says and the store confirms."""

    user_id: UserId
    session_id: SessionId
    device_id: str | None
    """None if the token names no device (an external identity provider)."""
    expires_at_ms: int


class Authenticator(Protocol):
    """Checks access tokens."""

    async def authenticate(self, token: str, *, device_id: str | None) -> Identity:
        """The person behind a token.

        Signature, algorithm, issuer, audience and time are checked, and that the session is not
        revoked and the user not disabled. If both the token and the caller name a device, they must
        be the same. Raises Unauthorized (reason: `invalid_token`, `token_expired`, `token_revoked`,
        `device_mismatch`), or Unavailable: the store or the identity provider cannot be asked.

        A session that is revoked later is refused by the next call. Whoever keeps a connection must
        also be told of it (`on_revoked`), and look again once the connection is made: it may have
        been revoked between the two.
        """
        ...
