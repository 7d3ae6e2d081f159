"""The options' defaults fit together, and impossible values are refused."""

from typing import Any

import pytest

from tidewire.domain.limits import APPEND_BYTES_MAX, APPEND_SENDS_MAX, CONTENT_BYTES_MAX
from tidewire.ingest.options import IngestOptions


def test_options_defaults_are_possible() -> None:
    options = IngestOptions()
    assert options.batch_sends_max <= options.queue_sends_max
    assert options.queue_chat_sends_max < options.queue_sends_max


@pytest.mark.parametrize(
    "impossible",
    [
        {"batch_sends_max": 0},
        {"batch_sends_max": APPEND_SENDS_MAX + 1},
        {"batch_bytes_max": CONTENT_BYTES_MAX - 1},
        {"batch_bytes_max": APPEND_BYTES_MAX + 1},
        {"queue_sends_max": 0},
        {"queue_chat_sends_max": 0},
        {"appends_in_flight_max": 0},
        {"send_deadline_ms": 0},
        {"drain_ms": -1},
        {"publishing_commits_max": 0},
        {"relay_after_ms": -1},
        {"relay_poll_ms": 0},
        {"relay_rows_max": 0},
        {"relay_pause_ms_max": 0},
        {"lease_ms": 4 * IngestOptions().relay_poll_ms - 1},
    ],
)
def test_options_refuse_what_is_impossible(impossible: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(impossible))):
        IngestOptions(**impossible)
