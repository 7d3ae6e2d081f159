"""The machine's clocks say milliseconds."""

import datetime

from tidewire.runtime.clock import SystemClock


def test_wall_ms_is_the_date_in_milliseconds() -> None:
    year = datetime.datetime.fromtimestamp(SystemClock().wall_ms() / 1000, datetime.UTC).year
    assert 2024 <= year < 2200


def test_monotonic_ms_never_goes_back() -> None:
    clock = SystemClock()
    readings = [clock.monotonic_ms() for _ in range(1000)]
    assert readings == sorted(readings)
