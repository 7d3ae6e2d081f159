"""What Prometheus is told: the planes' plain counters under their public names.

Nothing is counted here. The planes count with plain integers, which costs the hot path next to
nothing, and are read when somebody asks. Names are those of contract-facts 10.2 where they fit; no
label ever holds the id of a chat, a user, a message or a connection.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import (
    HistogramMetricFamily,
    Metric,
    SummaryMetricFamily,
)
from prometheus_client.registry import Collector

from tidewire import __version__
from tidewire.delivery.service import DeliveryService
from tidewire.domain.audit import AuditAction
from tidewire.domain.errors import ErrorCode
from tidewire.domain.ids import ConnectionId
from tidewire.edge.rest.counters import RestCounters
from tidewire.engines.sqlite.storage import SqliteStorage
from tidewire.fanout.worker import FanoutWorker
from tidewire.gateway.counters import Histogram
from tidewire.gateway.hub import Hub
from tidewire.ingest.service import IngestService
from tidewire.runtime.audit import AuditRecorder
from tidewire.runtime.lag import LoopLag
from tidewire.runtime.metric_families import counter, counter_by, gauge, gauge_by

if TYPE_CHECKING:
    from tidewire.runtime.backbone import Backbone

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

_LIMITED: Final = (ErrorCode.RATE_LIMITED,)
_NOT_BELIEVED: Final = (
    ErrorCode.UNAUTHORIZED,
    ErrorCode.DEVICE_MISMATCH,
    ErrorCode.INVALID_CREDENTIALS,
    ErrorCode.INVALID_REFRESH_TOKEN,
)
_DENIED: Final = (ErrorCode.NOT_A_MEMBER, ErrorCode.FORBIDDEN)


@dataclass(slots=True, kw_only=True)
class Sources:
    """Whom to ask."""

    hub: Hub
    ingest: IngestService
    delivery: DeliveryService[ConnectionId]
    fanout: FanoutWorker
    sqlite: SqliteStorage | None
    """None: the store is another one."""
    backbone: "Backbone | None" = None
    """None: it is the only process."""
    lag: LoopLag
    rest: RestCounters
    tasks_count: Callable[[], int]
    """Everybody's tasks on the event loop, those of libraries included."""
    failures_by_kind: Mapping[str, int]
    """Requests that failed unexpectedly."""
    revocations_count: Callable[[], int]
    trail: AuditRecorder


@dataclass(slots=True, kw_only=True)
class WorkerSources:
    """Whom to ask in a process that only fans out."""

    fanout: FanoutWorker
    backbone: "Backbone"
    lag: LoopLag
    tasks_count: Callable[[], int]
    failures_by_kind: Mapping[str, int]


class Metrics:
    """Renders the page for `/metrics`."""

    def __init__(self, sources: Sources | WorkerSources) -> None:
        self._registry = CollectorRegistry()
        self._registry.register(
            _PlaneCollector(sources) if isinstance(sources, Sources) else _WorkerCollector(sources)
        )
        # CPU, memory and file handles of the process, from /proc.
        ProcessCollector(registry=self._registry)

    def render(self) -> bytes:
        return generate_latest(self._registry)


class _PlaneCollector(Collector):
    def __init__(self, sources: Sources) -> None:
        self._sources = sources

    def describe(self) -> Iterable[Metric]:
        """Nothing: the registry would otherwise collect once just to learn the names."""
        return ()

    def collect(self) -> Iterator[Metric]:
        sources = self._sources
        yield from _process(sources)
        yield from _gateway(sources.hub)
        yield from _ingest(sources.ingest)
        yield from _fanout(sources.fanout)
        yield counter_by(
            "rest_errors_sent", "Error answers of REST.", "code", sources.rest.errors_sent_by_code
        )
        yield from _security(sources)
        yield gauge(
            "delivery_positions_waiting",
            "Acknowledgements that are not written yet.",
            sources.delivery.waiting_count,
        )
        if sources.sqlite is not None:
            yield from _sqlite(sources.sqlite)
        if sources.backbone is not None:
            yield from _backbone(sources.backbone)


class _WorkerCollector(Collector):
    def __init__(self, sources: WorkerSources) -> None:
        self._sources = sources

    def describe(self) -> Iterable[Metric]:
        """Nothing, as above."""
        return ()

    def collect(self) -> Iterator[Metric]:
        sources = self._sources
        yield from _process(sources)
        yield from _fanout(sources.fanout)
        yield from _backbone(sources.backbone)


