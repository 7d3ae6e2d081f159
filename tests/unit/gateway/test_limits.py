"""Rates, budgets and gates: what passes, what does not, and that memory stays bounded."""

import hypothesis.strategies as st
from hypothesis import given

from tidewire.domain.ids import ChatId, UserId
from tidewire.gateway.limits import (
    FLOOD_TOLD_EVERY_MS,
    KeyedRate,
    OffenceBudget,
    Offences,
    Rate,
    SendLimiter,
    TypingGate,
    WindowCount,
)

ANN = UserId("ann")
BEN = UserId("ben")
ONE = ChatId("chat_1")
TWO = ChatId("chat_2")


def taken(rate: KeyedRate[str], now_ms: int, key: str = "k", tries: int = 1000) -> int:
    """How many of so many tries at one instant pass."""
    return sum(rate.take(key, now_ms) == 0 for _ in range(tries))


def test_rate_allows_a_burst_and_then_so_many_a_second() -> None:
    rate: KeyedRate[str] = KeyedRate(Rate(10, burst=20), keys_max=10)
    assert taken(rate, 5_000) == 20
    assert rate.take("k", 5_000) == 100
    assert rate.take("k", 5_060) == 40
    assert taken(rate, 5_100) == 1
    assert taken(rate, 6_100) == 10
    assert taken(rate, 60_000) == 20


def test_rate_counts_per_minute() -> None:
    rate: KeyedRate[str] = KeyedRate(Rate(100, per_seconds=60, burst=100), keys_max=10)
    assert taken(rate, 0) == 100
    assert rate.take("k", 0) == 600
    assert taken(rate, 60_000) == 100


def test_rate_waits_exactly_as_long_as_it_says() -> None:
    rate: KeyedRate[str] = KeyedRate(Rate(30, burst=1), keys_max=10)
    assert rate.take("k", 1_000) == 0
    wait_ms = rate.take("k", 1_000)
    assert rate.take("k", 1_000 + wait_ms - 1) > 0
    assert rate.take("k", 1_000 + wait_ms) == 0


@given(st.lists(st.integers(0, 400), max_size=60), st.integers(1, 50), st.integers(1, 20))
def test_rate_never_passes_more_than_its_bound(steps: list[int], count: int, burst: int) -> None:
    rate: KeyedRate[str] = KeyedRate(Rate(count, burst=burst), keys_max=4)
    now_ms = 0
    passed_at_ms: list[int] = []
    for step_ms in steps:
        now_ms += step_ms
        if rate.take("k", now_ms) == 0:
            passed_at_ms.append(now_ms)
    for first in range(len(passed_at_ms)):
        for last in range(first, len(passed_at_ms)):
            elapsed_ms = passed_at_ms[last] - passed_at_ms[first]
            # One more for the interval that has begun, and one for rounding it to microseconds.
            assert last - first + 1 <= burst + elapsed_ms * count / 1000 + 2


def test_keyed_rate_keeps_keys_apart() -> None:
    rate: KeyedRate[str] = KeyedRate(Rate(1, burst=1), keys_max=10)
    assert rate.take("a", 0) == 0
    assert rate.take("a", 0) > 0
    assert rate.take("b", 0) == 0


def test_keyed_rate_remembers_over_a_change_of_generations() -> None:
    rate: KeyedRate[str] = KeyedRate(Rate(1, per_seconds=10, burst=2), keys_max=100)
    assert taken(rate, 0, "a") == 2
    # A new key makes the next generation, after which the first key is in the old one.
    rate.spend("b", 20_002)
    assert taken(rate, 20_002, "a") == 2
    assert rate.take("a", 20_002) > 0


def test_keyed_rate_forgets_what_is_full_again() -> None:
    rate: KeyedRate[int] = KeyedRate(Rate(10, burst=10), keys_max=1_000_000)
    for now_ms in range(0, 100_000, 10):
        rate.spend(now_ms, now_ms)
    # A bucket is full again after a second: no more than two of those are remembered.
    assert len(rate) <= 2 * 102


def test_keyed_rate_is_bounded_whatever_comes() -> None:
    rate: KeyedRate[int] = KeyedRate(Rate(1, per_seconds=60, burst=1), keys_max=100)
    for key in range(10_000):
        rate.spend(key, 0)
        assert len(rate) <= 100


