"""Invite codes can be typed, and are stored as a hash."""

import pytest

from tidewire.accounts.invites import INVITE_BYTES, encode_invite, invite_hash
from tidewire.domain.accounts import Secret


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
