"""Names: what may stand in one line, in every script; and which ones people cannot take."""

import pytest

from tidewire.domain.errors import InvalidOperation
from tidewire.domain.names import RESERVED_NAMES, check_not_reserved, check_shown_name, name_key


@pytest.mark.parametrize(
    "name",
    [
        "x",
        "x" * 10,
        "Zoë",
        "👩\u200d💻",
        "\u0645\u06cc\u200c\u062e\u0648\u0631",
        "a b",
        "\u05d0\u05d1",
        "...",
        "7",
        # Not assigned in this Unicode; perhaps in the next.
        "\u0378",
    ],
)
def test_name_is_taken_in_every_script(name: str) -> None:
    assert check_shown_name(name, "a name", 10) == name


@pytest.mark.parametrize(
    "name",
    ["", "x" * 11, " x", "x ", "a\tb", "a\x00b", "a\nb", "a\u2028b", "a\u2029b", "a\ud800b"],
)
def test_name_is_refused_when_it_does_not_fit_a_line(name: str) -> None:
    with pytest.raises(InvalidOperation, match=r"^a name has "):
        check_shown_name(name, "a name", 10)


@pytest.mark.parametrize("control", "\u061c\u200e\u200f\u202a\u202e\u2066\u2069")
def test_name_that_turns_the_text_around_it_is_refused(control: str) -> None:
    with pytest.raises(InvalidOperation, match="direction of writing"):
        check_shown_name(f"an{control}na", "a name", 10)


@pytest.mark.parametrize(
    "name",
    ["\u200b", "\u200d\u200c", "\ufeff", "\u3164", "\u2800", "\u115f\u1160", "\ufe0f", "\u0301",
     "\U000e0041", "\ue000"],
)  # fmt: skip
def test_name_that_cannot_be_seen_is_refused(name: str) -> None:
    with pytest.raises(InvalidOperation, match="can be seen"):
        check_shown_name(name, "a name", 10)


@pytest.mark.parametrize(
    "name",
    ["admin", "Admin", "ADMIN", "System", "s.y.s.t.e.m", "root_", "\uff21dmin", "\U0001d41admin",
     "Ad\u200dmin", "Tidewire", "Sup-port"],
)  # fmt: skip
def test_name_that_looks_like_the_server_is_reserved(name: str) -> None:
    with pytest.raises(InvalidOperation, match=r"^a user name cannot be .*reserved"):
        check_not_reserved(name, "a user name")


@pytest.mark.parametrize("name", ["anna", "administrative", "admin2", "my system", "badmin", "..."])
def test_name_that_only_contains_a_reserved_one_is_taken(name: str) -> None:
    assert check_not_reserved(name, "a user name") == name


def test_reserved_names_are_in_the_form_that_is_compared() -> None:
    assert all(name_key(name) == name for name in RESERVED_NAMES)
