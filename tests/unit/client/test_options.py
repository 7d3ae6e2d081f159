"""Waits double, are bounded, and vary by a quarter."""

from random import Random

import pytest

from tidewire.client.options import ClientOptions, backoff_ms, varied
from tidewire.domain.limits import PAGE_MESSAGES_MAX


def test_backoff_doubles_up_to_its_bound_and_varies_by_a_quarter() -> None:
    random = Random(3)
    for failures, middle in [(1, 1_000), (2, 2_000), (5, 16_000), (6, 30_000), (999, 30_000)]:
        waits = [backoff_ms(failures, random, ClientOptions()) for _ in range(300)]
        assert min(waits) >= 0.75 * middle
        assert max(waits) <= 1.25 * middle
        assert max(waits) - min(waits) > 0.4 * middle


def test_varied_stays_within_its_part() -> None:
    random = Random(3)
    waits = [varied(1_000, random, 0.1) for _ in range(300)]
    assert 900 <= min(waits) < 910
    assert 1_090 < max(waits) <= 1_100


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"window": 0}, "window is at least 1"),
        ({"page_messages": PAGE_MESSAGES_MAX + 1}, "page_messages is at most"),
        ({"unstored_max": 10, "page_messages": 11}, "unstored_max holds at least one page"),
        ({"backoff_ms": 2_000, "backoff_ms_max": 1_000}, "backoff_ms_max is at least backoff_ms"),
    ],
)
def test_impossible_options_are_refused(wrong: dict[str, int], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        ClientOptions(**wrong)
