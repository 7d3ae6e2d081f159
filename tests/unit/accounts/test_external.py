"""Tokens of an identity provider: its secret or its keys, and when the keys are fetched."""

import asyncio
import hmac
import json
from typing import Any

import pytest

from tests.support.world import START_MS
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
    unsigned,
)
from tests.unit.accounts.parts import ManualClock
from tidewire.accounts.external import ExternalTokens, KeySet
from tidewire.accounts.options import IdentityOptions
from tidewire.domain.accounts import ExternalIdentity, Secret
from tidewire.domain.errors import AuthFailure, IdentityUnavailable, Unauthorized

ISSUER = "https://id.example"
SECRET = "a secret that the team shares with us"
RSA = rsa_key("one")
ED = ed_key("one")


def claims(**changes: Any) -> dict[str, Any]:
    return {
        "iss": ISSUER,
        "aud": "chat",
        "sub": "42",
        "exp": START_MS // 1000 + 600,
        "preferred_username": "anna",
        "name": "Anna A.",
    } | changes


class Provider:
    """Publishes keys, or fails to, and counts how often it is asked."""

    def __init__(self, *keys: dict[str, Any]) -> None:
        self.keys = list(keys)
        self.fetches = 0
        self.is_down = False
        self.gate: asyncio.Event | None = None

    async def fetch(self) -> bytes:
        self.fetches += 1
        if self.gate is not None:
            await self.gate.wait()
        if self.is_down:
            raise OSError("no route to the provider")
        return key_set(*self.keys)


def by_secret(clock: ManualClock, **options: Any) -> ExternalTokens:
    return ExternalTokens(
        IdentityOptions(issuer=ISSUER, audience="chat", secret=Secret(SECRET), **options),
        None,
        clock=clock,
    )


def by_keys(clock: ManualClock, provider: Provider) -> ExternalTokens:
    options = IdentityOptions(
        issuer=ISSUER, audience="chat", jwks_url="https://id.example.org/keys"
    )
    keys = KeySet(provider.fetch, clock=clock, cooldown_ms=options.keys_cooldown_ms)
    return ExternalTokens(options, keys, clock=clock)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


async def refusal(tokens: ExternalTokens, token: str) -> AuthFailure:
    with pytest.raises(Unauthorized) as refused:
        await tokens.verify(token)
    return refused.value.reason


# A shared secret.


async def test_token_by_secret_says_who_somebody_is(clock: ManualClock) -> None:
    person = await by_secret(clock).verify(hs256(claims(did="ABC"), SECRET.encode()))
    assert person.identity == ExternalIdentity(ISSUER, "42")
    assert (person.username, person.display_name, person.device_id) == ("anna", "Anna A.", "abc")
    assert person.expires_at_ms == START_MS + 600_000 + 60_000


@pytest.mark.parametrize(
    ("claimed", "username"),
    [
        ("anna", "anna"),
        ("anna@example.com", "anna"),
        ("Anna A.", None),
        ("ä@example.com", None),
        ("", None),
        (None, None),
        (5, None),
        ("x" * 65, None),
        # Only the operator gives these.
        ("admin", None),
        ("system@example.com", None),
    ],
)
async def test_name_is_taken_if_it_is_one(
    clock: ManualClock, claimed: object, username: str | None
) -> None:
    token = hs256(claims(preferred_username=claimed, name=" edge "), SECRET.encode())
    person = await by_secret(clock).verify(token)
    assert (person.username, person.display_name) == (username, None)


async def test_names_come_from_the_claims_that_are_configured(clock: ManualClock) -> None:
    tokens = by_secret(clock, username_claim="login", display_name_claim="nick")
    person = await tokens.verify(hs256(claims(login="ben", nick="Ben"), SECRET.encode()))
    assert (person.username, person.display_name) == ("ben", "Ben")
    person = await tokens.verify(hs256(claims(nick=5), SECRET.encode()))
    assert (person.username, person.display_name) == (None, None)


