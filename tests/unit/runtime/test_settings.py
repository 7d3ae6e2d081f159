"""Names and texts become typed values, or a sentence says what they should have been."""

from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

import pytest

from tidewire.domain.accounts import Secret
from tidewire.runtime.settings import Setting, Slot, Unfit, build, cast, slots_of, unknown


class Colour(StrEnum):
    RED = "red"
    BLUE = "blue"


@dataclass(frozen=True, slots=True, kw_only=True)
class Inner:
    depth_ms: int = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Outer:
    width: int = 1
    inner: Inner = field(default_factory=Inner)


def test_slots_of_names_every_place() -> None:
    slots = list(slots_of(Outer, "outer"))
    assert slots == [Slot("outer.width", int, 1), Slot("outer.inner.depth_ms", int, 3)]
    variables = ["TIDEWIRE_OUTER_WIDTH", "TIDEWIRE_OUTER_INNER_DEPTH_MS"]
    assert [slot.variable for slot in slots] == variables


def test_build_puts_values_where_they_belong() -> None:
    assert build(Outer, "outer", {"outer.inner.depth_ms": 9}) == Outer(inner=Inner(depth_ms=9))


@pytest.mark.parametrize(
    ("kind", "given", "meant"),
    [
        (int, " 10_000 ", 10_000),
        (int, 7, 7),
        (int | None, "none", None),
        (int | None, "", None),
        (int | None, "5", 5),
        (bool, "On", True),
        (bool, "0", False),
        (bool, True, True),
        (str, " text ", "text"),
        (Path | None, "some/where", Path("some/where")),
        (tuple[str, ...], "a, b,,c", ("a", "b", "c")),
        (tuple[str, ...], ["a", "b"], ("a", "b")),
        (tuple[str, ...], "", ()),
        (Colour, "BLUE", Colour.BLUE),
        (Secret | None, "hush", Secret("hush")),
    ],
)
def test_cast_understands(kind: Any, given: object, meant: object) -> None:
    assert cast(kind, given) == meant


@pytest.mark.parametrize(
    ("kind", "given", "sentence"),
    [
        (int, "many", "takes a whole number"),
        (int, True, "takes a whole number"),
        (int, 1.5, "takes a whole number"),
        (bool, "perhaps", "takes true or false"),
        (bool, 1, "takes true or false"),
        (str, 5, "takes a text"),
        (tuple[str, ...], ["a", 1], "takes a list of texts"),
        (Colour, "green", "takes red or blue"),
    ],
)
def test_cast_says_what_it_takes(kind: Any, given: object, sentence: str) -> None:
    with pytest.raises(Unfit, match=sentence):
        cast(kind, given)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "none"),
        (Secret("hush"), "(hidden)"),
        (False, "false"),
        ((), "(nothing)"),
        (("a", "b"), "a, b"),
        (12, "12"),
    ],
)
def test_shown_is_for_people_and_keeps_secrets(value: object, shown: str) -> None:
    assert Setting("name", value, "default").shown == shown


def test_unknown_helps_with_a_slip_and_not_with_nonsense() -> None:
    known = ["server.port"]
    told = "there is no setting server.prot; did you mean server.port?"
    assert unknown("server.prot", "server.prot", known) == told
    assert "tidewire config" in unknown("banana", "banana", known)
