"""Quotas: never more than the limit at once, all of it back after the window, bounded memory."""

from hypothesis import given
from hypothesis import strategies as st

from tidewire.edge.rest.quotas import Quota, take_all

MINUTE_MS = 60_000


def test_quota_is_used_up_and_comes_back_evenly() -> None:
    quota = Quota(3, window_ms=MINUTE_MS, keys_max=10)
    assert quota.look("a", 0).remaining == 3
    assert [quota.take("a", 0).remaining for _ in range(3)] == [2, 1, 0]
    refused = quota.take("a", 0)
    assert (refused.wait_ms, refused.remaining, refused.full_in_ms) == (20_000, 0, 60_000)
    assert (refused.limit, refused.window_seconds) == (3, 60)
    assert quota.take("b", 0).wait_ms == 0
    assert quota.take("a", 19_999).wait_ms == 1
    assert quota.take("a", 20_000).wait_ms == 0
    assert quota.look("a", 20_000 + MINUTE_MS).remaining == 3


@given(st.integers(1, 50), st.lists(st.integers(0, 5_000), max_size=200))
def test_quota_allows_no_more_than_limit_and_refill(limit: int, pauses_ms: list[int]) -> None:
    quota = Quota(limit, window_ms=MINUTE_MS, keys_max=4)
    now_ms = allowed = 0
    for pause_ms in pauses_ms:
        now_ms += pause_ms
        found = quota.take("a", now_ms)
        allowed += found.wait_ms == 0
        assert 0 <= found.remaining < limit or found.wait_ms == 0
        assert found.full_in_ms <= MINUTE_MS
        assert allowed <= limit + now_ms * limit // MINUTE_MS + 1


@given(st.integers(1, 50), st.integers(0, 200))
def test_waiting_as_told_is_enough(limit: int, tries: int) -> None:
    quota = Quota(limit, window_ms=MINUTE_MS, keys_max=4)
    for _ in range(tries):
        quota.take("a", 0)
    wait_ms = quota.look("a", 0).wait_ms
    assert (wait_ms > 0) is (tries >= limit)
    assert quota.take("a", wait_ms).wait_ms == 0


def test_several_quotas_are_taken_together_or_not_at_all() -> None:
    minute = Quota(2, window_ms=MINUTE_MS, keys_max=10)
    hour = Quota(3, window_ms=60 * MINUTE_MS, keys_max=10)
    both = (minute, hour)
    assert take_all(both, "a", 0).remaining == 1
    assert take_all(both, "a", 0).remaining == 0
    assert take_all(both, "a", 0).limit == 2
    assert hour.look("a", 0).remaining == 1
    assert take_all(both, "a", MINUTE_MS).wait_ms == 0
    refused = take_all(both, "a", 2 * MINUTE_MS)
    assert (refused.limit, refused.window_seconds) == (3, 3600)
    assert minute.look("a", 2 * MINUTE_MS).remaining == 2