@pytest.mark.parametrize(
    "changes",
    [
        {"iss": "https://evil.example"},
        {"aud": "mail"},
        {"aud": None},
        {"sub": None},
        {"sub": ""},
        {"sub": "x" * 257},
        {"sub": "a\x00b"},
        {"exp": None},
        {"iat": START_MS // 1000 + 61},
        {"nbf": START_MS // 1000 + 61},
    ],
)
async def test_token_with_wrong_claims_is_refused(
    clock: ManualClock, changes: dict[str, Any]
) -> None:
    token = hs256(claims(**changes), SECRET.encode())
    assert await refusal(by_secret(clock), token) is AuthFailure.INVALID_TOKEN


async def test_token_that_has_expired_is_refused(clock: ManualClock) -> None:
    token = hs256(claims(), SECRET.encode())
    clock.pass_ms(600_000 + 59_999)
    await by_secret(clock).verify(token)
    clock.pass_ms(1)
    assert await refusal(by_secret(clock), token) is AuthFailure.TOKEN_EXPIRED


@pytest.mark.parametrize(
    "token",
    [
        unsigned(claims(), "none"),
        hs256(claims(), b"another secret that is long enough"),
        hs256(claims(), SECRET.encode(), alg="HS512"),
        rs256(claims(), RSA),
    ],
)
async def test_token_not_signed_with_the_secret_is_refused(clock: ManualClock, token: str) -> None:
    assert await refusal(by_secret(clock), token) is AuthFailure.INVALID_TOKEN


async def test_token_with_a_text_that_is_none_is_refused(clock: ManualClock) -> None:
    """Also in a claim that nobody asks for."""
    payload = json.dumps(claims(nickname="?")).encode()
    header, damaged = b'{"alg":"HS256"}', payload.replace(b"?", b"\xff")
    message = f"{base64url(header)}.{base64url(damaged)}"
    signature = hmac.digest(SECRET.encode(), message.encode(), "sha256")
    token = f"{message}.{base64url(signature)}"
    assert await refusal(by_secret(clock), token) is AuthFailure.INVALID_TOKEN


# Published keys.


async def test_token_by_keys_is_verified(clock: ManualClock) -> None:
    provider = Provider(rsa_jwk(RSA, "r"), ed_jwk(ED, "e"))
    tokens = by_keys(clock, provider)
    for token in (rs256(claims(), RSA, "r"), eddsa(claims(), ED, "e")):
        assert (await tokens.verify(token)).identity.subject == "42"
    assert provider.fetches == 1


@pytest.mark.parametrize(
    "token",
    [
        hs256(claims(), rsa_pem(RSA), kid="r"),
        hs256(claims(), rsa_jwk(RSA, "r")["n"].encode(), kid="r"),
        unsigned(claims(), "none"),
        eddsa(claims(), ED, "r"),
        rs256(claims(), rsa_key("attacker"), "r"),
        rs256(claims(), RSA, "e"),
    ],
)
async def test_token_that_confuses_keys_or_algorithms_is_refused(
    clock: ManualClock, token: str
) -> None:
    tokens = by_keys(clock, Provider(rsa_jwk(RSA, "r"), ed_jwk(ED, "e")))
    assert await refusal(tokens, token) is AuthFailure.INVALID_TOKEN


async def test_token_without_a_key_id_is_checked_with_the_only_key(clock: ManualClock) -> None:
    token = rs256(claims(), RSA)
    await by_keys(clock, Provider(rsa_jwk(RSA, "r"))).verify(token)
    two = by_keys(clock, Provider(rsa_jwk(RSA, "r"), ed_jwk(ED, "e")))
    assert await refusal(two, token) is AuthFailure.INVALID_TOKEN


async def test_keys_are_fetched_again_when_they_are_old(clock: ManualClock) -> None:
    provider = Provider(rsa_jwk(RSA, "r"))
    tokens = by_keys(clock, provider)
    token = rs256(claims(exp=START_MS // 1000 + 86400), RSA, "r")
    await tokens.verify(token)
    clock.pass_ms(299_999)
    await tokens.verify(token)
    assert provider.fetches == 1
    provider.keys = []
    clock.pass_ms(1)
    # The provider has withdrawn the key.
    assert await refusal(tokens, token) is AuthFailure.INVALID_TOKEN
    assert provider.fetches == 2


async def test_unknown_key_fetches_once_and_then_waits(clock: ManualClock) -> None:
    provider = Provider(rsa_jwk(RSA, "r"))
    tokens = by_keys(clock, provider)
    await tokens.verify(rs256(claims(), RSA, "r"))
    unknown = eddsa(claims(), ED, "new")
    for _ in range(10):
        assert await refusal(tokens, unknown) is AuthFailure.INVALID_TOKEN
    assert provider.fetches == 1
    clock.pass_ms(30_000)
    provider.keys.append(ed_jwk(ED, "new"))
    await tokens.verify(unknown)
    assert provider.fetches == 2


async def test_keys_that_cannot_be_had_make_tokens_uncheckable(clock: ManualClock) -> None:
    provider = Provider(rsa_jwk(RSA, "r"))
    provider.is_down = True
    tokens = by_keys(clock, provider)
    token = rs256(claims(), RSA, "r")
    for _ in range(3):
        with pytest.raises(IdentityUnavailable):
            await tokens.verify(token)
    assert provider.fetches == 1
    provider.is_down = False
    clock.pass_ms(30_000)
    await tokens.verify(token)


async def test_old_keys_are_used_for_a_while_when_new_ones_cannot_be_had(
    clock: ManualClock,
) -> None:
    provider = Provider(rsa_jwk(RSA, "r"))
    tokens = by_keys(clock, provider)
    token = rs256(claims(exp=START_MS // 1000 + 86400), RSA, "r")
    await tokens.verify(token)
    provider.is_down = True
    clock.pass_ms(3_599_999)
    await tokens.verify(token)
    clock.pass_ms(1)
    with pytest.raises(IdentityUnavailable):
        await tokens.verify(token)


async def test_many_at_once_fetch_the_keys_once(clock: ManualClock) -> None:
    provider = Provider(rsa_jwk(RSA, "r"))
    provider.gate = asyncio.Event()
    tokens = by_keys(clock, provider)
    token = rs256(claims(), RSA, "r")
    waiting = asyncio.gather(*(tokens.verify(token) for _ in range(20)))
    for _ in range(5):
        await _turn()
    provider.gate.set()
    assert len(await waiting) == 20
    assert provider.fetches == 1


async def test_old_keys_serve_while_new_ones_are_fetched(clock: ManualClock) -> None:
    provider = Provider(rsa_jwk(RSA, "r"))
    tokens = by_keys(clock, provider)
    token = rs256(claims(), RSA, "r")
    await tokens.verify(token)
    clock.pass_ms(300_000)
    provider.gate = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        slow = group.create_task(tokens.verify(token))
        await _turn()
        await tokens.verify(token)
        assert not slow.done()
        provider.gate.set()


async def test_fetch_that_is_cancelled_is_not_held_against_the_provider(
    clock: ManualClock,
) -> None:
    provider = Provider(rsa_jwk(RSA, "r"))
    provider.gate = asyncio.Event()
    tokens = by_keys(clock, provider)
    token = rs256(claims(), RSA, "r")
    async with asyncio.TaskGroup() as group:
        first = group.create_task(tokens.verify(token))
        await _turn()
        first.cancel()
    assert first.cancelled()
    provider.gate.set()
    await tokens.verify(token)


async def _turn() -> None:
    """Let everybody who can go on do so."""
    loop = asyncio.get_running_loop()
    turned = loop.create_future()
    loop.call_soon(turned.set_result, None)
    await turned
