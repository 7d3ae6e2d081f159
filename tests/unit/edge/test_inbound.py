"""The budget of a WebSocket: at once, in the long run, and what becomes of those who go on."""

from tidewire.edge.inbound import OVERRUN, InboundBudget, InboundRates
from tidewire.edge.options import EdgeOptions


def a_budget(
    *, per_second: int = 1_000, burst: int = 2_000, excess_ms: int = 5_000
) -> InboundBudget:
    return InboundBudget(
        InboundRates(
            EdgeOptions(
                inbound_bytes_per_second=per_second,
                inbound_burst_bytes=burst,
                inbound_excess_ms_max=excess_ms,
            )
        )
    )


def test_burst_is_free_and_then_it_is_read_at_the_rate() -> None:
    budget = a_budget()
    assert budget.spend(2_000, 0) == 0
    assert budget.spend(100, 0) == 100
    assert budget.spend(100, 100) == 100
    assert budget.spend(100, 200) == 100


def test_what_was_not_used_comes_back_and_no_more_than_the_burst() -> None:
    budget = a_budget()
    assert budget.spend(2_000, 0) == 0
    assert budget.spend(500, 500) == 0
    assert budget.spend(2_000, 100_000) == 0
    assert budget.spend(1, 100_000) == 1


def test_second_burst_on_top_is_an_overrun() -> None:
    budget = a_budget()
    assert budget.spend(4_000, 0) == 2_000
    assert a_budget().spend(4_001, 0) == OVERRUN


def test_peer_that_goes_on_beyond_its_budget_is_an_overrun() -> None:
    budget = a_budget()
    now_ms, paused_ms = 0, 0
    while (pause_ms := budget.spend(1_000, now_ms)) != OVERRUN:
        paused_ms += pause_ms
        now_ms += pause_ms
    assert paused_ms == 5_000


def test_pauses_of_the_same_time_count_once() -> None:
    budget = a_budget(excess_ms=1_000)
    assert budget.spend(2_500, 0) == 500
    assert budget.spend(100, 0) == 600
    assert budget.spend(400, 0) == 1_000
    assert budget.spend(1, 0) == OVERRUN


def test_peer_that_is_too_fast_now_and_then_is_read_for_ever() -> None:
    budget = a_budget()
    for minute in range(100):
        assert budget.spend(3_000, minute * 60_000) == 1_000
