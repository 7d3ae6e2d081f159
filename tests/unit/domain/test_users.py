"""The names of people."""

import pytest

from tidewire.domain.errors import Forbidden, InvalidOperation, UserNotFound
from tidewire.domain.ids import UserId
from tidewire.domain.users import (
    DELETED_NAME,
    User,
    as_deleted,
    as_disabled,
    as_enabled,
    as_renamed,
    check_chosen_display_name,
    check_chosen_username,
    check_display_name,
    check_enable,
    check_may_log_in,
    check_username,
    fallback_username,
)


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


ANNA = User(
    user_id=UserId("user_a"),
    username="anna",
    display_name="Anna",
    created_at_ms=1,
    updated_at_ms=2,
)


def test_deleted_user_is_disabled_and_nameless_and_keeps_the_user_name() -> None:
    gone = as_deleted(ANNA, now_ms=9)
    assert (gone.username, gone.display_name) == ("anna", DELETED_NAME)
    assert (gone.disabled_at_ms, gone.deleted_at_ms, gone.updated_at_ms) == (9, 9, 9)
    assert (ANNA.can_join, gone.can_join) == (True, False)
    assert as_deleted(gone, now_ms=10) is gone


def test_deleted_user_is_not_enabled_again() -> None:
    check_enable(ANNA)
    with pytest.raises(InvalidOperation, match="deleted"):
        check_enable(as_deleted(ANNA, now_ms=9))


def test_user_gets_another_display_name_unless_deleted() -> None:
    renamed = as_renamed(ANNA, "Ann", now_ms=9)
    assert (renamed.display_name, renamed.updated_at_ms) == ("Ann", 9)
    with pytest.raises(UserNotFound):
        as_renamed(as_deleted(ANNA, now_ms=9), "Ann", now_ms=10)


def test_disabled_user_may_not_log_in_until_enabled() -> None:
    check_may_log_in(ANNA)
    disabled = as_disabled(ANNA, now_ms=9)
    assert as_disabled(disabled, now_ms=10) is disabled
    with pytest.raises(Forbidden, match="disabled"):
        check_may_log_in(disabled)
    enabled = as_enabled(disabled, now_ms=12)
    assert (enabled.disabled_at_ms, enabled.enabled_at_ms) == (None, 12)
    assert as_enabled(enabled, now_ms=13) is enabled
    with pytest.raises(InvalidOperation, match="deleted"):
        as_enabled(as_deleted(ANNA, now_ms=9), now_ms=12)


def test_time_of_enabling_grows_whatever_the_clock_says() -> None:
    first = as_enabled(as_disabled(ANNA, now_ms=9), now_ms=0)
    assert first.enabled_at_ms == ANNA.created_at_ms + 1
    second = as_enabled(as_disabled(first, now_ms=9), now_ms=0)
    assert second.enabled_at_ms == ANNA.created_at_ms + 2


def test_name_of_a_deleted_account_may_be_shown() -> None:
    assert check_display_name(DELETED_NAME) == DELETED_NAME


def test_names_that_people_choose_are_names_and_not_reserved() -> None:
    assert check_chosen_username("anna") == "anna"
    assert check_chosen_display_name("Anna A.") == "Anna A."
    for check, names in (
        (check_chosen_username, ("anna b", "System")),
        (check_chosen_display_name, (" Anna", "S Y S T E M", DELETED_NAME)),
    ):
        for name in names:
            with pytest.raises(InvalidOperation):
                check(name)


def test_name_in_place_of_a_taken_one_is_recognised_and_a_name() -> None:
    user_id = UserId("user_01J9ZK4T7Q2M8V5RXB3N6C0DHE")
    assert fallback_username(user_id, "anna") == "anna-xb3n6c0dhe"
    assert fallback_username(user_id, None) == "u-01j9zk4t7q2m8v5rxb3n6c0dhe"
    longest = fallback_username(user_id, "x" * 64)
    assert check_username(longest) == "x" * 53 + "-xb3n6c0dhe"
