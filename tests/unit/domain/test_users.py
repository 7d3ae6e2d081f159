"""The names of people."""

import pytest

from tidewire.domain.errors import InvalidOperation
from tidewire.domain.users import check_display_name, check_username


@pytest.mark.parametrize("username", ["a", "ann", "Ann.B-C_d:9", "x" * 64])
def test_username_is_taken_as_it_is(username: str) -> None:
    assert check_username(username) == username


@pytest.mark.parametrize("username", ["", "x" * 65, "ann b", "ann\n", "änn", "ann/b", "ann#b"])
def test_username_that_is_no_plain_word_is_refused(username: str) -> None:
    with pytest.raises(InvalidOperation):
        check_username(username)


@pytest.mark.parametrize("name", ["A", "Ann Böhm", "安", "x" * 64])
def test_display_name_is_taken_as_it_is(name: str) -> None:
    assert check_display_name(name) == name


@pytest.mark.parametrize("name", ["", " ", " Ann", "Ann ", "Ann\n", "A\x00", "A\x1bB", "x" * 65])
def test_display_name_that_nobody_could_read_is_refused(name: str) -> None:
    with pytest.raises(InvalidOperation):
        check_display_name(name)
