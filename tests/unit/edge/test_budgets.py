"""Connections are counted by address and in total, and never forgotten or counted twice.

The budget of a WebSocket: at once, in the long run, and what becomes of those who go on.
"""

import random

from tidewire.edge.budgets import OVERRUN, Doors, InboundBudget, InboundRates, Visit
from tidewire.edge.options import EdgeOptions

ANN, BOB = "192.0.2.1", "192.0.2.2"


def some_doors(**named: int) -> Doors:
    return Doors(EdgeOptions(**named))  # type: ignore[arg-type]


def entered(doors: Doors, address: str | None, count: int) -> list[Visit]:
    visits = [doors.enter(address) for _ in range(count)]
    assert all(visits)
    return [visit for visit in visits if visit is not None]


def test_address_has_at_most_so_many_http_connections() -> None:
    doors = some_doors(address_http_connections_max=3)
    visits = entered(doors, ANN, 3)
    assert doors.enter(ANN) is None
    assert doors.enter(BOB) is not None
    visits[0].leave()
    visits[0].leave()
    assert doors.enter(ANN) is not None
    assert doors.enter(ANN) is None


def test_all_addresses_together_have_at_most_so_many_http_connections() -> None:
    doors = some_doors(http_connections_max=2)
    visits = [*entered(doors, ANN, 1), *entered(doors, None, 1)]
    assert doors.enter(BOB) is None
    assert doors.enter(None) is None
    visits[1].leave()
    assert doors.enter(BOB) is not None


def test_websockets_make_room_for_http_but_count_for_their_address() -> None:
    doors = some_doors(address_http_connections_max=1, address_connections_max=2)
    (one,) = entered(doors, ANN, 1)
    assert one.upgraded(ANN)
    (other,) = entered(doors, ANN, 1)
    assert other.upgraded(ANN)
    assert doors.http_count == 0
    assert doors.enter(ANN) is None
    other.leave()
    assert doors.enter(ANN) is not None


def test_websockets_that_a_proxy_brings_count_for_those_behind_it() -> None:
    doors = some_doors(address_connections_max=2)
    visits = entered(doors, None, 4)
    assert [visit.upgraded(ANN) for visit in visits[:3]] == [True, True, False]
    assert visits[3].upgraded(BOB)
    assert doors.enter(ANN) is None
    visits[0].leave()
    assert visits[2].upgraded(ANN)


def test_address_that_sends_malformed_requests_is_barred_until_its_share_is_back() -> None:
    doors = some_doors(address_faults_per_minute=60)
    for _ in range(60):
        assert not doors.is_barred(ANN, 0)
        doors.fault(ANN, 0)
    assert doors.is_barred(ANN, 0)
    assert doors.is_barred(ANN, 999)
    assert not doors.is_barred(BOB, 0)
    assert not doors.is_barred(ANN, 1_000)


def test_nothing_is_left_when_all_have_gone() -> None:
    chance = random.Random(7)
    doors = some_doors(address_connections_max=5, address_http_connections_max=3)
    inside: list[Visit] = []
    for _ in range(2_000):
        visit = doors.enter(chance.choice([ANN, BOB, None]))
        if visit is not None:
            if chance.random() < 0.5:
                visit.upgraded(chance.choice([ANN, BOB]))
            inside.append(visit)
        if inside and chance.random() < 0.6:
            inside.pop(chance.randrange(len(inside))).leave()
    for visit in inside:
        visit.leave()
    assert doors.http_count == 0
    assert doors._http == {}
    assert doors._inside == {}


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
