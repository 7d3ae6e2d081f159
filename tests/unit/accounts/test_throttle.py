"""The limiter: exact at its bound, per key, never more memory than it may have."""

from hypothesis import given
from hypothesis import strategies as st

from tidewire.accounts.throttle import Throttle

INTERVAL_MS = 1000


def a_throttle(burst: int = 3, keys_max: int = 10) -> Throttle:
    return Throttle(burst=burst, interval_ms=INTERVAL_MS, keys_max=keys_max)


def test_throttle_lets_a_burst_through_and_then_one_each_interval() -> None:
    throttle = a_throttle()
    assert [throttle.take("a", 0) for _ in range(4)] == [0, 0, 0, INTERVAL_MS]
    assert throttle.take("a", 1) == INTERVAL_MS - 1
    assert throttle.take("a", INTERVAL_MS) == 0
    assert throttle.take("a", INTERVAL_MS) == INTERVAL_MS
    # After a long pause the burst is there again, and no more than that.
    later_ms = 100 * INTERVAL_MS
    assert [throttle.take("a", later_ms) for _ in range(4)] == [0, 0, 0, INTERVAL_MS]


def test_throttle_does_not_count_what_it_refused() -> None:
    throttle = a_throttle(burst=1)
    assert throttle.take("a", 0) == 0
    for _ in range(50):
        assert throttle.take("a", 0) == INTERVAL_MS
    assert throttle.take("a", INTERVAL_MS) == 0


def test_throttle_counts_each_key_by_itself() -> None:
    throttle = a_throttle(burst=1)
    assert throttle.take("a", 0) == 0
    assert throttle.take("b", 0) == 0
    assert throttle.take("a", 0) > 0


def test_throttle_gives_a_good_try_back() -> None:
    throttle = a_throttle(burst=2)
    for _ in range(20):
        assert throttle.take("a", 0) == 0
        throttle.give_back("a", 0)
    assert len(throttle) == 0
    assert [throttle.take("a", 0) for _ in range(3)] == [0, 0, INTERVAL_MS]
    throttle.give_back("nobody", 0)


def test_throttle_gives_back_no_more_than_was_taken() -> None:
    throttle = a_throttle(burst=1)
    throttle.take("a", 0)
    for _ in range(5):
        throttle.give_back("a", 0)
    assert [throttle.take("a", 0) for _ in range(2)] == [0, INTERVAL_MS]


def test_throttle_forgets_what_says_nothing_any_more() -> None:
    throttle = a_throttle(keys_max=1000)
    for number in range(100):
        throttle.take(str(number), 0)
    assert len(throttle) == 100
    throttle.take("a", INTERVAL_MS)
    assert len(throttle) == 1


def test_throttle_at_its_bound_forgets_who_has_the_least_against_him() -> None:
    """Filling the memory with strange names must not make it forget the one under attack."""
    throttle = a_throttle(burst=3, keys_max=4)
    while throttle.take("victim", 0) == 0:
        pass
    for number in range(50):
        throttle.take(f"noise {number}", 0)
        assert len(throttle) <= 4
    assert throttle.take("victim", 0) > 0


@given(
    st.lists(
        st.tuples(st.sampled_from("abcdefgh"), st.booleans(), st.integers(0, 2500)), max_size=60
    )
)
def test_throttle_keeps_its_promises_whatever_comes(steps: list[tuple[str, bool, int]]) -> None:
    """Within any stretch of time no key is let through more often than burst and rate allow."""
    throttle = a_throttle(burst=2, keys_max=8)
    taken: dict[str, list[int]] = {}
    now_ms = 0
    for key, goes_on, length_ms in steps:
        now_ms += length_ms if goes_on else 0
        wait_ms = throttle.take(key, now_ms)
        assert wait_ms <= INTERVAL_MS
        if wait_ms == 0:
            taken.setdefault(key, []).append(now_ms)
        assert len(throttle) <= 8
    for times in taken.values():
        for first in range(len(times)):
            for last in range(first, len(times)):
                allowed = 2 + (times[last] - times[first]) // INTERVAL_MS
                assert last - first + 1 <= allowed
