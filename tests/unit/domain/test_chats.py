"""The name of a pair, and the names of chats."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidewire.domain.chats import check_chat_name, pair_key, roster_of
from tidewire.domain.errors import InvalidOperation
from tidewire.domain.ids import ChatId, UserId
from tidewire.domain.limits import CHAT_NAME_CHARACTERS_MAX

users = st.text("abcXYZ019_", min_size=1, max_size=8).map(UserId)


@given(users, users)
def test_pair_has_the_same_name_from_either_side(one: UserId, other: UserId) -> None:
    assert pair_key(one, other) == pair_key(other, one)


@given(users, users, users, users)
def test_two_pairs_have_the_same_name_only_if_they_are_one(
    a: UserId, b: UserId, c: UserId, d: UserId
) -> None:
    assert (pair_key(a, b) == pair_key(c, d)) == (sorted((a, b)) == sorted((c, d)))


def test_pair_is_named_by_the_smaller_first() -> None:
    assert pair_key(UserId("user_b"), UserId("user_a")) == "user_a#user_b"


@pytest.mark.parametrize("name", ["x", "lunch at noon", "déjeuner 🍲", "x" * 128])
def test_chat_name_is_taken_as_it_is(name: str) -> None:
    assert check_chat_name(name) == name


@pytest.mark.parametrize(
    "name", ["", " ", " lunch", "lunch ", "lunch\n", "a\tb", "a\x00b", "a\x7fb", "x" * 129]
)
def test_chat_name_that_nobody_could_read_is_refused(name: str) -> None:
    with pytest.raises(InvalidOperation):
        check_chat_name(name)


def test_chat_name_is_bounded_in_characters() -> None:
    assert CHAT_NAME_CHARACTERS_MAX == 128
    assert check_chat_name("🍲" * CHAT_NAME_CHARACTERS_MAX)


@given(st.dictionaries(users, st.integers(0, 9), max_size=6), st.integers(1, 10))
def test_readers_of_a_message_are_those_who_had_joined_before_it(
    members: dict[UserId, int], sequence: int
) -> None:
    roster = roster_of(ChatId("chat_1"), 3, members)
    assert list(roster.user_ids) == list(members)
    expected = [user_id for user_id, joined in members.items() if joined < sequence]
    assert list(roster.readers_of(sequence)) == expected
