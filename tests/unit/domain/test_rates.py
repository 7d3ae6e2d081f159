"""The rate limiter: exact at its bound, per key, in bounded memory, and over several processes."""

from hypothesis import given
from hypothesis import strategies as st

from tidewire.domain.rates import _LOOKS, Limiter, Rate, SharedView

INTERVAL_MS = 1000


def taken(rate: Limiter[str], now_ms: int, key: str = "k", tries: int = 1000) -> int:
    """How many of so many tries at one instant pass."""
    return sum(rate.take(key, now_ms) == 0 for _ in range(tries))


def test_rate_allows_a_burst_and_then_so_many_a_second() -> None:
    rate: Limiter[str] = Limiter(Rate(10, burst=20), keys_max=10)
    assert taken(rate, 5_000) == 20
    assert rate.take("k", 5_000) == 100
    assert rate.take("k", 5_060) == 40
    assert taken(rate, 5_100) == 1
    assert taken(rate, 6_100) == 10
    assert taken(rate, 60_000) == 20


def test_rate_counts_per_minute() -> None:
    rate: Limiter[str] = Limiter(Rate(100, per_ms=60_000, burst=100), keys_max=10)
    assert taken(rate, 0) == 100
    assert rate.take("k", 0) == 600
    assert taken(rate, 60_000) == 100


def test_rate_waits_exactly_as_long_as_it_says() -> None:
    rate: Limiter[str] = Limiter(Rate(30, burst=1), keys_max=10)
    assert rate.take("k", 1_000) == 0
    wait_ms = rate.take("k", 1_000)
    assert rate.take("k", 1_000 + wait_ms - 1) > 0
    assert rate.take("k", 1_000 + wait_ms) == 0


@given(st.lists(st.integers(0, 400), max_size=60), st.integers(1, 50), st.integers(1, 20))
def test_rate_never_passes_more_than_its_bound(steps: list[int], count: int, burst: int) -> None:
    rate: Limiter[str] = Limiter(Rate(count, burst=burst), keys_max=4)
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
    rate: Limiter[str] = Limiter(Rate(1, burst=1), keys_max=10)
    assert rate.take("a", 0) == 0
    assert rate.take("a", 0) > 0
    assert rate.take("b", 0) == 0


def test_keyed_rate_remembers_over_a_change_of_generations() -> None:
    rate: Limiter[str] = Limiter(Rate(1, per_ms=10_000, burst=2), keys_max=100)
    assert taken(rate, 0, "a") == 2
    # A new key makes the next generation, after which the first key is in the old one.
    rate.spend("b", 20_002)
    assert taken(rate, 20_002, "a") == 2
    assert rate.take("a", 20_002) > 0


def test_keyed_rate_forgets_what_is_full_again() -> None:
    rate: Limiter[int] = Limiter(Rate(10, burst=10), keys_max=1_000_000)
    for now_ms in range(0, 100_000, 10):
        rate.spend(now_ms, now_ms)
    # A bucket is full again after a second: no more than two of those are remembered.
    assert len(rate) <= 2 * 102


def test_keyed_rate_is_bounded_whatever_comes() -> None:
    rate: Limiter[int] = Limiter(Rate(1, per_ms=60_000, burst=1), keys_max=100)
    for key in range(10_000):
        rate.spend(key, 0)
        assert len(rate) <= 100


def a_limiter(burst: int = 3, keys_max: int = 10) -> Limiter[str]:
    return Limiter(Rate(1, per_ms=INTERVAL_MS, burst=burst), keys_max=keys_max)


def test_limiter_lets_a_burst_through_and_then_one_each_interval() -> None:
    limiter = a_limiter()
    assert [limiter.take("a", 0) for _ in range(4)] == [0, 0, 0, INTERVAL_MS]
    assert limiter.take("a", 1) == INTERVAL_MS - 1
    assert limiter.take("a", INTERVAL_MS) == 0
    assert limiter.take("a", INTERVAL_MS) == INTERVAL_MS
    # After a long pause the burst is there again, and no more than that.
    later_ms = 100 * INTERVAL_MS
    assert [limiter.take("a", later_ms) for _ in range(4)] == [0, 0, 0, INTERVAL_MS]


