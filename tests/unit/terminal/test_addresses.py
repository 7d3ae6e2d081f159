"""Which chat is meant, and where a login is kept."""

import pytest

from tidewire.domain.errors import InvalidOperation
from tidewire.terminal.addresses import (
    ById,
    ByName,
    Known,
    WithUser,
    choose,
    may_be_username,
    parse_address,
    store_name,
)

ID = "chat_01KA0000000000000000000000"
TEAM = Known(ID, "Team")
OTHER = Known("chat_01KA0000000000000000000001", "team")


@pytest.mark.parametrize(
    ("text", "address"),
    [
        (ID, ById(ID)),
        ("@bob", WithUser("bob")),
        (" bob ", ByName("bob")),
        ("The Team", ByName("The Team")),
        ("chat_short", ByName("chat_short")),
    ],
)
def test_address_is_an_id_a_user_or_a_name(text: str, address: object) -> None:
    assert parse_address(text) == address


@pytest.mark.parametrize("text", ["", "  ", "@", "@two words"])
def test_address_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(InvalidOperation):
        parse_address(text)


def test_may_be_username() -> None:
    assert may_be_username("bob")
    assert not may_be_username("The Team")


def test_name_of_one_group_is_that_group() -> None:
    assert choose("Team", [TEAM], is_user=False) == ById(ID)
    assert choose("TEAM", [TEAM], is_user=False) == ById(ID)


def test_exact_name_goes_before_other_case() -> None:
    assert choose("Team", [TEAM, OTHER], is_user=False) == ById(ID)


def test_name_of_a_user_is_the_direct_chat() -> None:
    assert choose("bob", [TEAM], is_user=True) == WithUser("bob")


@pytest.mark.parametrize(
    ("name", "is_user", "sentence"),
    [
        ("TEAM", False, "several groups are called 'TEAM'"),
        ("team", True, "'team' is a user and a group"),
        ("nobody", False, "there is no group and no user called 'nobody'"),
    ],
)
def test_name_that_is_not_one_thing_is_refused(name: str, is_user: bool, sentence: str) -> None:
    with pytest.raises(InvalidOperation, match=sentence):
        choose(name, [TEAM, OTHER], is_user=is_user)


@pytest.mark.parametrize(
    ("url", "username", "number", "name"),
    [
        ("http://127.0.0.1:8080", "alice", 1, "127.0.0.1_3a8080/alice.db"),
        ("https://chat.example.org/", "Alice", 2, "chat.example.org/alice-2.db"),
        ("https://a/b", "x_y:z", 1, "a_2fb/x_5fy_3az.db"),
        ("https://a", "..", 1, "a/_2e..db"),
    ],
)
def test_store_name_is_a_file_of_its_own(url: str, username: str, number: int, name: str) -> None:
    assert store_name(url, username, number) == name
