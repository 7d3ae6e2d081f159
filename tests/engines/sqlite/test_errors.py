"""Every error of the vendor has its place in ours; none comes through by accident."""

from collections.abc import Iterator

import apsw
import pytest

from tidewire.domain.errors import StoreFull, StoreUnavailable, StoreUnusable
from tidewire.engines.sqlite.errors import (
    DAMAGED,
    OUR_BUGS,
    UNAVAILABLE,
    translate_errors,
    translated,
)


def subclasses(kind: type[apsw.Error]) -> Iterator[type[apsw.Error]]:
    for subclass in kind.__subclasses__():
        yield subclass
        yield from subclasses(subclass)


VENDOR = sorted(set(subclasses(apsw.Error)), key=lambda kind: kind.__name__)


def test_vendor_has_the_errors_that_we_know_of() -> None:
    assert {apsw.BusyError, apsw.CorruptError, apsw.FullError, apsw.ConstraintError} <= set(VENDOR)
    assert len(VENDOR) > 30


@pytest.mark.parametrize("kind", VENDOR, ids=lambda kind: kind.__name__)
def test_vendor_error_has_exactly_one_place(kind: type[apsw.Error]) -> None:
    places = [
        kind is apsw.FullError,
        kind in DAMAGED,
        kind in UNAVAILABLE,
        kind in OUR_BUGS,
    ]
    assert sum(places) == 1, f"put apsw.{kind.__name__} into one of the lists of errors.py"


@pytest.mark.parametrize("kind", VENDOR, ids=lambda kind: kind.__name__)
def test_vendor_error_comes_through_only_if_it_is_a_bug_of_ours(kind: type[apsw.Error]) -> None:
    raised = kind("what the library said")
    expected: type[Exception]
    if kind is apsw.FullError:
        expected = StoreFull
    elif kind in DAMAGED:
        expected = StoreUnusable
    elif kind in UNAVAILABLE:
        expected = StoreUnavailable
    else:
        expected = kind
    with pytest.raises(expected) as caught, translate_errors():
        raise raised
    assert type(caught.value) is expected
    if expected is kind:
        assert translated(raised) is None
        return
    assert caught.value.__cause__ is raised
    if kind is not apsw.FullError:
        assert "what the library said" in str(caught.value)


def test_errors_that_are_not_the_vendors_come_through() -> None:
    with pytest.raises(ZeroDivisionError), translate_errors():
        raise ZeroDivisionError
