"""Signatures of tokens, with PyJWT: each key goes with one algorithm, whatever a token says.

That is what keeps a token from choosing how it is checked: `none`, or a public key taken for a
shared secret. The time and the claims are not looked at here (`claims`).
"""

import base64
from typing import Any, Final

import jwt
import msgspec
from jwt.algorithms import RSAAlgorithm

from tidewire.domain.accounts import Secret
from tidewire.domain.errors import AuthFailure, Unauthorized

RSA_BITS_MIN: Final = 2048

HS256: Final = "HS256"
RS256: Final = "RS256"
EDDSA: Final = "EdDSA"

_jws: Final = jwt.PyJWS(algorithms=[HS256, RS256, EDDSA])


class VerifyingKey:
    """A key and the one algorithm that it is for."""

    __slots__ = ("_key", "algorithm")

    def __init__(self, algorithm: str, key: Any) -> None:
        self.algorithm = algorithm
        self._key = key

    def __repr__(self) -> str:
        return f"VerifyingKey({self.algorithm}, ***)"

    def verified_payload(self, token: str) -> bytes:
        """The payload of a token that this key has signed. Raises Unauthorized."""
        try:
            payload = _jws.decode(token, self._key, algorithms=[self.algorithm])
        except jwt.PyJWTError as error:
            raise Unauthorized(AuthFailure.INVALID_TOKEN) from error
        assert isinstance(payload, bytes)
        return payload


def secret_key(secret: Secret) -> VerifyingKey:
    """A shared secret: HS256 and nothing else."""
    return VerifyingKey(HS256, secret.reveal().encode())


def sign(claims: dict[str, object], secret: Secret, *, key_id: str) -> Secret:
    """A token with these claims, by HS256, that names its key."""
    payload = msgspec.json.encode(claims)
    key = secret.reveal().encode()
    return Secret(_jws.encode(payload, key, algorithm=HS256, headers={"kid": key_id}))


def key_id_of(token: str) -> str | None:
    """The key that a token says it was signed with. Raises Unauthorized if it is no token."""
    try:
        key_id = _jws.get_unverified_header(token).get("kid")
    except jwt.PyJWTError as error:
        raise Unauthorized(AuthFailure.INVALID_TOKEN) from error
    return key_id if isinstance(key_id, str) else None


class _JsonWebKey(msgspec.Struct, frozen=True):
    """The public members that we use; others, private ones among them, are not looked at."""

    kty: str
    kid: str | None = None
    alg: str | None = None
    use: str | None = None
    n: str | None = None
    e: str | None = None
    crv: str | None = None
    x: str | None = None


class _JsonWebKeySet(msgspec.Struct, frozen=True):
    keys: list[msgspec.Raw]


def read_key_set(document: bytes) -> dict[str | None, VerifyingKey]:
    """The keys of a JWKS document that we can use, by key id. Raises ValueError if it is none.

    Taken are RSA keys for RS256 and Ed25519 keys for EdDSA that are meant for signatures. All else
    is passed over, symmetric keys above all: a published secret is none.
    """
    try:
        published = msgspec.json.decode(document, type=_JsonWebKeySet).keys
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ValueError("the document is no JSON Web Key Set") from error
    keys: dict[str | None, VerifyingKey] = {}
    for raw in published:
        try:
            described = msgspec.json.decode(raw, type=_JsonWebKey)
            key = _verifying_key(described)
        except (msgspec.DecodeError, jwt.PyJWTError, ValueError):
            continue
        if key is not None:
            keys[described.kid] = key
    return keys


def _verifying_key(key: _JsonWebKey) -> VerifyingKey | None:
    if key.use not in (None, "sig"):
        return None
    if key.kty == "RSA" and key.alg in (None, RS256) and key.n and key.e:
        if _bits(key.n) < RSA_BITS_MIN:
            return None
        return VerifyingKey(RS256, RSAAlgorithm.from_jwk({"kty": "RSA", "n": key.n, "e": key.e}))
    if key.kty == "OKP" and key.crv == "Ed25519" and key.alg in (None, EDDSA) and key.x:
        public = jwt.PyJWK({"kty": "OKP", "crv": "Ed25519", "x": key.x}, EDDSA)
        return VerifyingKey(EDDSA, public.key)
    return None


def _bits(number: str) -> int:
    decoded = base64.urlsafe_b64decode(number + "=" * (-len(number) % 4))
    return int.from_bytes(decoded).bit_length()
