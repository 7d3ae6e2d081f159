import pytest

from tidewire.domain.ids import ChatId
from tidewire.domain.limits import SEQUENCE_MAX
from tidewire.engines.dynamodb.numbers import (
    AHEAD_MAX,
    AHEAD_MIN,
    SEEN_SECONDS,
    Counter,
    counter_of,
    move_ahead,
)

CHAT = ChatId("chat_1")
LATER_MS = int(SEEN_SECONDS * 1000)


def test_counter_that_is_not_there_is_none() -> None:
    assert counter_of(None) is None


def test_counter_without_open_numbers_has_given_out_all() -> None:
    counter = counter_of({"sequence_counter": 10, "updated_at": 5})
    assert counter == Counter(10, 10, 5)
    assert counter.first(0) == 11
    assert not counter.has(1, 0)


def test_open_numbers_are_those_after_the_head() -> None:
    counter = counter_of({"sequence_counter": 20, "open_above": 10, "updated_at": 0})
    assert counter is not None
    assert [counter.first(head) for head in (4, 10, 15)] == [11, 11, 16]
    assert counter.has(5, 15)
    assert not counter.has(6, 15)


def test_counter_that_was_lowered_by_hand_has_nothing_open() -> None:
    counter = counter_of({"sequence_counter": 5, "open_above": 10})
    assert counter == Counter(5, 5)
    assert counter.step(1, 9, 0) is None, "it is below the head"


@pytest.mark.parametrize(
    ("open_count", "later_ms", "step"),
    [
        (0, 1, 1),
        (1, 1, AHEAD_MIN),
        (4, 1, AHEAD_MIN),
        (8, 1, 16),
        (80, 1, AHEAD_MAX),
        (8, LATER_MS, 16),
        (8, 8 * LATER_MS, 1),
        (1, LATER_MS, 1),
        (8, -1, 1),
    ],
)
def test_counter_is_moved_further_the_more_was_used_just_now(
    open_count: int, later_ms: int, step: int
) -> None:
    counter = Counter(100, 100 - open_count, 7)
    assert counter.step(1, 100, 7 + later_ms) == step


def test_counter_is_moved_as_far_as_the_messages_need() -> None:
    assert Counter(100, 99, 0).step(40, 99, 1) == 39
    assert Counter(100, 100, 0).step(40, 60, LATER_MS) == 40, "a jump is not filled up"


def test_counter_ends_at_the_last_number() -> None:
    assert Counter(SEQUENCE_MAX - 2, SEQUENCE_MAX - 60, 0).step(1, SEQUENCE_MAX - 2, 1) == 2
    assert Counter(SEQUENCE_MAX, SEQUENCE_MAX - 60, 0).step(1, SEQUENCE_MAX, 1) is None


def test_move_is_from_where_the_counter_was_seen() -> None:
    [(kind, body)] = move_ahead(CHAT, Counter(20, 10, 0), 5, head=18, now_ms=9).items()
    assert (kind, body["ConditionExpression"]) == ("Update", "#sequence_counter = :seen")
    values = {name: value["N"] for name, value in body["ExpressionAttributeValues"].items()}
    assert values == {":step": "5", ":above": "18", ":now": "9", ":seen": "20"}
