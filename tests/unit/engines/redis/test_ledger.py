"""The numbers of a stream: every step is +1, and what is counted comes in time."""

from hypothesis import given
from hypothesis import strategies as st

from tidewire.engines.redis.ledger import Ledger


def test_entries_follow_each_other() -> None:
    ledger = Ledger(drain_ms=10)
    assert [ledger.step(number) for number in (1, 2, 3)] == [True] * 3
    assert ledger.number == 3


def test_hole_repetition_and_return_are_no_step() -> None:
    for number in (4, 2, 1, 0):
        ledger = Ledger(drain_ms=10)
        ledger.step(1)
        ledger.step(2)
        assert not ledger.step(number)
        assert ledger.number == 2


def test_first_entry_of_an_incarnation_is_one() -> None:
    ledger = Ledger(drain_ms=10)
    assert not ledger.step(2)
    ledger.step(1)
    ledger.counted(5, asked_at=1, now_ms=0)
    ledger.begin()
    assert ledger.due_at_ms is None
    assert ledger.step(1)


def test_counted_entries_are_due_after_a_while() -> None:
    ledger = Ledger(drain_ms=10)
    assert ledger.counted(2, asked_at=0, now_ms=100)
    assert ledger.due_at_ms == 110
    ledger.step(1)
    assert not ledger.is_overdue(109)
    assert ledger.is_overdue(110)
    ledger.step(2)
    assert not ledger.is_overdue(1_000)


def test_deadline_is_not_put_off_by_a_later_count() -> None:
    ledger = Ledger(drain_ms=10)
    ledger.counted(1, asked_at=0, now_ms=100)
    ledger.counted(9, asked_at=0, now_ms=105)
    assert [ledger.is_overdue(at_ms) for at_ms in (109, 110)] == [False, True]
    ledger.step(1)
    # What was counted later is awaited from the next count on.
    assert not ledger.is_overdue(199)
    ledger.counted(9, asked_at=1, now_ms=200)
    assert ledger.due_at_ms == 210


def test_nothing_is_awaited_when_all_is_drained() -> None:
    ledger = Ledger(drain_ms=10)
    ledger.step(1)
    assert ledger.counted(1, asked_at=1, now_ms=0)
    assert ledger.due_at_ms is None
    assert not ledger.is_overdue(1_000)


def test_counter_may_be_older_than_what_has_come_since_it_was_asked() -> None:
    ledger = Ledger(drain_ms=10)
    ledger.step(1)
    ledger.step(2)
    assert ledger.counted(1, asked_at=1, now_ms=0)
    assert ledger.due_at_ms is None
    assert not ledger.counted(1, asked_at=2, now_ms=0)


@given(st.lists(st.sampled_from(["lost", "came"]), max_size=20))
def test_whatever_is_lost_is_found(fates: list[str]) -> None:
    """By the next number or, if there is none, by the counter."""
    ledger = Ledger(drain_ms=10)
    seen = all(ledger.step(n) for n, fate in enumerate(fates, 1) if fate == "came")
    counted = ledger.counted(len(fates), asked_at=ledger.number, now_ms=0)
    is_well = seen and counted and not ledger.is_overdue(10)
    assert is_well == ("lost" not in fates)