def test_limiter_does_not_count_what_it_refused() -> None:
    limiter = a_limiter(burst=1)
    assert limiter.take("a", 0) == 0
    for _ in range(50):
        assert limiter.take("a", 0) == INTERVAL_MS
    assert limiter.take("a", INTERVAL_MS) == 0


def test_limiter_counts_each_key_by_itself() -> None:
    limiter = a_limiter(burst=1)
    assert limiter.take("a", 0) == 0
    assert limiter.take("b", 0) == 0
    assert limiter.take("a", 0) > 0


def test_limiter_gives_a_good_try_back() -> None:
    limiter = a_limiter(burst=2)
    for _ in range(20):
        assert limiter.take("a", 0) == 0
        limiter.spend("a", 0, -1)
    assert len(limiter) == 0
    assert [limiter.take("a", 0) for _ in range(3)] == [0, 0, INTERVAL_MS]
    limiter.spend("nobody", 0, -1)


def test_limiter_gives_back_no_more_than_was_taken() -> None:
    limiter = a_limiter(burst=1)
    limiter.take("a", 0)
    for _ in range(5):
        limiter.spend("a", 0, -1)
    assert [limiter.take("a", 0) for _ in range(2)] == [0, INTERVAL_MS]


def test_limiter_forgets_what_says_nothing_any_more() -> None:
    limiter = a_limiter(keys_max=1000)
    for number in range(100):
        limiter.take(str(number), 0)
    assert len(limiter) == 100
    limiter.take("a", INTERVAL_MS)
    assert len(limiter) == 1


def test_limiter_at_its_bound_forgets_who_has_used_least() -> None:
    """Filling the memory with strange names must not make it forget the one under attack."""
    limiter = a_limiter(burst=3, keys_max=4)
    while limiter.take("victim", 0) == 0:
        pass
    for number in range(50):
        limiter.take(f"noise {number}", 0)
        assert len(limiter) <= 4
    assert limiter.take("victim", 0) > 0


@given(
    st.lists(
        st.tuples(st.sampled_from("abcdefgh"), st.booleans(), st.integers(0, 2500)), max_size=60
    )
)
def test_limiter_keeps_its_promises_whatever_comes(steps: list[tuple[str, bool, int]]) -> None:
    """Within any stretch of time no key is let through more often than burst and rate allow."""
    limiter = a_limiter(burst=2, keys_max=8)
    taken: dict[str, list[int]] = {}
    now_ms = 0
    for key, goes_on, length_ms in steps:
        now_ms += length_ms if goes_on else 0
        wait_ms = limiter.take(key, now_ms)
        assert wait_ms <= INTERVAL_MS
        if wait_ms == 0:
            taken.setdefault(key, []).append(now_ms)
        assert len(limiter) <= 8
    for times in taken.values():
        for first in range(len(times)):
            for last in range(first, len(times)):
                allowed = 2 + (times[last] - times[first]) // INTERVAL_MS
                assert last - first + 1 <= allowed


def test_several_are_taken_together_or_not_at_all() -> None:
    limiter = a_limiter(burst=10)
    assert limiter.take("a", 0, 8) == 0
    assert limiter.take("a", 0, 3) == INTERVAL_MS
    assert limiter.take("a", 0, 2) == 0
    assert limiter.take("a", 0, 3) == 3 * INTERVAL_MS
    assert limiter.take("b", 0, 10) == 0
    assert limiter.take("a", 3 * INTERVAL_MS, 3) == 0
    assert limiter.used_us("a", 3 * INTERVAL_MS) == 10 * INTERVAL_MS * 1000


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 600_000)), max_size=60))
def test_no_window_sees_more_than_two_bursts(tries: list[tuple[int, int]]) -> None:
    window_ms, now_ms = 3_600_000, 0
    limiter: Limiter[str] = Limiter(Rate(10, per_ms=window_ms, burst=10), keys_max=4)
    taken: list[tuple[int, int]] = []
    for count, passed_ms in tries:
        now_ms += passed_ms
        if limiter.take("a", now_ms, count) == 0:
            taken.append((now_ms, count))
    for start_ms, _ in taken:
        within = [count for at, count in taken if start_ms <= at < start_ms + window_ms]
        assert sum(within) <= 20


