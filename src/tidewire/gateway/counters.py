"""What has happened on connections so far, as plain numbers for whoever shows them."""

from bisect import bisect_left
from collections.abc import Mapping
from typing import Any, Final

SEND_LATENCY_BOUNDS_MS: Final = (10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000)


class Histogram:
    """How many values were at most so high; the last count is of those above every bound."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: tuple[int, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0

    def add(self, value: int) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value


class GatewayCounters:
    """Everything only grows. Texts in the keys are ours, never a peer's."""

    __slots__ = (
        "acks_above_head",
        "acks_not_a_member",
        "acks_without_room",
        "auth_failures_by_reason",
        "backlogs",
        "bytes_received",
        "bytes_sent",
        "connections_by_status",
        "errors_sent_by_code",
        "frames_flood_dropped",
        "frames_invalid",
        "frames_received",
        "frames_sent",
        "frames_unknown",
        "handshakes_refused_by_error",
        "pushes",
        "pushes_by_type",
        "resyncs",
        "send_latency_ms",
        "slow_consumers",
        "typing_dropped",
    )

    def __init__(self) -> None:
        self.connections_by_status: dict[str, int] = {}
        """`accepted`, `established`, and at the end why: a close reason, an error code,
        `closed_by_client` (the peer said goodbye) or `lost` (it went without a word)."""
        self.handshakes_refused_by_error: dict[str, int] = {}
        self.auth_failures_by_reason: dict[str, int] = {}
        self.frames_received: dict[type, int] = {}
        """By class of frame, because that is cheap; `by_type` gives them names."""
        self.frames_sent: dict[type, int] = {}
        """Without pushes."""
        self.frames_invalid = 0
        self.frames_unknown = 0
        self.frames_flood_dropped = 0
        self.typing_dropped = 0
        self.errors_sent_by_code: dict[str, int] = {}
        self.bytes_received = 0
        self.bytes_sent = 0
        self.pushes = 0
        """How many frames were pushed to connections: one that goes to ten counts ten."""
        self.pushes_by_type: dict[bytes, int] = {}
        self.backlogs = 0
        self.slow_consumers = 0
        self.resyncs = 0
        self.acks_above_head = 0
        self.acks_not_a_member = 0
        self.acks_without_room = 0
        self.send_latency_ms = Histogram(SEND_LATENCY_BOUNDS_MS)
        """From a send_message frame to its answer."""

    @property
    def frames_received_by_type(self) -> dict[str, int]:
        """Valid frames, those that are not known, and those that are not valid."""
        counts = by_type(self.frames_received)
        counts["unknown"] = self.frames_unknown
        counts["invalid"] = self.frames_invalid
        return counts

    @property
    def frames_sent_by_type(self) -> dict[str, int]:
        """Pushes included."""
        counts = by_type(self.frames_sent)
        for name, count in self.pushes_by_type.items():
            add(counts, name.decode(), count)
        return counts


def by_type(counts: Mapping[type[Any], int]) -> dict[str, int]:
    """Counts of frame classes under the names that the wire has for them."""
    return {str(frame.__struct_config__.tag): count for frame, count in counts.items()}


def add(counts: dict[str, int], key: str, count: int = 1) -> None:
    counts[key] = counts.get(key, 0) + count