def test_send_limiter_counts_per_chat_and_per_user() -> None:
    limiter = SendLimiter(per_chat=Rate(10, burst=20), per_user=Rate(30, burst=30), keys_max=1_000)
    assert sum(limiter.take(ANN, ONE, 0) == 0 for _ in range(50)) == 20
    assert sum(limiter.take(ANN, TWO, 0) == 0 for _ in range(50)) == 10
    assert sum(limiter.take(BEN, ONE, 0) == 0 for _ in range(50)) == 20
    # The longer of the two waits is the one to tell.
    assert limiter.take(ANN, ONE, 0) == 100
    assert limiter.take(ANN, TWO, 0) == 34
    assert len(limiter) == 5


def test_send_limiter_spends_nothing_on_what_it_refuses() -> None:
    limiter = SendLimiter(per_chat=Rate(1, burst=1), per_user=Rate(1, burst=10), keys_max=100)
    assert limiter.take(ANN, ONE, 0) == 0
    for _ in range(100):
        assert limiter.take(ANN, ONE, 0) > 0
    assert limiter.take(ANN, TWO, 0) == 0


def test_offence_budget_counts_within_a_sliding_window() -> None:
    budget = OffenceBudget(3, window_ms=60_000)
    assert not budget.spend(0)
    assert not budget.spend(30_000)
    assert not budget.spend(60_000)
    assert budget.spend(61_000)


def test_window_count_counts_anew_in_every_window() -> None:
    count = WindowCount(3, window_ms=60_000)
    assert [count.spend(0), count.spend(1), count.spend(60_000)] == [False, False, False]
    assert [count.spend(60_001), count.spend(60_002)] == [False, True]


def test_offences_are_counted_apart() -> None:
    offences = Offences(invalid_max=2, throttled_max=2, window_ms=1_000)
    assert not offences.invalid(0)
    assert not offences.throttled(0)
    assert offences.invalid(1)
    assert offences.throttled(1)


def test_offences_tell_of_a_flood_now_and_then() -> None:
    offences = Offences(invalid_max=2, throttled_max=2, window_ms=1_000)
    assert offences.flooded(0)
    assert not offences.flooded(FLOOD_TOLD_EVERY_MS - 1)
    assert offences.flooded(FLOOD_TOLD_EVERY_MS)


def test_typing_gate_passes_a_start_a_second_in_each_chat() -> None:
    gate = TypingGate(interval_ms=1_000, chats_max=8)
    assert gate.start(ONE, 0)
    assert not gate.start(ONE, 999)
    assert gate.start(TWO, 999)
    assert gate.start(ONE, 1_000)


def test_typing_gate_passes_one_stop_after_a_start() -> None:
    gate = TypingGate(interval_ms=1_000, chats_max=8)
    assert not gate.stop(ONE)
    assert gate.start(ONE, 0)
    assert gate.stop(ONE)
    assert not gate.stop(ONE)


def test_typing_gate_is_bounded_and_lets_the_oldest_go() -> None:
    gate = TypingGate(interval_ms=1_000, chats_max=2)
    assert gate.start(ChatId("a"), 0)
    assert gate.start(ChatId("b"), 500)
    assert not gate.start(ChatId("c"), 999)
    assert gate.start(ChatId("c"), 1_000)
    assert len(gate) == 2
    assert not gate.stop(ChatId("a"))
    assert gate.stop(ChatId("b"))


def test_sends_through_other_processes_count_per_chat_and_per_user() -> None:
    rate = Rate(1, burst=5)
    limiter = SendLimiter(per_chat=rate, per_user=rate, keys_max=10)
    views = limiter.share()
    assert limiter.take(UserId("ann"), ChatId("c1"), 0) == 0
    assert views["send_chat"].take_used(10) == [("ann c1", 1)]
    assert views["send_user"].take_used(10) == [("ann", 1)]
    # Elsewhere he has used up what he has in this chat.
    views["send_chat"].learn("ann c1", 6_000_000, 0)
    assert limiter.take(UserId("ann"), ChatId("c1"), 0) == 2_000
    assert limiter.take(UserId("ann"), ChatId("c2"), 0) == 0
    views["send_user"].learn("ann", 7_000_000, 0)
    # And what he has sent here since is not in that yet.
    assert limiter.take(UserId("ann"), ChatId("c2"), 0) == 4_000