def _process(sources: Sources | WorkerSources) -> Iterator[Metric]:
    yield gauge_by("tidewire_info", "Which version runs.", "version", {__version__: 1})
    yield gauge("event_loop_tasks", "Tasks that have not ended.", sources.tasks_count())
    yield counter_by(
        "request_failures",
        "Requests that failed for a reason that no code expected. Any is a bug or damage.",
        "kind",
        sources.failures_by_kind,
    )
    lag = sources.lag
    yield gauge("event_loop_lag_seconds", "How late the event loop was.", lag.last_s)
    yield gauge("event_loop_lag_max_seconds", "The same, at worst.", lag.highest_s)


def _backbone(backbone: "Backbone") -> Iterator[Metric]:
    # Its vendors are not installed everywhere, but where there is a backbone they are.
    from tidewire.runtime.cluster_metrics import backbone_metrics

    yield from backbone_metrics(backbone)


def _gateway(hub: Hub) -> Iterator[Metric]:
    counters = hub.counters
    yield gauge("gateway_connections_active", "Open connections.", hub.connections_count)
    yield counter_by(
        "gateway_connections",
        "Connections by what became of them.",
        "status",
        counters.connections_by_status,
    )
    yield counter_by(
        "gateway_handshakes_refused",
        "Requests to connect that were refused.",
        "error",
        counters.handshakes_refused_by_error,
    )
    yield counter_by(
        "gateway_auth_failures",
        "Tokens that were refused.",
        "reason",
        counters.auth_failures_by_reason,
    )
    yield counter_by(
        "gateway_messages_received",
        "Frames from clients.",
        "type",
        counters.frames_received_by_type,
    )
    yield counter_by(
        "gateway_messages_sent", "Frames to clients.", "type", counters.frames_sent_by_type
    )
    yield counter_by(
        "gateway_errors_sent", "Error frames to clients.", "code", counters.errors_sent_by_code
    )
    yield counter("gateway_received_bytes", "Bytes of frames received.", counters.bytes_received)
    yield counter("gateway_sent_bytes", "Bytes of frames sent.", counters.bytes_sent)
    yield gauge(
        "gateway_buffer_size_bytes", "What is not sent yet, all connections.", hub.unsent_bytes
    )
    yield _histogram(
        "gateway_send_latency_seconds",
        "From a send_message frame to its answer.",
        counters.send_latency_ms,
    )
    yield counter(
        "gateway_slow_consumer_disconnects",
        "Connections closed because they read too slowly.",
        counters.slow_consumers,
    )
    yield counter("gateway_backlogs", "Connections that began to lag.", counters.backlogs)
    yield counter("gateway_resyncs", "Connections told to sync again.", counters.resyncs)
    dropped = {
        "flood": counters.frames_flood_dropped,
        "typing": counters.typing_dropped,
        "ack_above_head": counters.acks_above_head,
        "ack_not_a_member": counters.acks_not_a_member,
        "ack_without_room": counters.acks_without_room,
    }
    yield counter_by("gateway_frames_dropped", "Frames without effect.", "reason", dropped)


def _ingest(ingest: IngestService) -> Iterator[Metric]:
    counters = ingest.counters
    outcomes = {"stored": counters.stored, "deduplicated": counters.deduplicated}
    for code, count in counters.refused_by_code.items():
        outcomes[code.value.lower()] = count
    yield counter_by("durability_persist", "Sends by outcome.", "status", outcomes)
    yield counter(
        "durability_idempotency_hits", "Sends that were stored before.", counters.deduplicated
    )
    yield counter(
        "durability_counter_missing",
        "Sends refused because the chat's counter is gone. Any is an alarm.",
        counters.counter_missing,
    )
    yield counter("durability_batches", "Appends to the store.", counters.batches)
    yield gauge("durability_batch_size", "Sends in the last append.", counters.last_batch_sends)
    yield gauge("durability_queue_depth", "Sends that wait for an append.", ingest.queued_count)
    yield gauge_by(
        "messaging_messages_in_flight",
        "Work under way.",
        "plane",
        {"durability": ingest.in_flight_count},
    )


