"""Which published keys are taken, and that each is good for its own algorithm only."""

import pickle
import subprocess
import sys

import pytest

from tests.unit.accounts.forgery import (
    base64url,
    ed_jwk,
    ed_key,
    eddsa,
    hs256,
    key_set,
    rs256,
    rsa_jwk,
    rsa_key,
    rsa_pem,
    signing_input,
    unsigned,
)
from tidewire.accounts.signatures import key_id_of, read_key_set, secret_key
from tidewire.domain.accounts import Secret
from tidewire.domain.errors import Unauthorized

RSA = rsa_key("one")
ED = ed_key("one")
CLAIMS = {"iss": "them"}
TOO_DEEP = b"[" * 3_000 + b"]" * 3_000
"""Nested deeper than the interpreter goes."""
DEEP_HEADER = base64url(b'{"alg":"HS256","more":' + TOO_DEEP + b"}") + ".e30.c2ln"


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


@pytest.mark.parametrize(
    "document",
    [b"", b"{}", b"[]", b'{"keys": {}}', b"<html>", b"\xff", b'{"keys":[' + TOO_DEEP + b"]}"],
)
def test_document_that_is_no_key_set_is_refused(document: bytes) -> None:
    with pytest.raises(ValueError, match="Key Set"):
        read_key_set(document)


# Slow: starts a process.
@pytest.mark.slow
@pytest.mark.parametrize("key_id", ["a", "b"])
def test_public_key_goes_to_another_process(key_id: str) -> None:
    key = read_key_set(key_set(rsa_jwk(RSA, "a"), ed_jwk(ED, "b")))[key_id]
    sent = pickle.dumps(key)
    # Only what was published travels.
    code = (
        "import pickle, sys; key = pickle.loads(sys.stdin.buffer.read(int(sys.argv[1])));"
        "sys.stdout.buffer.write(key.verified_payload(sys.stdin.read()))"
    )
    token = rs256(CLAIMS, RSA, "a") if key_id == "a" else eddsa(CLAIMS, ED, "b")
    done = subprocess.run(
        [sys.executable, "-c", code, str(len(sent))],
        input=sent + token.encode(),
        capture_output=True,
        check=True,
    )
    assert done.stdout == b'{"iss": "them"}'


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
        (keys["a"], DEEP_HEADER),
        (keys["a"], rs256(CLAIMS, rsa_key("other"), "a")),
        (secret_key(Secret("s" * 40)), rs256(CLAIMS, RSA)),
    ):
        with pytest.raises(Unauthorized):
            key.verified_payload(token)


def test_key_id_is_what_the_token_says() -> None:
    assert key_id_of(rs256(CLAIMS, RSA, "a")) == "a"
    assert key_id_of(rs256(CLAIMS, RSA)) is None
    for token in ("", "a.b.c", DEEP_HEADER, hs256(CLAIMS, b"x" * 32, kid=5)):
        with pytest.raises(Unauthorized):
            key_id_of(token)


SECRET = b"s" * 40
GOOD = hs256(CLAIMS, SECRET)


def test_shared_secret_opens_what_it_signed() -> None:
    assert secret_key(Secret(SECRET.decode())).verified_payload(GOOD) == b'{"iss": "them"}'


@pytest.mark.parametrize(
    "token",
    [
        hs256(CLAIMS, b"t" * 40),
        # Signed rightly, and yet it says that it is to be read in another way.
        hs256(CLAIMS, SECRET, alg="none"),
        hs256(CLAIMS, SECRET, alg="HS512"),
        hs256(CLAIMS, SECRET, alg=None),
        hs256(CLAIMS, SECRET, crit=["exp"]),
        hs256(CLAIMS, SECRET, b64=False),
        unsigned(CLAIMS, "HS256"),
        f"{signing_input({'alg': 'HS256', 'typ': 'JWT'}, {'iss': 'us'})}.{GOOD.rpartition('.')[2]}",
        # The same bits, spelled otherwise: one token has one spelling.
        f"{GOOD}=",
        f"{GOOD}\n",
        GOOD.rpartition(".")[0],
        f".{GOOD.partition('.')[2]}",
        f"é{GOOD}",
        "a.b.c",
        DEEP_HEADER,
        "..",
    ],
)
def test_shared_secret_opens_nothing_else(token: str) -> None:
    with pytest.raises(Unauthorized):
        secret_key(Secret(SECRET.decode())).verified_payload(token)
