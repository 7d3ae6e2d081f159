"""Waits double, are bounded, and vary by a quarter."""

from random import Random

from tidewire.client.backoff import backoff_ms, varied


def test_backoff_doubles_up_to_its_bound_and_varies_by_a_quarter() -> None:
    random = Random(3)
    for failures, middle in [(1, 1_000), (2, 2_000), (5, 16_000), (6, 30_000), (999, 30_000)]:
        waits = [
            backoff_ms(failures, random, first_ms=1_000, longest_ms=30_000) for _ in range(300)
        ]
        assert min(waits) >= 0.75 * middle
        assert max(waits) <= 1.25 * middle
        assert max(waits) - min(waits) > 0.4 * middle


def test_varied_stays_within_its_part() -> None:
    random = Random(3)
    waits = [varied(1_000, random, 0.1) for _ in range(300)]
    assert 900 <= min(waits) < 910
    assert 1_090 < max(waits) <= 1_100