def _sqlite(sqlite: SqliteStorage) -> Iterator[Metric]:
    commits = sqlite.commits
    yield SummaryMetricFamily(
        "durability_commit_duration_seconds",
        "Transactions, from their begin until they are on the disk.",
        count_value=commits.commits,
        sum_value=commits.seconds_total,
    )
    yield gauge(
        "durability_commit_last_duration_seconds", "The last of them.", commits.last_seconds
    )
    yield counter("durability_commit_writes", "Writes in all transactions.", commits.writes)
    yield gauge(
        "durability_commit_batch_size", "Writes in the last transaction.", commits.last_writes
    )
    yield gauge("durability_writes_waiting", "Writes that wait.", sqlite.writes_waiting_count)
    yield gauge(
        "sqlite_memory_bytes", "What SQLite holds, mostly page caches.", sqlite.memory_bytes
    )
    yield counter(
        "store_messages_damaged",
        "Stored messages that were found damaged, each counted once. Any is an alarm.",
        sqlite.damage.messages_damaged,
    )
    yield counter(
        "store_requests_damaged",
        "Requests that failed because stored bytes could not be read. Any is an alarm.",
        sqlite.damage.requests_failed,
    )
    checkpointer = sqlite.checkpointer
    yield gauge("sqlite_wal_size_bytes", "The write-ahead log.", checkpointer.wal_bytes)
    yield counter("sqlite_wal_restarts", "How often it was restarted.", checkpointer.restarts)
    yield counter(
        "sqlite_wal_restarts_pinned",
        "How often a reader outside kept it from being restarted.",
        checkpointer.restarts_pinned,
    )
    yield counter(
        "sqlite_checkpoints_failed",
        "Checkpoints that found the disk full or the database busy.",
        checkpointer.checkpoints_failed,
    )


def _fanout(fanout: FanoutWorker) -> Iterator[Metric]:
    counters = fanout.counters
    yield counter_by(
        "fanout_events_consumed", "Events of commits.", "topic", {"commits": counters.events}
    )
    delivered = {"pushed": counters.pushes, "status_update": counters.status_updates}
    yield counter_by("fanout_delivery", "Pushes to users.", "status", delivered)
    yield counter("fanout_resyncs", "How often everybody had to sync again.", counters.resyncs)
    yield counter(
        "fanout_membership_cache_hits", "Members of a chat were known.", counters.roster_hits
    )
    yield counter("fanout_membership_cache_misses", "They had to be read.", counters.roster_reads)


def _security(sources: Sources) -> Iterator[Metric]:
    counters = sources.hub.counters
    frames, handshakes = counters.errors_sent_by_code, counters.handshakes_refused_by_error
    rest = sources.rest.errors_sent_by_code
    yield counter(
        "security_auth_failures",
        "Tokens and passwords that were refused.",
        sum(counters.auth_failures_by_reason.values()) + _sum_of(rest, _NOT_BELIEVED),
    )
    yield counter(
        "security_rate_limits",
        "Frames, handshakes, logins and other requests refused by a limit.",
        _sum_of(frames, _LIMITED) + _sum_of(rest, _LIMITED) + handshakes.get("rate_limited", 0),
    )
    yield counter(
        "security_access_denied",
        "Requests for what is not theirs.",
        _sum_of(frames, _DENIED) + _sum_of(rest, _DENIED) + counters.acks_not_a_member,
    )
    yield counter(
        "security_session_revocations", "Sessions that were ended.", sources.revocations_count()
    )
    yield counter_by(
        "audit_records",
        "What the audit trail was told.",
        "action",
        {action.value: sources.trail.counts[action] for action in AuditAction},
    )
    yield counter(
        "audit_records_lost",
        "Records that are in the log alone, because their file could not be written.",
        sources.trail.lost_count,
    )


def _sum_of(counts: Mapping[Any, int], codes: Iterable[ErrorCode]) -> int:
    return sum(counts.get(code, 0) for code in codes)


def _histogram(name: str, help_text: str, histogram: Histogram) -> Metric:
    """Prometheus wants seconds, and counts of everything at or below a bound."""
    buckets, below = [], 0
    bounds = [str(bound / 1000) for bound in histogram.bounds]
    for bound, count in zip([*bounds, "+Inf"], histogram.counts, strict=True):
        below += count
        buckets.append((bound, float(below)))
    return HistogramMetricFamily(name, help_text, buckets=buckets, sum_value=histogram.total / 1000)
