"""How many connections an address has, and whether it may have another one. PURE.

An address is what `address_key` makes of it: itself, or its /64. A proxy that is trusted counts in
total only; the WebSockets that it brings count for the address that it names.
"""

from tidewire.edge.options import EdgeOptions
from tidewire.gateway.limits import KeyedRate, Rate


class Visit:
    """One connection, from its beginning to its end."""

    __slots__ = ("_doors", "_is_http", "address")

    def __init__(self, doors: "Doors", address: str | None) -> None:
        self.address = address
        """Whom it counts for; None for a trusted proxy."""
        self._doors = doors
        self._is_http = True

    def upgraded(self, address: str) -> bool:
        """It has become a WebSocket of this address; False if that one has too many."""
        return self._doors._upgrade(self, address)

    def leave(self) -> None:
        """The connection has ended. Safe to call again."""
        self._doors._leave(self)


class Doors:
    """Counts visits. Time only goes forward (a monotonic clock)."""

    __slots__ = ("_faults", "_http", "_http_count", "_inside", "_options")

    def __init__(self, options: EdgeOptions) -> None:
        self._options = options
        self._http_count = 0
        self._http: dict[str, int] = {}
        self._inside: dict[str, int] = {}
        per_minute = options.address_faults_per_minute
        self._faults: KeyedRate[str] = KeyedRate(
            Rate(per_minute, per_seconds=60, burst=per_minute), keys_max=options.addresses_max
        )

    @property
    def http_count(self) -> int:
        """Connections that are no WebSockets."""
        return self._http_count

    def enter(self, address: str | None) -> Visit | None:
        """A new connection; None if there is no room for it."""
        options = self._options
        if self._http_count >= options.http_connections_max:
            return None
        if address is not None:
            if self._http.get(address, 0) >= options.address_http_connections_max:
                return None
            if self._inside.get(address, 0) >= options.address_connections_max:
                return None
            _add(self._http, address)
            _add(self._inside, address)
        self._http_count += 1
        return Visit(self, address)

    def is_barred(self, address: str, now_ms: int) -> bool:
        """True if so much of what it sent was malformed that nothing of it is looked at."""
        return self._faults.wait_ms(address, now_ms) > 0

    def fault(self, address: str, now_ms: int) -> None:
        """It sent something that is no request."""
        self._faults.take(address, now_ms)

    def _upgrade(self, visit: Visit, address: str) -> bool:
        if visit.address is None:
            if self._inside.get(address, 0) >= self._options.address_connections_max:
                return False
            visit.address = address
            _add(self._inside, address)
        else:
            _subtract(self._http, visit.address)
        self._http_count -= 1
        visit._is_http = False
        return True

    def _leave(self, visit: Visit) -> None:
        address, visit.address = visit.address, None
        if visit._is_http:
            visit._is_http = False
            self._http_count -= 1
            if address is not None:
                _subtract(self._http, address)
        if address is not None:
            _subtract(self._inside, address)


def _add(counts: dict[str, int], address: str) -> None:
    counts[address] = counts.get(address, 0) + 1


def _subtract(counts: dict[str, int], address: str) -> None:
    left = counts[address] - 1
    if left:
        counts[address] = left
    else:
        del counts[address]
