"""Tokens as an attacker would make them, and keys as an identity provider publishes them.

Written by hand, without the library that checks them: it refuses to make some of these.
"""

import base64
import hashlib
import hmac
import json
from functools import cache
from typing import Any

from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey


def base64url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def decoded_part(token: str, index: int) -> dict[str, Any]:
    part = token.split(".")[index]
    decoded: dict[str, Any] = json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
    return decoded


def signing_input(header: dict[str, Any], claims: dict[str, Any]) -> str:
    return ".".join(base64url(json.dumps(part).encode()) for part in (header, claims))


def hs256(claims: dict[str, Any], secret: bytes, **header: Any) -> str:
    message = signing_input({"alg": "HS256", "typ": "JWT"} | header, claims)
    return f"{message}.{base64url(hmac.digest(secret, message.encode(), hashlib.sha256))}"


def unsigned(claims: dict[str, Any], alg: str, signature: str = "") -> str:
    return f"{signing_input({'alg': alg, 'typ': 'JWT'}, claims)}.{signature}"


@cache
def rsa_key(name: str, bits: int = 2048) -> rsa.RSAPrivateKey:
    """Making one takes a while, so each is made once."""
    return rsa.generate_private_key(public_exponent=65537, key_size=bits)


@cache
def ed_key(name: str) -> Ed25519PrivateKey:
    return Ed25519PrivateKey.generate()


def rs256(claims: dict[str, Any], key: rsa.RSAPrivateKey, kid: str | None = None) -> str:
    header: dict[str, Any] = {"alg": "RS256"} if kid is None else {"alg": "RS256", "kid": kid}
    message = signing_input(header, claims)
    signature = key.sign(message.encode(), padding.PKCS1v15(), hashes.SHA256())
    return f"{message}.{base64url(signature)}"


def eddsa(claims: dict[str, Any], key: Ed25519PrivateKey, kid: str) -> str:
    message = signing_input({"alg": "EdDSA", "kid": kid}, claims)
    return f"{message}.{base64url(key.sign(message.encode()))}"


def rsa_pem(key: rsa.RSAPrivateKey) -> bytes:
    """The public key as text: what an attacker takes for an HS256 secret."""
    return key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )


def rsa_jwk(key: rsa.RSAPrivateKey, kid: str | None, **more: Any) -> dict[str, Any]:
    numbers = key.public_key().public_numbers()
    size = (numbers.n.bit_length() + 7) // 8
    return {
        "kty": "RSA",
        "kid": kid,
        "n": base64url(numbers.n.to_bytes(size)),
        "e": base64url(numbers.e.to_bytes(3)),
    } | more


def ed_jwk(key: Ed25519PrivateKey, kid: str, **more: Any) -> dict[str, Any]:
    raw = key.public_key().public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw)
    return {"kty": "OKP", "crv": "Ed25519", "kid": kid, "x": base64url(raw)} | more


def key_set(*keys: dict[str, Any]) -> bytes:
    return json.dumps({"keys": list(keys)}).encode()
