"""The queue before the password hash: by rank, then by arrival, bounded."""

from collections import Counter

import hypothesis.strategies as st
from hypothesis import given

from tidewire.accounts.turns import Rank, Turns


def fixed(rank: int) -> Rank:
    return lambda: rank


def emptied(turns: Turns[str]) -> list[str]:
    served = []
    while (ticket := turns.take()) is not None:
        served.append(ticket)
    return served


def test_lowest_rank_is_first_and_equals_are_in_order() -> None:
    turns: Turns[str] = Turns(waiting_max=10)
    for ticket, rank in (("a", 5), ("b", 1), ("c", 5), ("d", 1), ("e", 3)):
        assert turns.enter(ticket, fixed(rank)) is None
    assert len(turns) == 5
    assert emptied(turns) == ["b", "d", "e", "a", "c"]


def test_last_place_is_given_up_for_a_better_one_only() -> None:
    turns: Turns[str] = Turns(waiting_max=2)
    assert turns.enter("a", fixed(5)) is None
    assert turns.enter("b", fixed(5)) is None
    assert turns.enter("c", fixed(5)) == "c"
    assert turns.enter("d", fixed(4)) == "b"
    assert emptied(turns) == ["d", "a"]


def test_address_that_goes_on_asking_moves_back_with_all_it_has_waiting() -> None:
    asked: Counter[str] = Counter()
    turns: Turns[str] = Turns(waiting_max=3)

    def come(ticket: str, address: str) -> str | None:
        asked[address] += 1
        return turns.enter(ticket, lambda: asked[address])

    assert [come("flood 1", "busy"), come("flood 2", "busy"), come("one", "calm")] == [None] * 3
    assert come("flood 3", "busy") == "flood 3"
    assert come("another", "quiet") == "flood 2"
    assert emptied(turns) == ["one", "another", "flood 1"]


def test_queue_without_places_keeps_none_waiting() -> None:
    turns: Turns[str] = Turns(waiting_max=0)
    assert turns.enter("a", fixed(0)) == "a"
    assert turns.take() is None


def test_place_can_be_given_up() -> None:
    turns: Turns[str] = Turns(waiting_max=9)
    tickets = ["first", "second", "third"]
    for ticket in tickets:
        turns.enter(ticket, fixed(1))
    turns.leave(tickets[1])
    turns.leave("nobody")
    assert emptied(turns) == ["first", "third"]


@given(st.lists(st.integers(1, 5), max_size=30), st.integers(0, 5))
def test_those_who_stay_are_the_best_that_came(ranks: list[int], waiting_max: int) -> None:
    turns: Turns[int] = Turns(waiting_max=waiting_max)
    for number, rank in enumerate(ranks):
        turns.enter(number, fixed(rank))
    served = []
    while (ticket := turns.take()) is not None:
        served.append(ticket)
    best = sorted(range(len(ranks)), key=lambda number: (ranks[number], number))
    assert served == best[:waiting_max]
