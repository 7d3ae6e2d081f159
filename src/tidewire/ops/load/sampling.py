"""Looks at a running server: its process in /proc, and what it says of itself at /metrics."""

from collections.abc import Mapping
from typing import Final

from tidewire.ops.load.flatness import Sample
from tidewire.ops.load.rest_calls import Rest
from tidewire.ops.load.target import LoadImpossible, Process

METRICS: Final[Mapping[str, str]] = {
    "connections": "gateway_connections_active",
    "tasks": "event_loop_tasks",
    "sqlite_bytes": "sqlite_memory_bytes",
    "wal_bytes": "sqlite_wal_size_bytes",
    "lag_s": "event_loop_lag_seconds",
    "sends_waiting": "durability_queue_depth",
    "writes_waiting": "durability_writes_waiting",
    "positions_waiting": "delivery_positions_waiting",
    "unsent_bytes": "gateway_buffer_size_bytes",
}


async def take_sample(process: Process, rest: Rest, at_s: float) -> Sample:
    """Raises LoadImpossible if the server does not say what is asked."""
    answer = await rest.ask("GET", "/metrics")
    said = read_metrics(answer.body.decode())
    missing = [name for name in METRICS.values() if name not in said]
    if missing:
        raise LoadImpossible(f"/metrics of the server has no {', '.join(missing)}")
    return Sample(
        at_s=at_s,
        rss_bytes=process.rss_bytes(),
        threads=process.threads(),
        files=process.files(),
        **{field: said[name] for field, name in METRICS.items()},
    )


def read_metrics(page: str) -> dict[str, float]:
    """Those without labels."""
    lines = (line.rpartition(" ") for line in page.splitlines() if not line.startswith("#"))
    return {name: float(value) for name, _, value in lines if name and "{" not in name}
