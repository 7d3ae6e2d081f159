"""Claims hold for whom, from whom and when they say, to the millisecond."""

import base64
import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidewire.accounts.claims import (
    TOKEN_CHARACTERS_MAX,
    Claims,
    check_claims,
    check_form,
    issuer_of,
    read_claims,
)
from tidewire.domain.errors import AuthFailure, Unauthorized

NOW_S = 1_800_000_000
LEEWAY_MS = 2_000
TOO_DEEP = b'{"more":' + b"[" * 3_000 + b"]" * 3_000 + b"}"
"""Nested deeper than the interpreter goes, and short enough for a token."""


def encoded(payload: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(payload).encode()).rstrip(b"=").decode()


def some_claims(**changes: Any) -> Claims:
    claims = {"iss": "us", "sub": "u", "aud": "here", "exp": NOW_S + 60, "iat": NOW_S} | changes
    return read_claims(json.dumps(claims).encode())


def check(claims: Claims, now_ms: int = NOW_S * 1000) -> Claims:
    return check_claims(claims, issuer="us", audience="here", leeway_ms=LEEWAY_MS, now_ms=now_ms)


def refusal(claims: Claims, now_ms: int = NOW_S * 1000) -> AuthFailure:
    with pytest.raises(Unauthorized) as refused:
        check(claims, now_ms)
    return refused.value.reason


def test_claims_hold_when_everything_fits() -> None:
    claims = some_claims()
    assert check(claims) is claims
    check(some_claims(aud=["there", "here"]))
    check(some_claims(iat=None, nbf=None))
    check(some_claims(exp=NOW_S + 0.5))


@pytest.mark.parametrize(
    "changes",
    [
        {"iss": "them"},
        {"aud": "there"},
        {"aud": []},
        {"aud": ["there"]},
        {"aud": "her"},
        {"sub": ""},
        {"exp": 1e300},
        {"exp": -1},
        {"iat": 1e300},
        {"nbf": -5},
        {"iat": NOW_S + 3},
        {"nbf": NOW_S + 3},
    ],
)
def test_claims_that_do_not_hold_are_refused(changes: dict[str, Any]) -> None:
    assert refusal(some_claims(**changes)) is AuthFailure.INVALID_TOKEN


def test_claims_expire_to_the_millisecond_after_the_leeway() -> None:
    claims = some_claims(exp=NOW_S)
    check(claims, NOW_S * 1000 + LEEWAY_MS - 1)
    assert refusal(claims, NOW_S * 1000 + LEEWAY_MS) is AuthFailure.TOKEN_EXPIRED
    with pytest.raises(Unauthorized) as refused:
        check(claims, NOW_S * 1000 + LEEWAY_MS)
    assert refused.value.expired_at_ms == NOW_S * 1000


@pytest.mark.parametrize("claim", ["iat", "nbf"])
def test_claims_begin_to_the_millisecond_before_the_leeway(claim: str) -> None:
    claims = some_claims(**{claim: NOW_S + 2})
    check(claims, NOW_S * 1000)
    assert refusal(claims, NOW_S * 1000 - 1) is AuthFailure.INVALID_TOKEN


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"[]",
        b"null",
        b"{",
        b'{"iss": "us"}',
        b'{"iss": 1, "sub": "u", "aud": "here", "exp": 1}',
        b'{"iss": "us", "sub": 5, "aud": "here", "exp": 1}',
        b'{"iss": "us", "sub": "u", "aud": "here", "exp": "1"}',
        b'{"iss": "us", "sub": "u", "aud": "here", "exp": true}',
        b'{"iss": "us", "sub": "u", "aud": "here", "exp": null}',
        b'{"iss": "us", "sub": "u", "aud": "here", "exp": NaN}',
        b'{"iss": "us", "sub": "u", "aud": {"here": 1}, "exp": 1}',
        b'{"iss": "us", "sub": "u", "exp": 1}',
        b'{"iss": "us", "sub": "\xff", "aud": "here", "exp": 1}',
        TOO_DEEP,
    ],
)
def test_payload_without_what_must_be_there_is_refused(payload: bytes) -> None:
    with pytest.raises(Unauthorized):
        read_claims(payload)


def test_issuer_is_what_the_token_says() -> None:
    assert issuer_of(f"x.{encoded({'iss': 'us', 'more': 1})}.y") == "us"


@pytest.mark.parametrize(
    "token",
    [
        "",
        "a.b",
        "a.b.c.d",
        "x.%.y",
        "é.é.é",
        f"x.{encoded([])}.y",
        f"x.{encoded({'iss': 5})}.y",
        f"x.{encoded({})}.y",
        f"x.{base64.urlsafe_b64encode(TOO_DEEP).decode()}.y",
        f"x.{'A' * TOKEN_CHARACTERS_MAX}.y",
    ],
)
def test_token_without_an_issuer_is_refused(token: str) -> None:
    with pytest.raises(Unauthorized):
        issuer_of(token)


@given(st.text())
def test_no_text_does_more_harm_than_a_refusal(text: str) -> None:
    for token in (text, f"a.{text}.b"):
        with suppress(Unauthorized):
            check_form(token)
            issuer_of(token)


@given(st.binary())
def test_no_payload_does_more_harm_than_a_refusal(payload: bytes) -> None:
    with pytest.raises(Unauthorized):
        read_claims(payload)
