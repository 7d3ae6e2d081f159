"""Our own access tokens: short-lived, signed with the server's secret, bound to session and device.

A token is valid only while its session is; the authenticator checks that.
"""

import base64
from typing import Final

from msgspec import structs

from tidewire.accounts.claims import Claims, check_claims, check_form, read_claims
from tidewire.accounts.keys import KeyRing
from tidewire.accounts.options import OWN_ISSUER
from tidewire.accounts.signatures import key_id_of, secret_key, sign
from tidewire.domain.accounts import Secret, Session
from tidewire.domain.errors import AuthFailure, Unauthorized
from tidewire.domain.ids import SESSION_PREFIX, USER_PREFIX, has_form
from tidewire.ports.runtime import RandomBytes

AUDIENCE: Final = "tidewire"
"""The audience of our tokens: a Tidewire server."""
LEEWAY_MS: Final = 5_000
"""How long after its expiry one of our own tokens is still accepted, because the clocks of two
servers differ a little."""
ISSUED_AHEAD_MS_MAX: Final = 24 * 3_600_000
"""How far our clock may have been set back since a token of ours was issued. The signature defends
against forgery; this bound ends tokens that were issued while the clock was far ahead."""


class AccessTokens:
    """Issues and checks access tokens."""

    def __init__(self, keys: KeyRing, random_bytes: RandomBytes) -> None:
        self._keys = keys
        self._random_bytes = random_bytes

    def issue(self, session: Session, *, life_ms: int, now_ms: int) -> tuple[Secret, int]:
        """A token of this session, and when it expires: never later than the session."""
        issued_at_s = now_ms // 1000
        expires_at_s = min(now_ms + life_ms, session.expires_at_ms) // 1000
        claims: dict[str, object] = {
            "iss": OWN_ISSUER,
            "aud": AUDIENCE,
            "sub": session.user_id,
            "sid": session.session_id,
            "iat": issued_at_s,
            "exp": expires_at_s,
            "jti": base64.urlsafe_b64encode(self._random_bytes(15)).decode(),
        }
        if session.device_id is not None:
            claims["did"] = session.device_id
        key = self._keys.signing(now_ms)
        return sign(claims, key.secret, key_id=key.key_id), expires_at_s * 1000

    def verify(self, token: str, *, now_ms: int) -> Claims:
        """The claims of a token of ours that is valid now. Raises Unauthorized."""
        claims = check_claims(
            read_claims(self._verified_payload(check_form(token), now_ms)),
            issuer=OWN_ISSUER,
            audience=AUDIENCE,
            leeway_ms=LEEWAY_MS,
            now_ms=now_ms,
            issued_ahead_ms_max=ISSUED_AHEAD_MS_MAX,
        )
        if not has_form(claims.sub, USER_PREFIX) or not has_form(claims.sid or "", SESSION_PREFIX):
            raise Unauthorized(AuthFailure.INVALID_TOKEN)
        return _lived_at(claims, now_ms)

    def _verified_payload(self, token: str, now_ms: int) -> bytes:
        """The payload, checked with the key that the token names; a token of 0.1.0 names none, so
        every key is tried."""
        for key in self._keys.checking(key_id_of(token), now_ms):
            try:
                return secret_key(key.secret).verified_payload(token)
            except Unauthorized:
                continue
        raise Unauthorized(AuthFailure.INVALID_TOKEN)


def _lived_at(claims: Claims, now_ms: int) -> Claims:
    """If our clock was set back since the token was issued, make it expire that much earlier, so
    that it lives no longer than a token issued now."""
    ahead_s = 0 if claims.iat is None else claims.iat - now_ms / 1000
    return claims if ahead_s <= 0 else structs.replace(claims, exp=claims.exp - ahead_s)
