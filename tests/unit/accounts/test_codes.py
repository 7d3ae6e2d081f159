"""Refresh tokens: their form, their succession, and how an old one is told from a guess. Invite
codes can be typed, and are stored as a hash."""

import re

import pytest

from tidewire.accounts.codes import (
    GENERATIONS_MAX,
    INVITE_BYTES,
    RefreshToken,
    encode_invite,
    invite_hash,
    parse_refresh_token,
    refresh_key,
)
from tidewire.domain.accounts import Secret
from tidewire.domain.ids import SessionId

SESSION = SessionId("sess_01J9ZK4T7Q2M8V5RXB3N6C0DHE")
KEY = refresh_key(Secret("server secret"))
FIRST = RefreshToken(SESSION, bytes(range(32)))


def precedes(token: RefreshToken, current_hash: bytes, generations: int) -> bool:
    successors = token.successors(KEY, generations=generations)
    return any(each.is_stored_as(current_hash) for each in successors)


def test_token_is_the_session_id_and_43_letters() -> None:
    text = FIRST.encode().reveal()
    assert re.fullmatch(r"sess_[0-9A-Z]{26}\.[A-Za-z0-9_-]{43}", text)
    parsed = parse_refresh_token(Secret(text))
    assert parsed is not None
    assert parsed.session_id == SESSION
    assert parsed.stored_hash() == FIRST.stored_hash()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "sess_01J9ZK4T7Q2M8V5RXB3N6C0DHE",
        "sess_01J9ZK4T7Q2M8V5RXB3N6C0DHE." + "A" * 42,
        "sess_01J9ZK4T7Q2M8V5RXB3N6C0DHE." + "A" * 44,
        "sess_01J9ZK4T7Q2M8V5RXB3N6C0DHE." + "A" * 42 + "=",
        "sess_01J9ZK4T7Q2M8V5RXB3N6C0DHE." + "A" * 42 + "é",
        "user_01J9ZK4T7Q2M8V5RXB3N6C0DHE." + "A" * 43,
        "sess_short." + "A" * 43,
        "sess_01J9ZK4T7Q2M8V5RXB3N6C0DHE." + "A" * 43 + "\n",
    ],
)
def test_text_that_is_no_token_is_none(text: str) -> None:
    assert parse_refresh_token(Secret(text)) is None


def test_token_does_not_show_its_secret() -> None:
    letters = FIRST.encode().reveal().partition(".")[2]
    assert letters not in repr(FIRST)
    assert SESSION in repr(FIRST)


def test_following_token_is_always_the_same_and_of_no_other_session_or_key() -> None:
    following = FIRST.following(KEY)
    assert following.encode() == FIRST.following(KEY).encode()
    other_session = RefreshToken(SessionId("sess_11J9ZK4T7Q2M8V5RXB3N6C0DHE"), bytes(range(32)))
    others = [
        FIRST,
        FIRST.following(refresh_key(Secret("another server"))),
        other_session.following(KEY),
        following.following(KEY),
    ]
    assert following.stored_hash() not in {other.stored_hash() for other in others}


def test_old_token_is_recognised_in_every_generation() -> None:
    token, tokens = FIRST, [FIRST]
    for _ in range(20):
        token = token.following(KEY)
        tokens.append(token)
    current = tokens[-1].stored_hash()
    for age in range(1, 21):
        assert precedes(tokens[-1 - age], current, 20)
    assert not precedes(tokens[-1], current, 20)


def test_guess_is_no_old_token() -> None:
    current = FIRST.following(KEY).stored_hash()
    guess = RefreshToken(SESSION, bytes(32))
    assert not precedes(guess, current, 50)
    assert not precedes(FIRST, current, 0)


def test_search_for_an_old_token_is_bounded() -> None:
    guess = RefreshToken(SESSION, bytes(32))
    assert not precedes(guess, b"", 1 << 60)
    assert GENERATIONS_MAX < 10_000


def test_invite_is_24_letters() -> None:
    code = encode_invite(bytes(range(INVITE_BYTES))).reveal()
    assert len(code) == 24
    assert code.isalnum()
    assert code == code.lower()


@pytest.mark.parametrize(
    "typed", ["abcdef234567", "ABCDEF234567", "abcd-ef23-4567", "abcd EF23 4567"]
)
def test_invite_is_taken_however_it_is_typed(typed: str) -> None:
    assert invite_hash(Secret(typed)) == invite_hash(Secret("abcdef234567"))


def test_invite_of_another_code_is_another() -> None:
    assert invite_hash(Secret("a")) != invite_hash(Secret("b"))
    assert len(invite_hash(Secret("\ud800"))) == 32
