"""What has happened on connections so far, as plain numbers for the metrics."""

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

SEND_LATENCY_BOUNDS_MS: Final = (10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000)


class Histogram:
    """Counts values by upper bound; the last count is of values above every bound."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: tuple[int, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0

    def add(self, value: int) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value


@dataclass(slots=True)
class GatewayCounters:
    """All numbers only grow. Texts in the keys come from this code, never from a peer."""

    connections_by_status: dict[str, int] = field(default_factory=dict)
    """`accepted`, `established`, and why a connection ended: a close reason, an error code,
    `closed_by_client` (the peer closed it) or `lost` (the socket ended without a close)."""
    handshakes_refused_by_error: dict[str, int] = field(default_factory=dict)
    auth_failures_by_reason: dict[str, int] = field(default_factory=dict)
    frames_received: dict[type, int] = field(default_factory=dict)
    """By class of frame, because that is cheap; `by_type` gives them names."""
    frames_sent: dict[type, int] = field(default_factory=dict)
    """Without pushes."""
    frames_invalid: int = 0
    frames_unknown: int = 0
    frames_flood_dropped: int = 0
    typing_dropped: int = 0
    errors_sent_by_code: dict[str, int] = field(default_factory=dict)
    bytes_received: int = 0
    bytes_sent: int = 0
    pushes: int = 0
    """How many frames were pushed to connections: one that goes to ten counts ten."""
    pushes_by_type: dict[str, int] = field(default_factory=dict)
    backlogs: int = 0
    slow_consumers: int = 0
    resyncs: int = 0
    acks_above_head: int = 0
    acks_not_a_member: int = 0
    acks_without_room: int = 0
    send_latency_ms: Histogram = field(default_factory=lambda: Histogram(SEND_LATENCY_BOUNDS_MS))
    """From a frame that submits an entry (a message, edit, deletion or reaction) to its answer."""

    @property
    def frames_received_by_type(self) -> dict[str, int]:
        """Valid frames by type, frames of unknown type, and invalid frames."""
        counts = by_type(self.frames_received)
        counts["unknown"] = self.frames_unknown
        counts["invalid"] = self.frames_invalid
        return counts

    @property
    def frames_sent_by_type(self) -> dict[str, int]:
        """Pushes included."""
        counts = by_type(self.frames_sent)
        for name, count in self.pushes_by_type.items():
            add(counts, name, count)
        return counts


def by_type(counts: Mapping[type[Any], int]) -> dict[str, int]:
    """Counts of frame classes under their names on the wire."""
    return {str(frame.__struct_config__.tag): count for frame, count in counts.items()}


def add(counts: dict[str, int], key: str, count: int = 1) -> None:
    counts[key] = counts.get(key, 0) + count
