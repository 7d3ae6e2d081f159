"""Our own access tokens: what is in them, and the forgeries that have worked somewhere."""

from random import Random
from typing import Any

import pytest

from tests.support.world import START_MS
from tests.unit.accounts.forgery import decoded_part, hs256, rs256, rsa_key, unsigned
from tests.unit.accounts.parts import SERVER_SECRET
from tidewire.accounts.keys import KeyRing, TokenKey
from tidewire.accounts.tokens import AccessTokens
from tidewire.domain.accounts import Session, SessionKind
from tidewire.domain.errors import AuthFailure, Unauthorized
from tidewire.domain.ids import SessionId, UserId

HOUR_MS = 3_600_000
NOW_MS = START_MS
SESSION = Session(
    session_id=SessionId("sess_01J9ZK4T7Q2M8V5RXB3N6C0DHE"),
    user_id=UserId("user_01J9ZK4T7Q2M8V5RXB3N6C0DHE"),
    device_id="00000001-0000-4000-8000-000000000000",
    created_at_ms=NOW_MS,
    last_active_at_ms=NOW_MS,
    expires_at_ms=NOW_MS + 100 * HOUR_MS,
)
KEY = SERVER_SECRET.reveal().encode()


@pytest.fixture
def tokens() -> AccessTokens:
    return AccessTokens(KeyRing.of(SERVER_SECRET), Random(1).randbytes)


def issued(tokens: AccessTokens) -> str:
    return tokens.issue(SESSION, life_ms=HOUR_MS, now_ms=NOW_MS)[0].reveal()


def good_claims(tokens: AccessTokens, **changes: Any) -> dict[str, Any]:
    return decoded_part(issued(tokens), 1) | changes


def refusal(tokens: AccessTokens, token: str, now_ms: int = NOW_MS) -> AuthFailure:
    with pytest.raises(Unauthorized) as refused:
        tokens.verify(token, now_ms=now_ms)
    return refused.value.reason


def test_token_has_the_claims_of_the_contract(tokens: AccessTokens) -> None:
    secret, expires_at_ms = tokens.issue(SESSION, life_ms=HOUR_MS, now_ms=NOW_MS)
    token = secret.reveal()
    key_id = TokenKey(secret=SERVER_SECRET).key_id
    assert decoded_part(token, 0) == {"alg": "HS256", "typ": "JWT", "kid": key_id}
    claims = decoded_part(token, 1)
    assert len(claims.pop("jti")) == 20
    assert claims == {
        "iss": "tidewire",
        "aud": "tidewire",
        "sub": SESSION.user_id,
        "sid": SESSION.session_id,
        "did": SESSION.device_id,
        "iat": NOW_MS // 1000,
        "exp": NOW_MS // 1000 + 3600,
    }
    assert expires_at_ms == NOW_MS + HOUR_MS
    assert token not in repr(secret)


def test_token_is_verified(tokens: AccessTokens) -> None:
    claims = tokens.verify(issued(tokens), now_ms=NOW_MS)
    assert (claims.sub, claims.sid, claims.did) == (
        SESSION.user_id,
        SESSION.session_id,
        SESSION.device_id,
    )
    assert claims.expires_at_ms == NOW_MS + HOUR_MS


def test_two_tokens_of_one_instant_differ(tokens: AccessTokens) -> None:
    assert issued(tokens) != issued(tokens)


def test_token_does_not_outlive_its_session(tokens: AccessTokens) -> None:
    _, expires_at_ms = tokens.issue(SESSION, life_ms=HOUR_MS, now_ms=SESSION.expires_at_ms - 60_000)
    assert expires_at_ms == SESSION.expires_at_ms


def test_token_of_a_bot_names_no_device(tokens: AccessTokens) -> None:
    bot = Session(
        session_id=SESSION.session_id,
        user_id=SESSION.user_id,
        device_id=None,
        kind=SessionKind.BOT,
        created_at_ms=NOW_MS,
        last_active_at_ms=NOW_MS,
        expires_at_ms=SESSION.expires_at_ms,
    )
    token = tokens.issue(bot, life_ms=HOUR_MS, now_ms=NOW_MS)[0].reveal()
    assert "did" not in decoded_part(token, 1)
    assert tokens.verify(token, now_ms=NOW_MS).did is None


def test_token_made_by_hand_with_the_secret_is_verified(tokens: AccessTokens) -> None:
    """The forgeries below fail for what is forged, not for how they are made."""
    tokens.verify(hs256(good_claims(tokens), KEY), now_ms=NOW_MS)


@pytest.mark.parametrize("alg", ["none", "None", "NONE", "nOnE", ""])
@pytest.mark.parametrize("signature", ["", "AAAA"])
def test_token_without_a_signature_is_refused(
    tokens: AccessTokens, alg: str, signature: str
) -> None:
    token = unsigned(good_claims(tokens), alg, signature)
    assert refusal(tokens, token) is AuthFailure.INVALID_TOKEN


