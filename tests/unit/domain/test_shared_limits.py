"""Limits over several processes: together one limit and a bounded surplus, which is paid back."""

from hypothesis import given
from hypothesis import strategies as st

from tidewire.accounts.throttle import Throttle
from tidewire.domain.shared_limits import SharedView
from tidewire.gateway.limits import KeyedRate, Rate

RATE, BURST, EXCHANGE_MS = 10, 20, 200


class Board:
    """What the script keeps in Redis: when each key is as if unused."""

    def __init__(self) -> None:
        self.clear_at_us: dict[str, int] = {}

    def exchange(self, view: SharedView, now_ms: int) -> None:
        now_us = now_ms * 1000
        for key, used in view.take_used(1_000):
            clear_at_us = max(self.clear_at_us.get(key, 0), now_us) + used * view.interval_us
            self.clear_at_us[key] = max(clear_at_us, now_us)
            view.learn(key, self.clear_at_us[key] - now_us, now_ms)


def view(**changed: int) -> SharedView:
    settings = {"interval_us": 100_000, "burst": 1, "keys_max": 10}
    return SharedView(**(settings | changed))


def allowed_each_second(gateways: int, seconds: int, phases: list[int]) -> list[int]:
    """How many sends all gateways together allow somebody who tries at all of them all the time."""
    board = Board()
    rates: list[KeyedRate[str]] = [
        KeyedRate(Rate(RATE, burst=BURST), keys_max=10) for _ in range(gateways)
    ]
    views = [rate.share() for rate in rates]
    counts = [0] * seconds
    for now_ms in range(0, seconds * 1000, 5):
        for rate, one, phase in zip(rates, views, phases, strict=True):
            if now_ms % EXCHANGE_MS == phase:
                board.exchange(one, now_ms)
            if rate.take("ann", now_ms) == 0:
                counts[now_ms // 1000] += 1
    return counts


def test_one_process_allows_nearly_what_it_would_alone() -> None:
    """What is used counts from its exchange on: a bucket fills up that much later."""
    alone: KeyedRate[str] = KeyedRate(Rate(RATE, burst=BURST), keys_max=10)
    allowed = sum(alone.take("ann", now_ms) == 0 for now_ms in range(0, 10_000, 5))
    assert allowed - RATE * EXCHANGE_MS // 1000 <= sum(allowed_each_second(1, 10, [0])) <= allowed


@given(st.integers(2, 4), st.lists(st.sampled_from(range(0, 200, 5)), min_size=4, max_size=4))
def test_several_processes_allow_one_limit_and_a_bounded_surplus(
    gateways: int, phases: list[int]
) -> None:
    seconds = 20
    counts = allowed_each_second(gateways, seconds, phases[:gateways])
    heard_after_s = 2 * EXCHANGE_MS / 1000
    surplus = (gateways - 1) * (BURST + RATE * heard_after_s)
    assert sum(counts) <= RATE * seconds + BURST + surplus
    # It is paid back: in the end it is one limit.
    late = sum(counts[10:])
    assert late <= RATE * 10 + gateways * (1 + RATE * heard_after_s)
    assert late >= RATE * 10 / 2


def test_nothing_heard_holds_nobody_back() -> None:
    assert view().wait_ms("ann", 0) == 0


def test_what_others_used_is_waited_for() -> None:
    one = view(burst=2)
    one.learn("ann", 250_000, 1_000)
    assert one.wait_ms("ann", 1_000) == 150
    assert one.wait_ms("ann", 1_149) == 1
    assert one.wait_ms("ann", 1_150) == 0
    # Whoever had to wait is asked about again.
    assert one.take_used(10) == [("ann", 0)]


def test_what_was_used_meanwhile_is_added_to_what_is_heard() -> None:
    one = view()
    one.spend("ann", 0)
    assert one.take_used(10) == [("ann", 1)]
    one.spend("ann", 0)
    one.learn("ann", 100_000, 0)
    assert one.wait_ms("ann", 0) == 200


def test_what_was_given_back_is_free_again() -> None:
    one = view()
    one.spend("ann", 0)
    one.spend("ann", 0, -1)
    assert one.take_used(10) == [("ann", 0)]
    assert one.wait_ms("ann", 0) == 0
    assert len(one) == 0


def test_memory_is_bounded() -> None:
    one = view(keys_max=3)
    for number in range(10):
        one.spend(f"user{number}", 0)
    assert len(one) == 3
    assert len(one.take_used(100)) == 3


def test_exchange_is_bounded_and_fair() -> None:
    one = view()
    for name in ("ann", "ben", "cem"):
        one.spend(name, 0)
    assert [key for key, _ in one.take_used(2)] == ["ann", "ben"]
    one.spend("ann", 0)
    assert [key for key, _ in one.take_used(2)] == ["cem", "ann"]


def test_what_is_clear_is_forgotten() -> None:
    one = view()
    one.spend("ann", 0)
    one.spend("ben", 1_000)
    assert len(one) == 1


def test_throttle_counts_tries_elsewhere_and_gives_back() -> None:
    board = Board()
    throttles = [Throttle(burst=2, interval_ms=1_000, keys_max=10) for _ in range(2)]
    views = [throttle.share() for throttle in throttles]

    def exchange() -> None:
        for one in views * 2:
            board.exchange(one, 0)

    here, there = throttles
    assert [here.take("ann", 0), here.take("ann", 0)] == [0, 0]
    exchange()
    # Nothing was tried there, so nothing is known there, until somebody tries.
    assert there.take("ann", 0) == 0
    exchange()
    assert there.take("ann", 0) == 2_000
    here.give_back("ann", 0)
    here.give_back("ann", 0)
    exchange()
    assert there.take("ann", 0) == 0
