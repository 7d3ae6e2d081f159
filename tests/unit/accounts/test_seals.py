"""What another gateway has told: by one of us, for this one, and word for word."""

import pytest

from tests.unit.accounts.test_keys import FIRST, LIFE_MS, NOW_MS, a_secret
from tidewire.accounts.keys import KeyRing, with_new_key
from tidewire.accounts.seals import seal, unseal

BODY = b"what is told"


def test_what_is_sealed_comes_back() -> None:
    keys = KeyRing([FIRST])
    assert unseal(keys, "gateway_1", seal(keys, "gateway_1", BODY, NOW_MS), NOW_MS) == BODY
    assert unseal(keys, "gateway_1", seal(keys, "gateway_1", b"", NOW_MS), NOW_MS) == b""


def test_seal_is_good_for_one_gateway() -> None:
    keys = KeyRing([FIRST])
    sealed = seal(keys, "gateway_1", BODY, NOW_MS)
    assert unseal(keys, "gateway_2", sealed, NOW_MS) is None
    # The name is no part of what is told.
    assert unseal(keys, "gateway_", seal(keys, "gateway_1", BODY, NOW_MS), NOW_MS) is None


@pytest.mark.parametrize("at", [0, 5, 12, 30, 43, 44, 50])
def test_one_bit_of_it_changed_is_noticed(at: int) -> None:
    keys = KeyRing([FIRST])
    sealed = bytearray(seal(keys, "gateway_1", BODY, NOW_MS))
    sealed[at] ^= 1
    assert unseal(keys, "gateway_1", bytes(sealed), NOW_MS) is None


@pytest.mark.parametrize("sealed", [b"", b"x", b"\xff" * 12, BODY, b"\xff" * 100])
def test_bytes_without_a_seal_are_none(sealed: bytes) -> None:
    assert unseal(KeyRing([FIRST]), "gateway_1", sealed, NOW_MS) is None


def test_key_of_others_makes_no_seal() -> None:
    others = KeyRing.of(a_secret(2))
    assert unseal(KeyRing([FIRST]), "g", seal(others, "g", BODY, NOW_MS), NOW_MS) is None


def test_old_key_is_good_until_it_goes() -> None:
    old = KeyRing([FIRST])
    keys = with_new_key([FIRST], a_secret(2), signs_from_ms=NOW_MS, life_ms=LIFE_MS, now_ms=NOW_MS)
    new = KeyRing(keys)
    sealed = seal(old, "g", BODY, NOW_MS)
    assert unseal(new, "g", sealed, NOW_MS) == BODY
    assert unseal(new, "g", sealed, NOW_MS + LIFE_MS) is None
    # A gateway that has not read the new key yet does not take what is sealed with it.
    assert unseal(old, "g", seal(new, "g", BODY, NOW_MS), NOW_MS) is None
