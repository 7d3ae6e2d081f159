"""The options' defaults are those of the design, and impossible values are refused."""

from typing import Any

import pytest

from tidewire.domain.limits import DIGEST_CHATS_MAX, PAGE_BYTES_MAX
from tidewire.gateway.hub import SLOT_MS
from tidewire.gateway.options import GatewayOptions


def test_options_have_the_numbers_of_the_design() -> None:
    options = GatewayOptions()
    assert options.heartbeat_interval_ms == 30_000
    assert options.idle_timeout_ms == 75_000
    assert (options.send_chat_rate_per_second, options.send_chat_burst) == (10, 20)
    assert options.send_user_rate_per_second == 30
    assert options.typing_interval_ms == 1_000
    assert (options.invalid_frames_max, options.offence_window_ms) == (10, 60_000)
    assert options.requests_waiting_max == 100
    assert options.outbound_bytes_max == 1024 * 1024
    assert options.outbound_warning_bytes == 1024 * 1024 * 80 // 100
    assert options.page_bytes_max == 256 * 1024
    assert options.digest_chats_max == 200
    assert options.connection_age_ms_max is None
    assert not options.is_token_in_url_allowed


def test_options_find_a_half_open_peer_within_a_minute() -> None:
    options = GatewayOptions()
    # Both deadlines may be met late: by a slot, and by the time between two looks at the wheel.
    late_ms = 2 * 2 * SLOT_MS
    assert options.ping_interval_ms + options.pong_timeout_ms + late_ms <= 60_000


@pytest.mark.parametrize(
    "impossible",
    [
        {"requests_waiting_max": 0},
        {"send_chat_burst": 0},
        {"ping_interval_ms": -1},
        {"closing_grace_ms": -1},
        {"idle_timeout_ms": 59_999},
        {"pong_timeout_ms": 60_000},
        {"page_bytes_max": 4095},
        {"page_bytes_max": PAGE_BYTES_MAX + 1},
        {"digest_chats_max": DIGEST_CHATS_MAX + 1},
        {"drained_bytes_max": 1024 * 1024},
        {"outbound_warning_percent": 101},
        {"connection_age_ms_max": 0},
    ],
)
def test_options_refuse_what_is_impossible(impossible: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(impossible))):
        GatewayOptions(**impossible)
