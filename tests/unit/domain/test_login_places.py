"""Marks of devices and addresses from which an account got in."""

import string

from tidewire.domain.ids import UserId
from tidewire.domain.login_places import (
    PLACES_MAX,
    PlaceKind,
    decode_places,
    encode_places,
    place_mark,
    remember_places,
)

ANNA, BEN = UserId("usr_anna"), UserId("usr_ben")


def test_mark_differs_by_account_kind_and_name() -> None:
    marks = {
        place_mark(user_id, kind, name)
        for user_id in (ANNA, BEN)
        for kind in PlaceKind
        for name in ("192.0.2.1", "192.0.2.2", "\ud800")
    }
    assert len(marks) == 12
    assert place_mark(ANNA, PlaceKind.DEVICE, "one") == place_mark(ANNA, PlaceKind.DEVICE, "one")
    letters = set(string.ascii_letters + string.digits + "-_")
    assert all(len(mark) == 16 and set(mark) <= letters for mark in marks)


def test_last_used_come_first_and_the_longest_unused_goes() -> None:
    known: tuple[str, ...] = ()
    for number in range(PLACES_MAX):
        known = remember_places(known, [f"place{number}"])
    assert known[0] == f"place{PLACES_MAX - 1}"
    known = remember_places(known, ["place0", "new"])
    assert known[:3] == ("place0", "new", f"place{PLACES_MAX - 1}")
    assert len(known) == PLACES_MAX
    assert "place1" not in known
    assert remember_places(known, ()) == known


def test_list_is_stored_as_one_text() -> None:
    for marks in ((), ("one",), ("one", "two")):
        assert decode_places(encode_places(marks)) == marks
