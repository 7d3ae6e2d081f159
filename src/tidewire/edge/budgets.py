"""Limits of what a peer may cost: connections of an address, and bytes of a WebSocket. PURE.

An address is the result of `address_key`: itself, or its /64. A trusted proxy counts only in the
total; its WebSockets count for the client address that it names.

A WebSocket has a budget of bytes. Every frame costs its payload and `FRAME_BYTES` more: pings,
pongs, fragments and unknown types too. Beyond the burst, reading stops until the budget has
recovered, so the kernel holds the rest; a peer that continues, or sends a second burst on top, is
closed. Time only goes forward (a monotonic clock).
"""

from collections import Counter
from typing import Final

from tidewire.domain.rates import Limiter, Rate, SharedView
from tidewire.edge.options import EdgeOptions

FRAME_BYTES: Final = 1024
"""Cost of a frame beside its payload: reading a small frame costs as much as a kilobyte."""
SLICE_BYTES: Final = 64 * 1024
"""After this many bytes the event loop has a turn, and the budget is checked."""
WINDOW_MS: Final = 60_000
"""The time window in which pauses add up."""
OVERRUN: Final = -1
_US_PER_SECOND: Final = 1_000_000


class Visit:
    """One connection, from its beginning to its end."""

    __slots__ = ("_doors", "_is_http", "address")

    def __init__(self, doors: "Doors", address: str | None) -> None:
        self.address = address
        """The address that it counts for; None for a trusted proxy."""
        self._doors = doors
        self._is_http = True

    def upgraded(self, address: str) -> bool:
        """Count it as a WebSocket of this address; False if that has too many connections."""
        doors = self._doors
        if self.address is None:
            if doors._inside[address] >= doors._options.address_connections_max:
                return False
            self.address = address
            doors._inside[address] += 1
        else:
            _subtract(doors._http, self.address)
        doors._http_count -= 1
        self._is_http = False
        return True

    def leave(self) -> None:
        """The connection has ended. Safe to call again."""
        doors = self._doors
        address, self.address = self.address, None
        if self._is_http:
            self._is_http = False
            doors._http_count -= 1
            if address is not None:
                _subtract(doors._http, address)
        if address is not None:
            _subtract(doors._inside, address)


class Doors:
    """Counts visits."""

    __slots__ = ("_faults", "_http", "_http_count", "_inside", "_options")

    def __init__(self, options: EdgeOptions) -> None:
        self._options = options
        self._http_count = 0
        # Only addresses that have connections are in these.
        self._http: Counter[str] = Counter()
        self._inside: Counter[str] = Counter()
        per_minute = options.address_faults_per_minute
        self._faults: Limiter[str] = Limiter(
            Rate(per_minute, per_ms=60_000, burst=per_minute), keys_max=options.addresses_max
        )

    @property
    def http_count(self) -> int:
        """Connections that are not WebSockets."""
        return self._http_count

    def share_limits(self) -> dict[str, SharedView]:
        """Count malformed requests over all processes together."""
        return {"faults": self._faults.share()}

    def enter(self, address: str | None) -> Visit | None:
        """A new connection; None if there is no room for it."""
        options = self._options
        if self._http_count >= options.http_connections_max:
            return None
        if address is not None:
            if self._http[address] >= options.address_http_connections_max:
                return None
            if self._inside[address] >= options.address_connections_max:
                return None
            self._http[address] += 1
            self._inside[address] += 1
        self._http_count += 1
        return Visit(self, address)

    def is_barred(self, address: str, now_ms: int) -> bool:
        """True if the address sent so many malformed requests that it is not served."""
        return self._faults.wait_ms(address, now_ms) > 0

    def fault(self, address: str, now_ms: int) -> None:
        """Count a malformed request of this address."""
        self._faults.take(address, now_ms)


def _subtract(counts: Counter[str], address: str) -> None:
    counts[address] -= 1
    if not counts[address]:
        del counts[address]


class InboundRates:
    """The numbers of the budget, shared by all connections."""

    __slots__ = ("_bytes_per_second", "excess_ms_max", "rate")

    def __init__(self, options: EdgeOptions) -> None:
        self._bytes_per_second = options.inbound_bytes_per_second
        self.rate = Rate(_US_PER_SECOND, burst=self.cost_us(options.inbound_burst_bytes))
        """Counts microseconds of reading, not bytes, because a byte takes less than one."""
        self.excess_ms_max = options.inbound_excess_ms_max

    def cost_us(self, size_bytes: int) -> int:
        """How long this many bytes take at the allowed speed."""
        return size_bytes * _US_PER_SECOND // self._bytes_per_second


class InboundBudget:
    """The budget of one connection."""

    __slots__ = ("_excess_ms", "_full_at_us", "_paused_until_ms", "_rates", "_window_ends_at_ms")

    def __init__(self, rates: InboundRates) -> None:
        self._rates = rates
        self._full_at_us = 0
        self._paused_until_ms = 0
        self._excess_ms = 0
        self._window_ends_at_ms = 0

    def spend(self, cost_bytes: int, now_ms: int) -> int:
        """Returns 0 to read on, the ms for which to stop reading, or OVERRUN to close it."""
        rates = self._rates
        rate, cost_us = rates.rate, rates.cost_us(cost_bytes)
        wait_ms = rate.wait_ms(self._full_at_us, now_ms, cost_us)
        self._full_at_us = rate.spent(self._full_at_us, now_ms, cost_us)
        if wait_ms == 0:
            return 0
        if self._full_at_us - now_ms * 1000 > 2 * rate.capacity_us:
            return OVERRUN
        if now_ms >= self._window_ends_at_ms:
            self._window_ends_at_ms = now_ms + WINDOW_MS
            self._excess_ms = 0
        self._excess_ms += now_ms + wait_ms - max(self._paused_until_ms, now_ms)
        self._paused_until_ms = now_ms + wait_ms
        return OVERRUN if self._excess_ms > rates.excess_ms_max else wait_ms
