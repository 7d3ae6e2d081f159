"""What a run measured, and how the figures are calculated."""

import time
from array import array
from collections import Counter
from collections.abc import Mapping
from typing import Final

import msgspec

from tidewire_bench.ledger import Faults
from tidewire_bench.target import Target

GENERATOR_BUSY: Final = 0.9
"""If the generator used more than this part of one core, it was the limit."""


class Figures(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One run. A figure that its workload does not have, or that could not be seen, is absent."""

    system: str = "tidewire"
    workload: str
    durability: str
    seconds: float
    messages: int | None = None
    messages_per_s: float | None = None
    deliveries_per_s: float | None = None
    ack_p50_ms: float | None = None
    ack_p99_ms: float | None = None
    delivered_p50_ms: float | None = None
    delivered_p99_ms: float | None = None
    server_cpu_s: float | None = None
    server_cpu_s_per_1000: float | None = None
    generator_cpu_s: float | None = None
    generator_cpu_s_per_1000: float | None = None
    generator_was_the_limit: bool = False
    fanout_cpu_s_per_1000: float | None = None
    """Of a cluster's fan-out worker; `server_cpu_s_per_1000` is then that of the gateway."""
    mean_batch: float | None = None
    """Messages in an append."""
    database_limit_per_s: float | None = None
    """What the database takes in a bare loop of batches of that size."""
    part_of_limit: float | None = None
    repeated_pushes: int | None = None
    connections: int | None = None
    connections_per_s: float | None = None
    server_rss_kb_per_connection: float | None = None
    server_rss_mb: float | None = None
    server_rss_mb_highest: float | None = None
    unreachable_s: float | None = None
    half_s: float | None = None
    most_s: float | None = None
    """Until 99 % of the clients were complete."""
    all_s: float | None = None
    try_half_s: float | None = None
    """Measured from the try that succeeded, so without the client's own backoff."""
    try_most_s: float | None = None
    server_cpu_ms_per_client: float | None = None
    incomplete: int = 0
    errors: dict[str, int] = {}
    limits: dict[str, str] = {}
    fault_count: int = 0
    faults: list[str] = []

    def with_checks(
        self, faults: Faults, errors: Counter[str], limits: Mapping[str, str]
    ) -> "Figures":
        return msgspec.structs.replace(
            self,
            errors=dict(sorted(errors.items())),
            limits=dict(limits),
            fault_count=faults.count,
            faults=list(faults.first),
        )


class Meter:
    """A measured period: clocks of both processes, from `start` to `stop`."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self.acks_s = array("d")
        self.deliveries_s = array("d")
        self.is_measuring = False
        self.seconds = 0.0
        self.generator_cpu_s = 0.0
        self.server_cpu_s: float | None = None

    def start(self) -> None:
        self.server_cpu_s = self._target.cpu_s()
        self.generator_cpu_s = time.process_time()
        self.seconds = time.perf_counter()
        self.is_measuring = True

    def stop(self) -> None:
        self.is_measuring = False
        self.seconds = time.perf_counter() - self.seconds
        self.generator_cpu_s = time.process_time() - self.generator_cpu_s
        if self.server_cpu_s is not None:
            self.server_cpu_s = (self._target.cpu_s() or 0.0) - self.server_cpu_s

    def figures(self, workload: str, messages: int) -> Figures:
        """The figures of messages that were sent, acknowledged and delivered in that period."""
        acks, deliveries = sorted(self.acks_s), sorted(self.deliveries_s)
        per_1000 = 1000 / messages if messages else 0.0
        return Figures(
            workload=workload,
            durability=self._target.durability,
            seconds=round(self.seconds, 3),
            messages=messages,
            messages_per_s=round(messages / self.seconds, 1),
            deliveries_per_s=round(len(deliveries) / self.seconds, 1),
            ack_p50_ms=quantile_ms(acks, 0.5),
            ack_p99_ms=quantile_ms(acks, 0.99),
            delivered_p50_ms=quantile_ms(deliveries, 0.5),
            delivered_p99_ms=quantile_ms(deliveries, 0.99),
            server_cpu_s=None if self.server_cpu_s is None else round(self.server_cpu_s, 2),
            server_cpu_s_per_1000=(
                None if self.server_cpu_s is None else round(self.server_cpu_s * per_1000, 4)
            ),
            generator_cpu_s=round(self.generator_cpu_s, 2),
            generator_cpu_s_per_1000=round(self.generator_cpu_s * per_1000, 4),
            generator_was_the_limit=self.generator_cpu_s > GENERATOR_BUSY * self.seconds,
        )


def quantile_ms(ordered_s: list[float], part: float) -> float | None:
    """The value below which this part of the sorted values lies, in milliseconds."""
    if not ordered_s:
        return None
    return round(ordered_s[min(len(ordered_s) - 1, int(len(ordered_s) * part))] * 1e3, 3)
