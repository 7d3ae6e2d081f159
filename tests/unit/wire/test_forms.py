"""A struct is made of the fields of others."""

import msgspec
import pytest

from tidewire.wire.forms import fields_of, form_of

NOW_MS = 1_900_000_000_000
NOW = "2030-03-17T17:46:40.000Z"


class Stored(msgspec.Struct):
    name: str
    created_at_ms: int
    muted_until_ms: int | None = None


class Shown(msgspec.Struct, kw_only=True):
    name: str
    created_at: str
    muted_until: str | None
    colour: str = "blue"


def test_fields_of_one_name_are_taken_over_and_instants_change_their_form() -> None:
    shown = form_of(Shown, Stored("a", NOW_MS))
    assert shown == Shown(name="a", created_at=NOW, muted_until=None)
    muted = form_of(Shown, Stored("a", NOW_MS, NOW_MS))
    assert muted.muted_until == NOW
    assert form_of(Stored, muted) == Stored("a", NOW_MS, NOW_MS)


def test_given_values_come_first_then_the_first_source_that_has_one() -> None:
    class Colour(msgspec.Struct):
        name: str = "of the second source"
        colour: str = "red"

    shown = form_of(Shown, Stored("a", NOW_MS), Colour(), created_at="given")
    assert (shown.name, shown.created_at, shown.colour) == ("a", "given", "red")


def test_field_that_no_source_has_is_missed() -> None:
    with pytest.raises(TypeError, match="name"):
        form_of(Shown, object(), created_at=NOW, muted_until=None)
    with pytest.raises(TypeError, match="created_at_ms"):
        form_of(Stored, object(), name="a")


def test_text_that_is_no_instant_is_a_bug() -> None:
    with pytest.raises(AssertionError):
        form_of(Stored, Shown(name="a", created_at="yesterday", muted_until=None))


def test_fields_of_some_names_are_plain_values() -> None:
    fields = fields_of(Stored("a", NOW_MS), "name created_at muted_until")
    assert fields == {"name": "a", "created_at": NOW, "muted_until": None}
