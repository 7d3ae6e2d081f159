"""Which published keys are taken, and that each is good for its own algorithm only."""

import pytest

from tests.unit.accounts.forgery import (
    ed_jwk,
    ed_key,
    eddsa,
    hs256,
    key_set,
    rs256,
    rsa_jwk,
    rsa_key,
    rsa_pem,
    unsigned,
)
from tidewire.accounts.signatures import key_id_of, read_key_set, secret_key
from tidewire.domain.accounts import Secret
from tidewire.domain.errors import Unauthorized

RSA = rsa_key("one")
ED = ed_key("one")
CLAIMS = {"iss": "them"}


def test_keys_are_taken_by_their_id() -> None:
    keys = read_key_set(key_set(rsa_jwk(RSA, "a"), ed_jwk(ED, "b"), rsa_jwk(RSA, None)))
    assert {kid: key.algorithm for kid, key in keys.items()} == {
        "a": "RS256",
        "b": "EdDSA",
        None: "RS256",
    }
    assert keys["a"].verified_payload(rs256(CLAIMS, RSA)) == b'{"iss": "them"}'
    assert keys["b"].verified_payload(eddsa(CLAIMS, ED, "b")) == b'{"iss": "them"}'
    assert "***" in repr(keys["a"])


@pytest.mark.parametrize(
    "key",
    [
        {"kty": "oct", "kid": "a", "k": "c2VjcmV0LXRoYXQtaXMtbG9uZy1lbm91Z2gtZm9yLWhz"},
        {"kty": "EC", "kid": "a", "crv": "P-256", "x": "AA", "y": "AA"},
        {"kty": "OKP", "kid": "a", "crv": "X25519", "x": "AA"},
        {"kty": "OKP", "kid": "a", "crv": "Ed25519", "x": "AA"},
        {"kty": "OKP", "kid": "a", "crv": "Ed25519"},
        {"kty": "RSA", "kid": "a", "n": "!!", "e": "AQAB"},
        {"kty": "RSA", "kid": "a", "n": "AQAB"},
        {"kty": 5},
        {},
        [],
        "RSA",
        rsa_jwk(RSA, "a", use="enc"),
        rsa_jwk(RSA, "a", alg="RS512"),
        rsa_jwk(RSA, "a", alg="HS256"),
        rsa_jwk(RSA, "a", alg="none"),
        rsa_jwk(rsa_key("short", 1024), "a"),
        ed_jwk(ED, "a", alg="RS256"),
    ],
)
def test_key_that_we_cannot_use_is_passed_over(key: dict[str, object]) -> None:
    assert list(read_key_set(key_set(key, ed_jwk(ED, "good")))) == ["good"]


def test_private_members_of_a_key_are_not_looked_at() -> None:
    keys = read_key_set(key_set(rsa_jwk(RSA, "a", d="AQAB", p="x", use="sig", alg="RS256")))
    assert keys["a"].verified_payload(rs256(CLAIMS, RSA))


@pytest.mark.parametrize("document", [b"", b"{}", b"[]", b'{"keys": {}}', b"<html>", b"\xff"])
def test_document_that_is_no_key_set_is_refused(document: bytes) -> None:
    with pytest.raises(ValueError, match="Key Set"):
        read_key_set(document)


def test_public_key_is_no_shared_secret() -> None:
    """The confusion: HS256 with the text of the published RSA key as its secret."""
    keys = read_key_set(key_set(rsa_jwk(RSA, "a"), ed_jwk(ED, "b")))
    published = rsa_jwk(RSA, "a")["n"].encode()
    for secret in (rsa_pem(RSA), published, ed_jwk(ED, "b")["x"].encode()):
        for key in keys.values():
            with pytest.raises(Unauthorized):
                key.verified_payload(hs256(CLAIMS, secret))


def test_key_is_good_for_its_own_algorithm_only() -> None:
    keys = read_key_set(key_set(rsa_jwk(RSA, "a"), ed_jwk(ED, "b")))
    for key, token in (
        (keys["a"], eddsa(CLAIMS, ED, "a")),
        (keys["b"], rs256(CLAIMS, RSA, "b")),
        (keys["a"], unsigned(CLAIMS, "none")),
        (keys["a"], rs256(CLAIMS, rsa_key("other"), "a")),
        (secret_key(Secret("s" * 40)), rs256(CLAIMS, RSA)),
    ):
        with pytest.raises(Unauthorized):
            key.verified_payload(token)


def test_key_id_is_what_the_token_says() -> None:
    assert key_id_of(rs256(CLAIMS, RSA, "a")) == "a"
    assert key_id_of(rs256(CLAIMS, RSA)) is None
    for token in ("", "a.b.c", hs256(CLAIMS, b"x" * 32, kid=5)):
        with pytest.raises(Unauthorized):
            key_id_of(token)