@pytest.mark.parametrize("alg", ["HS384", "HS512", "RS256", "EdDSA", "hs256", ["HS256"], None, 5])
def test_token_that_names_another_algorithm_is_refused(tokens: AccessTokens, alg: object) -> None:
    token = hs256(good_claims(tokens), KEY, alg=alg)
    assert refusal(tokens, token) is AuthFailure.INVALID_TOKEN


def test_token_signed_with_an_rsa_key_is_refused(tokens: AccessTokens) -> None:
    token = rs256(good_claims(tokens), rsa_key("attacker"))
    assert refusal(tokens, token) is AuthFailure.INVALID_TOKEN


@pytest.mark.parametrize(
    "header",
    [
        {"kid": "../../dev/null"},
        {"jku": "https://evil.example/keys"},
        {"x5u": "https://evil.example/cert"},
        {"jwk": {"kty": "oct", "k": "AAAA"}},
    ],
)
def test_token_cannot_bring_its_own_key(tokens: AccessTokens, header: dict[str, Any]) -> None:
    token = hs256(good_claims(tokens), b"the attacker's secret, as long as it", **header)
    assert refusal(tokens, token) is AuthFailure.INVALID_TOKEN


def test_token_with_a_critical_header_that_we_do_not_know_is_refused(tokens: AccessTokens) -> None:
    token = hs256(good_claims(tokens), KEY, crit=["exp2"], exp2=1)
    assert refusal(tokens, token) is AuthFailure.INVALID_TOKEN


@pytest.mark.parametrize("secret", [b"", b"x" * 32, KEY[:-1], KEY.upper()])
def test_token_signed_with_another_secret_is_refused(tokens: AccessTokens, secret: bytes) -> None:
    assert refusal(tokens, hs256(good_claims(tokens), secret)) is AuthFailure.INVALID_TOKEN


def test_token_with_any_letter_changed_is_refused(tokens: AccessTokens) -> None:
    token = issued(tokens)
    for index in range(0, len(token), 7):
        other = "A" if token[index] != "A" else "B"
        changed = token[:index] + other + token[index + 1 :]
        assert refusal(tokens, changed) is AuthFailure.INVALID_TOKEN


def test_token_with_the_payload_of_another_is_refused(tokens: AccessTokens) -> None:
    header, _, signature = issued(tokens).split(".")
    payload = hs256(good_claims(tokens, sub="user_01J9ZK4T7Q2M8V5RXB3N6C0DHF"), b"x" * 32)
    changed = f"{header}.{payload.split('.')[1]}.{signature}"
    assert refusal(tokens, changed) is AuthFailure.INVALID_TOKEN


@pytest.mark.parametrize(
    "changes",
    [
        {"aud": "messaging"},
        {"aud": ["other"]},
        {"aud": None},
        {"iss": "https://id.example"},
        {"iss": None},
        {"sub": None},
        {"sub": "anna"},
        {"sub": ["user_01J9ZK4T7Q2M8V5RXB3N6C0DHE"]},
        {"sid": None},
        {"sid": "1"},
        {"exp": None},
        {"exp": "9999999999"},
        {"exp": 1e400},
        {"iat": NOW_MS // 1000 + 86_401},
        {"nbf": NOW_MS // 1000 + 6},
    ],
)
def test_token_with_wrong_claims_is_refused_although_signed(
    tokens: AccessTokens, changes: dict[str, Any]
) -> None:
    token = hs256(good_claims(tokens, **changes), KEY)
    assert refusal(tokens, token) is AuthFailure.INVALID_TOKEN


@pytest.mark.parametrize("back_ms", [6_000, 60_000, 10 * HOUR_MS, 24 * HOUR_MS])
def test_token_holds_when_our_clock_was_set_back(tokens: AccessTokens, back_ms: int) -> None:
    """B4: fresh tokens were refused until they were refreshed."""
    now_ms = NOW_MS - back_ms
    claims = tokens.verify(issued(tokens), now_ms=now_ms)
    # Not longer than a token of this instant.
    assert claims.expires_at_ms == now_ms + HOUR_MS


def test_token_of_a_day_that_never_was_is_refused(tokens: AccessTokens) -> None:
    reason = refusal(tokens, issued(tokens), NOW_MS - 24 * HOUR_MS - 1_000)
    assert reason is AuthFailure.INVALID_TOKEN


def test_token_expires_after_the_leeway(tokens: AccessTokens) -> None:
    token = issued(tokens)
    tokens.verify(token, now_ms=NOW_MS + HOUR_MS + 4_999)
    assert refusal(tokens, token, NOW_MS + HOUR_MS + 5_000) is AuthFailure.TOKEN_EXPIRED


def test_expired_token_with_a_bad_signature_is_not_called_expired(tokens: AccessTokens) -> None:
    """A stranger must not learn anything from a token that we have not signed."""
    token = hs256(good_claims(tokens, exp=1), b"x" * 32)
    assert refusal(tokens, token) is AuthFailure.INVALID_TOKEN


@pytest.mark.parametrize("token", ["", ".", "..", "a.b.c", "x" * 9000, "..." * 10, "ä.ö.ü"])
def test_text_that_is_no_token_is_refused(tokens: AccessTokens, token: str) -> None:
    assert refusal(tokens, token) is AuthFailure.INVALID_TOKEN
