"""Instants have one form on the wire."""

from datetime import UTC, datetime

import pytest
from hypothesis import given

from tests.unit.wire.strategies import texts, times_ms
from tidewire.wire.timestamps import WIRE_TIME_MS_MAX, format_time_ms, parse_time_ms


@pytest.mark.parametrize(
    ("time_ms", "text"),
    [
        (0, "1970-01-01T00:00:00.000Z"),
        (1, "1970-01-01T00:00:00.001Z"),
        (999, "1970-01-01T00:00:00.999Z"),
        (951_782_400_000, "2000-02-29T00:00:00.000Z"),
        (1_935_660_007_412, "2031-05-04T11:20:07.412Z"),
        (WIRE_TIME_MS_MAX, "9999-12-31T23:59:59.999Z"),
    ],
)
def test_time_is_written_and_read_as_the_contract_shows(time_ms: int, text: str) -> None:
    assert format_time_ms(time_ms) == text
    assert parse_time_ms(text) == time_ms


@given(times_ms)
def test_time_survives_the_round_trip_and_agrees_with_the_calendar(time_ms: int) -> None:
    text = format_time_ms(time_ms)
    assert parse_time_ms(text) == time_ms
    calendar = datetime.fromtimestamp(time_ms // 1000, UTC)
    assert text == f"{calendar:%Y-%m-%dT%H:%M:%S}.{time_ms % 1000:03d}Z"


@given(times_ms, times_ms)
def test_times_sort_as_their_texts_do(one_ms: int, other_ms: int) -> None:
    assert (one_ms < other_ms) == (format_time_ms(one_ms) < format_time_ms(other_ms))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "now",
        "2031-05-04",
        "2031-05-04T11:20:07Z",
        "2031-05-04T11:20:07.4Z",
        "2031-05-04T11:20:07.412345Z",
        "2031-05-04T11:20:07.412",
        "2031-05-04T11:20:07.412z",
        "2031-05-04T11:20:07.412+00:00",
        "2031-05-04 11:20:07.412Z",
        "2031-05-04T11:20:07.412Z\n",
        "2031-02-29T11:20:07.412Z",
        "2031-13-01T11:20:07.412Z",
        "2031-05-04T24:00:00.000Z",
        "2031-05-04T11:60:00.000Z",
        "2031-05-04T11:20:60.000Z",
        "0000-05-04T11:20:07.412Z",
        "1969-12-31T23:59:59.999Z",
        "\uff12031-05-04T11:20:07.412Z",
    ],
)
def test_text_in_another_form_is_no_time(text: str) -> None:
    assert parse_time_ms(text) is None


@given(texts)
def test_no_text_raises(text: str) -> None:
    time_ms = parse_time_ms(text)
    assert time_ms is None or format_time_ms(time_ms) == text


@pytest.mark.parametrize("time_ms", [-1, WIRE_TIME_MS_MAX + 1])
def test_time_that_has_no_text_is_a_bug_of_the_caller(time_ms: int) -> None:
    with pytest.raises(AssertionError):
        format_time_ms(time_ms)