RATE, BURST, EXCHANGE_MS = 10, 20, 200
TRIED_MS = 20
"""How often a person tries: five times as often as is allowed, at each process."""


class Board:
    """What the script keeps in Redis: when each key is as if unused."""

    def __init__(self) -> None:
        self.clear_at_us: dict[str, int] = {}

    def exchange(self, view: SharedView, now_ms: int) -> None:
        now_us = now_ms * 1000
        for key, used in view.take_used(1_000):
            clear_at_us = max(self.clear_at_us.get(key, 0), now_us) + used * view.rate.interval_us
            self.clear_at_us[key] = max(clear_at_us, now_us)
            view.learn(key, self.clear_at_us[key] - now_us, now_ms)


def view(**changed: int) -> SharedView:
    settings = {"burst": 1, "keys_max": 10} | changed
    return SharedView(Rate(10, burst=settings["burst"]), keys_max=settings["keys_max"])


def allowed_each_second(gateways: int, seconds: int, phases: list[int]) -> list[int]:
    """How many sends all gateways together allow somebody who tries at all of them all the time."""
    board = Board()
    rates: list[Limiter[str]] = [
        Limiter(Rate(RATE, burst=BURST), keys_max=10) for _ in range(gateways)
    ]
    views = [rate.share() for rate in rates]
    counts = [0] * seconds
    for now_ms in range(0, seconds * 1000, TRIED_MS):
        for rate, one, phase in zip(rates, views, phases, strict=True):
            if now_ms % EXCHANGE_MS == phase:
                board.exchange(one, now_ms)
            if rate.take("ann", now_ms) == 0:
                counts[now_ms // 1000] += 1
    return counts


def test_one_process_allows_nearly_what_it_would_alone() -> None:
    """What is used counts from its exchange on: a bucket fills up that much later."""
    alone: Limiter[str] = Limiter(Rate(RATE, burst=BURST), keys_max=10)
    allowed = sum(alone.take("ann", now_ms) == 0 for now_ms in range(0, 10_000, 5))
    assert allowed - RATE * EXCHANGE_MS // 1000 <= sum(allowed_each_second(1, 10, [0])) <= allowed


@given(
    st.integers(2, 4),
    st.lists(st.sampled_from(range(0, EXCHANGE_MS, TRIED_MS)), min_size=4, max_size=4),
)
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


def test_limiter_counts_tries_elsewhere_and_gives_back() -> None:
    board = Board()
    limiters: list[Limiter[str]] = [Limiter(Rate(1, burst=2), keys_max=10) for _ in range(2)]
    views = [limiter.share() for limiter in limiters]

    def exchange() -> None:
        for one in views * 2:
            board.exchange(one, 0)

    here, there = limiters
    assert [here.take("ann", 0), here.take("ann", 0)] == [0, 0]
    exchange()
    # Nothing was tried there, so nothing is known there, until somebody tries.
    assert there.take("ann", 0) == 0
    exchange()
    assert there.take("ann", 0) == 2_000
    here.spend("ann", 0, -1)
    here.spend("ann", 0, -1)
    exchange()
    assert there.take("ann", 0) == 0


def test_many_full_buckets_are_forgotten_bit_by_bit() -> None:
    rate: Limiter[str] = Limiter(Rate(1, burst=1), keys_max=10_000)
    for number in range(1_000):
        rate.spend(f"old {number}", 0)
    rate.spend("new", 60_000)
    assert 1_000 - _LOOKS <= len(rate) <= 1_001
    for number in range(1_000 // _LOOKS + 1):
        rate.spend(f"newer {number}", 60_000)
    assert len(rate) <= 1_000 // _LOOKS + 2


def test_keys_in_use_do_not_keep_full_buckets_behind_them() -> None:
    rate: Limiter[str] = Limiter(Rate(1, burst=100), keys_max=10_000)
    for number in range(2 * _LOOKS):
        rate.spend(f"busy {number}", 0, 60)
    for number in range(100):
        rate.spend(f"rested {number}", 0)
    # Looks are rare where they find little, so some time has to pass.
    for now_ms in range(2_000, 3_000, 100):
        rate.spend(f"new {now_ms}", now_ms)
    assert len(rate) == 2 * _LOOKS + 10
    assert rate.used_us("busy 0", 3_000) == 57_000_000
