"""What a WebSocket may send: a budget of bytes in which every frame counts. PURE.

A frame costs its payload and `FRAME_BYTES` more, whatever it is: pings, pongs, fragments and
unknown types too. Beyond the burst reading stops until the budget has caught up, so the kernel
holds the rest; who goes on, or sends a second burst on top, is closed.
"""

from typing import Final

from tidewire.edge.options import EdgeOptions

FRAME_BYTES: Final = 1024
"""What a frame counts beside its payload: reading a small one costs as much as a kilobyte."""
SLICE_BYTES: Final = 64 * 1024
"""After so much the loop has a turn, and the budget is looked at."""
WINDOW_MS: Final = 60_000
"""Within which time pauses add up."""
OVERRUN: Final = -1


class InboundRates:
    """The numbers, shared by all connections."""

    __slots__ = ("bytes_per_second", "excess_ms_max", "slack_us")

    def __init__(self, options: EdgeOptions) -> None:
        self.bytes_per_second = options.inbound_bytes_per_second
        self.slack_us = options.inbound_burst_bytes * 1_000_000 // self.bytes_per_second
        self.excess_ms_max = options.inbound_excess_ms_max


class InboundBudget:
    """One connection's. Time only goes forward (a monotonic clock)."""

    __slots__ = ("_excess_ms", "_full_at_us", "_paused_until_ms", "_rates", "_window_ends_at_ms")

    def __init__(self, rates: InboundRates) -> None:
        self._rates = rates
        self._full_at_us = 0
        self._paused_until_ms = 0
        self._excess_ms = 0
        self._window_ends_at_ms = 0

    def spend(self, cost_bytes: int, now_ms: int) -> int:
        """0: read on; or for how many ms to stop reading; or OVERRUN: close it."""
        rates = self._rates
        now_us = now_ms * 1000
        cost_us = cost_bytes * 1_000_000 // rates.bytes_per_second
        self._full_at_us = max(self._full_at_us, now_us) + cost_us
        behind_us = self._full_at_us - now_us - rates.slack_us
        if behind_us <= 0:
            return 0
        if behind_us > rates.slack_us:
            return OVERRUN
        wait_ms = -(-behind_us // 1000)
        if now_ms >= self._window_ends_at_ms:
            self._window_ends_at_ms = now_ms + WINDOW_MS
            self._excess_ms = 0
        self._excess_ms += now_ms + wait_ms - max(self._paused_until_ms, now_ms)
        self._paused_until_ms = now_ms + wait_ms
        return OVERRUN if self._excess_ms > rates.excess_ms_max else wait_ms
