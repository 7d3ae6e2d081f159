"""Signatures of tokens: each key goes with one algorithm, whatever a token says.

So a token cannot choose how it is checked: with `none`, or with a public key used as a shared
secret. The time and the claims are checked elsewhere (`claims`). PyJWT checks with public keys; a
shared secret is checked here, because every client that reconnects brings such a token. PyJWT is
imported for the first public key: with its dependencies it takes an eighth of a server's start.
"""

import base64
import hmac
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any, Final

import msgspec

from tidewire.domain.accounts import Secret
from tidewire.domain.errors import AuthFailure, Unauthorized

if TYPE_CHECKING:
    from jwt import PyJWS

RSA_BITS_MIN: Final = 2048
PUBLIC_KEYS_KEPT: Final = 64
"""How many parsed public keys are cached: one from another process is not parsed again."""

HS256: Final = "HS256"
RS256: Final = "RS256"
EDDSA: Final = "EdDSA"
_ALGORITHMS: Final = {("RSA", None): RS256, ("OKP", "Ed25519"): EDDSA}
"""By the type and the curve of a key; shared secrets are not among them."""


@cache
def _jws() -> "PyJWS":
    from jwt import PyJWS

    return PyJWS(algorithms=[RS256, EDDSA])


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
        from jwt import PyJWTError

        try:
            payload = _jws().decode(token, self._key, algorithms=[self.algorithm])
        except (PyJWTError, RecursionError) as error:
            raise Unauthorized(AuthFailure.INVALID_TOKEN) from error
        assert isinstance(payload, bytes)
        return payload


class _SecretKey(VerifyingKey):
    """A shared secret, for HS256 only."""

    __slots__ = ("_mac",)

    def __init__(self, key: bytes) -> None:
        super().__init__(HS256, key)
        # Copied for each token. `hmac.digest` would release the interpreter's lock, and the event
        # loop would have to win it back from busy threads.
        self._mac = hmac.new(key, digestmod="sha256")

    def verified_payload(self, token: str) -> bytes:
        header = _header_of(token)
        if header.alg != HS256 or header.crit is not msgspec.UNSET or not header.b64:
            raise Unauthorized(AuthFailure.INVALID_TOKEN)
        signed, _, signature = token.rpartition(".")
        mac = self._mac.copy()
        mac.update(signed.encode())
        made = _encoded(mac.digest())
        if not hmac.compare_digest(made, signature.encode()):
            raise Unauthorized(AuthFailure.INVALID_TOKEN)
        return _decoded(signed.rpartition(".")[2])


def secret_key(secret: Secret) -> VerifyingKey:
    return _SecretKey(secret.reveal().encode())


def sign(claims: dict[str, object], secret: Secret, *, key_id: str) -> Secret:
    """Make a token with these claims, signed by HS256, that names its key."""
    header = {"alg": HS256, "kid": key_id, "typ": "JWT"}
    signed = b".".join(_encoded(msgspec.json.encode(part)) for part in (header, claims))
    signature = _encoded(hmac.digest(secret.reveal().encode(), signed, "sha256"))
    return Secret((signed + b"." + signature).decode())


def key_id_of(token: str) -> str | None:
    """The id of the key that a token names, if any. Raises Unauthorized if it is no token."""
    key_id = _header_of(token).kid
    return key_id if isinstance(key_id, str) else None


class _Header(msgspec.Struct, frozen=True):
    """The fields of a token's header that are checked. `crit` names extensions that a reader must
    understand, and `b64` how the payload is written (RFC 7797): only the usual form is accepted."""

    alg: str
    kid: str | msgspec.UnsetType = msgspec.UNSET
    crit: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    b64: bool = True


_decode_header: Final = msgspec.json.Decoder(_Header).decode


def _header_of(token: str) -> _Header:
    try:
        return _decode_header(_decoded(token.partition(".")[0]))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Unauthorized(AuthFailure.INVALID_TOKEN) from error


def _encoded(part: bytes) -> bytes:
    return base64.urlsafe_b64encode(part).rstrip(b"=")


def _decoded(part: str) -> bytes:
    try:
        return base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))
    except ValueError as error:
        raise Unauthorized(AuthFailure.INVALID_TOKEN) from error


class _JsonWebKey(msgspec.Struct, frozen=True, omit_defaults=True):
    """The public members that are used here; others, also private ones, are ignored."""

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


class _PublicKey(VerifyingKey):
    """A public key. It is pickled in its published form, for another process of the server."""

    __slots__ = ("_described",)

    def __init__(self, algorithm: str, key: Any, described: _JsonWebKey) -> None:
        super().__init__(algorithm, key)
        self._described = described

    def __reduce__(self) -> tuple[object, ...]:
        return _public_key, (self._described,)


@lru_cache(maxsize=PUBLIC_KEYS_KEPT)
def _public_key(described: _JsonWebKey) -> VerifyingKey | None:
    """The key if it can be used here. Raises PyJWTError and ValueError if it is no key."""
    algorithm = _ALGORITHMS.get((described.kty, described.crv))
    is_meant = described.use in (None, "sig") and described.alg in (None, algorithm)
    if algorithm is None or not is_meant:
        return None
    from jwt import PyJWK

    key = PyJWK(msgspec.to_builtins(described), algorithm).key
    if algorithm == RS256 and key.key_size < RSA_BITS_MIN:
        return None
    return _PublicKey(algorithm, key, described)


def read_key_set(document: bytes) -> dict[str | None, VerifyingKey]:
    """The usable keys of a JWKS document, by key id. Raises ValueError if it is no such document.

    Usable are RSA keys for RS256 and Ed25519 keys for EdDSA that are meant for signatures. All
    others are ignored, above all symmetric keys: a published secret is no secret.
    """
    try:
        published = msgspec.json.decode(document, type=_JsonWebKeySet).keys
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError("the document is no JSON Web Key Set") from error
    from jwt import PyJWTError

    keys: dict[str | None, VerifyingKey] = {}
    for raw in published:
        try:
            described = msgspec.json.decode(raw, type=_JsonWebKey)
            key = _public_key(described)
        except (msgspec.DecodeError, PyJWTError, ValueError):
            continue
        if key is not None:
            keys[described.kid] = key
    return keys
