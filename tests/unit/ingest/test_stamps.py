"""Stamps follow the calendar, and hold still for a while when it falls (B4)."""

from hypothesis import given
from hypothesis import strategies as st

from tidewire.ingest.service import HELD_MS_MAX, Stamps

DATE_MS = 1_700_000_000_000
NOW_MS = 5_000
DAY_MS = 86_400_000


def test_stamp_is_what_the_calendar_says() -> None:
    stamps = Stamps()
    assert stamps.next(DATE_MS, NOW_MS) == DATE_MS
    assert stamps.next(DATE_MS + 7, NOW_MS + 7) == DATE_MS + 7


def test_stamp_does_not_fall_when_the_clock_is_corrected() -> None:
    stamps = Stamps()
    stamps.next(DATE_MS, NOW_MS)
    assert stamps.next(DATE_MS - 900, NOW_MS + 100) == DATE_MS
    assert stamps.next(DATE_MS - 1, NOW_MS + 999) == DATE_MS
    assert stamps.next(DATE_MS + 1, NOW_MS + 1_001) == DATE_MS + 1


def test_stamp_follows_a_clock_that_was_ahead_and_is_set_right() -> None:
    stamps = Stamps()
    stamps.next(DATE_MS + DAY_MS, NOW_MS)
    # Nothing is sent for a while: the time is held from the first stamp that would fall.
    assert stamps.next(DATE_MS + 60_000, NOW_MS + 60_000) == DATE_MS + DAY_MS
    late_ms = 60_000 + HELD_MS_MAX
    assert stamps.next(DATE_MS + late_ms - 1, NOW_MS + late_ms - 1) == DATE_MS + DAY_MS
    assert stamps.next(DATE_MS + late_ms, NOW_MS + late_ms) == DATE_MS + late_ms
    assert stamps.next(DATE_MS + late_ms + 1, NOW_MS + late_ms + 1) == DATE_MS + late_ms + 1


def test_each_fall_is_held_anew() -> None:
    stamps = Stamps()
    stamps.next(DATE_MS, NOW_MS)
    stamps.next(DATE_MS - 1, NOW_MS + 1)
    stamps.next(DATE_MS + 5, NOW_MS + 2)
    assert stamps.next(DATE_MS + 1, NOW_MS + HELD_MS_MAX) == DATE_MS + 5


@given(
    steps=st.lists(
        st.tuples(st.integers(0, 20_000), st.integers(-2 * DAY_MS, 2 * DAY_MS)), max_size=30
    )
)
def test_stamp_is_the_calendar_or_was_held_for_a_short_while(
    steps: list[tuple[int, int]],
) -> None:
    stamps = Stamps()
    wall_ms, now_ms = DATE_MS, NOW_MS
    true_at_ms = now_ms
    last_ms = stamps.next(wall_ms, now_ms)
    for passed_ms, jump_ms in steps:
        now_ms += passed_ms
        wall_ms += passed_ms + jump_ms
        stamp_ms = stamps.next(wall_ms, now_ms)
        if stamp_ms == wall_ms:
            true_at_ms = now_ms
        else:
            assert stamp_ms == last_ms > wall_ms, "it is held, and nothing else"
            assert now_ms - true_at_ms < HELD_MS_MAX + 20_000
        last_ms = stamp_ms
