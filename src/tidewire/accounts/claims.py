"""Reads the claims of a token, and checks whether they are valid here and now. PURE.

This module checks no signature: no claim can be trusted before its signature was checked.
"""

import base64
import binascii
from typing import Final

import msgspec

from tidewire.domain.errors import AuthFailure, Unauthorized

TOKEN_CHARACTERS_MAX: Final = 8 * 1024
_SECONDS_MAX: Final = 1 << 40
"""Some 35 000 years: a later time is nonsense."""


class Claims(msgspec.Struct, frozen=True, kw_only=True):
    """The claims of RFC 7519 used here, and our own: `sid` is the session, `did` the device."""

    iss: str
    sub: str
    aud: str | list[str]
    exp: int | float
    iat: int | float | None = None
    nbf: int | float | None = None
    jti: str | None = None
    sid: str | None = None
    did: str | None = None

    @property
    def expires_at_ms(self) -> int:
        return int(self.exp * 1000)


class _Issuer(msgspec.Struct, frozen=True):
    iss: str


_decode_claims: Final = msgspec.json.Decoder(Claims).decode
_decode_issuer: Final = msgspec.json.Decoder(_Issuer).decode
_decode_all: Final = msgspec.json.Decoder(dict[str, object]).decode


def check_form(token: str) -> str:
    """Refuse a text that does not have the form of a token, before any other work on it."""
    if len(token) > TOKEN_CHARACTERS_MAX or not token.isascii() or token.count(".") != 2:
        raise Unauthorized(AuthFailure.INVALID_TOKEN)
    return token


def issuer_of(token: str) -> str:
    """The issuer that a token claims, unchecked: use it only to choose the keys to check with."""
    payload = check_form(token).split(".")[1]
    try:
        return _decode_issuer(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4))).iss
    except (binascii.Error, msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Unauthorized(AuthFailure.INVALID_TOKEN) from error


def read_claims(payload: bytes) -> Claims:
    """The claims of a token whose signature is good, with all required ones present."""
    try:
        return _decode_claims(payload)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Unauthorized(AuthFailure.INVALID_TOKEN) from error


def all_claims(payload: bytes) -> dict[str, object]:
    """All claims of a token whose signature is good, also those that `Claims` does not have."""
    try:
        return _decode_all(payload)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Unauthorized(AuthFailure.INVALID_TOKEN) from error


def check_claims(
    claims: Claims,
    *,
    issuer: str,
    audience: str,
    leeway_ms: int,
    now_ms: int,
    issued_ahead_ms_max: int | None = None,
) -> Claims:
    """Check the issuer, the audience and the times of a token; clocks may differ by `leeway_ms`.
    `issued_ahead_ms_max`: how far in the future it may have been issued; default: `leeway_ms`."""
    audiences = [claims.aud] if isinstance(claims.aud, str) else claims.aud
    if claims.iss != issuer or audience not in audiences or not claims.sub:
        raise Unauthorized(AuthFailure.INVALID_TOKEN)
    times = [claims.exp, *(time for time in (claims.iat, claims.nbf) if time is not None)]
    if not all(0 <= time <= _SECONDS_MAX for time in times):
        raise Unauthorized(AuthFailure.INVALID_TOKEN)
    # Issued or valid later than now: one of the two clocks is wrong, or the token is forged.
    issued_ms_max = now_ms + (leeway_ms if issued_ahead_ms_max is None else issued_ahead_ms_max)
    if claims.iat is not None and claims.iat * 1000 > issued_ms_max:
        raise Unauthorized(AuthFailure.INVALID_TOKEN)
    if claims.nbf is not None and claims.nbf * 1000 > now_ms + leeway_ms:
        raise Unauthorized(AuthFailure.INVALID_TOKEN)
    if claims.expires_at_ms + leeway_ms <= now_ms:
        raise Unauthorized(AuthFailure.TOKEN_EXPIRED, expired_at_ms=claims.expires_at_ms)
    return claims
