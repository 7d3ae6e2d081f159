"""The budget of strangers: an hour's allowance at once, then evenly, for each user by itself."""

from hypothesis import given
from hypothesis import strategies as st

from tidewire.chats.strangers import StrangerBudget
from tidewire.domain.ids import UserId

ANN, BEN = UserId("user_ann"), UserId("user_ben")
HOUR_MS = 3_600_000


def test_allowance_of_an_hour_may_be_used_at_once_and_comes_back_evenly() -> None:
    budget = StrangerBudget(50)
    assert budget.take(ANN, 30, 0) == 0
    assert budget.take(ANN, 20, 0) == 0
    assert budget.take(ANN, 1, 0) == HOUR_MS // 50
    assert budget.take(BEN, 50, 0) == 0
    assert budget.take(ANN, 1, HOUR_MS // 50) == 0
    assert budget.take(ANN, 1, HOUR_MS // 50) > 0
    assert budget.take(ANN, 50, 3 * HOUR_MS) == 0


def test_group_that_does_not_fit_counts_nothing() -> None:
    budget = StrangerBudget(10)
    assert budget.take(ANN, 8, 0) == 0
    assert budget.take(ANN, 3, 0) > 0
    assert budget.take(ANN, 2, 0) == 0


def test_more_than_an_hours_allowance_is_never_let_through() -> None:
    budget = StrangerBudget(10)
    assert budget.take(ANN, 11, 0) == HOUR_MS
    assert budget.take(ANN, 10, 0) == 0


def test_people_one_knows_cost_nothing() -> None:
    budget = StrangerBudget(1)
    assert [budget.take(ANN, 0, 0) for _ in range(5)] == [0] * 5


def test_budget_can_be_shared_with_other_processes() -> None:
    one, other = StrangerBudget(2), StrangerBudget(2)
    assert one.take(ANN, 2, 0) == 0
    [(key, count)] = one.share().take_used(10)
    other.share().learn(key, count * one.share().interval_us, 0)
    assert other.take(ANN, 1, 0) > 0


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 600_000)), max_size=60))
def test_no_hour_sees_more_than_two_allowances(tries: list[tuple[int, int]]) -> None:
    budget, now_ms = StrangerBudget(10), 0
    taken: list[tuple[int, int]] = []
    for count, passed_ms in tries:
        now_ms += passed_ms
        if budget.take(ANN, count, now_ms) == 0:
            taken.append((now_ms, count))
    for start_ms, _ in taken:
        within = [count for at, count in taken if start_ms <= at < start_ms + HOUR_MS]
        assert sum(within) <= 20
