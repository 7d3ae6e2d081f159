"""Plain counters become what Prometheus expects."""

import re
from collections import Counter
from types import SimpleNamespace
from typing import Any, cast

from tidewire.domain.audit import AuditAction
from tidewire.domain.errors import ErrorCode
from tidewire.edge.rest.services import RestCounters
from tidewire.engines.dynamodb.database import Counts
from tidewire.engines.dynamodb.storage import DynamoStorage
from tidewire.engines.kafka.consumer import KafkaLogReader, ReaderCounters
from tidewire.engines.redis.inbox import Inbox, InboxCounters
from tidewire.engines.redis.options import RedisOptions
from tidewire.engines.redis.push_queue import PushQueue
from tidewire.engines.redis.router import RedisRouter, RouterCounters
from tidewire.fanout.consumer import ConsumerCounters, LogConsumer
from tidewire.fanout.worker import FanoutCounters
from tidewire.gateway.counters import GatewayCounters
from tidewire.ingest.publisher import Publisher, PublisherCounters
from tidewire.ingest.relay import Relay, RelayCounters
from tidewire.ingest.service import IngestCounters
from tidewire.runtime import metrics
from tidewire.runtime.engines import ENGINES
from tidewire.runtime.metrics import Metrics, ProcessNumbers, SecurityNumbers, Source


def sources(**sqlite: Any) -> list[Source]:
    counters = GatewayCounters()
    counters.connections_by_status = {"accepted": 3, "lost": 1}
    counters.errors_sent_by_code = {"RATE_LIMITED": 2, "NOT_A_MEMBER": 5}
    counters.handshakes_refused_by_error = {"rate_limited": 4}
    counters.auth_failures_by_reason = {"invalid_token": 6, "token_expired": 1}
    for latency_ms in (5, 10, 11, 20_000):
        counters.send_latency_ms.add(latency_ms)
    ingest = IngestCounters()
    ingest.stored, ingest.deduplicated, ingest.counter_missing = 7, 2, 1
    ingest.refused_by_code = {ErrorCode.NOT_A_MEMBER: 3}
    rest = RestCounters()
    for code in (
        ErrorCode.UNAUTHORIZED,
        ErrorCode.INVALID_CREDENTIALS,
        ErrorCode.INVALID_REFRESH_TOKEN,
        ErrorCode.DEVICE_MISMATCH,
        ErrorCode.RATE_LIMITED,
        ErrorCode.NOT_A_MEMBER,
        ErrorCode.FORBIDDEN,
        ErrorCode.VALIDATION_ERROR,
        ErrorCode.VALIDATION_ERROR,
    ):
        rest.sent(code)
    trail = SimpleNamespace(counts=Counter({AuditAction.LOGIN: 4}), lost_count=2)
    lag = SimpleNamespace(last_s=0.5, highest_s=0.75)
    process = ProcessNumbers(cast("Any", lag), {"sync": 2})
    process.tasks_count = lambda: 21  # type: ignore[method-assign]
    return [
        (metrics.TABLES["process"], process),
        (
            metrics.TABLES["gateway"],
            SimpleNamespace(counters=counters, connections_count=2, unsent_bytes=99),
        ),
        (
            metrics.TABLES["ingest"],
            SimpleNamespace(counters=ingest, queued_count=8, in_flight_count=1),
        ),
        (metrics.TABLES["delivery"], SimpleNamespace(waiting_count=12)),
        (metrics.TABLES["fanout"], SimpleNamespace(counters=FanoutCounters())),
        (ENGINES["sqlite"].metrics["store"], SimpleNamespace(**sqlite) if sqlite else None),
        (metrics.TABLES["security"], SecurityNumbers(counters, rest, cast("Any", trail))),
        (metrics.TABLES["revocations"], SimpleNamespace(count=13)),
    ]


def page(of: list[Source]) -> dict[str, float]:
    lines = Metrics(of).render().decode().splitlines()
    return {
        name: float(value)
        for name, _, value in (line.rpartition(" ") for line in lines if not line.startswith("#"))
    }


def test_counters_have_their_public_names() -> None:
    values = page(sources())
    assert values["gateway_connections_active"] == 2
    assert values['gateway_connections_total{status="accepted"}'] == 3
    assert values["gateway_buffer_size_bytes"] == 99
    assert values['durability_persist_total{status="stored"}'] == 7
    assert values['durability_persist_total{status="not_a_member"}'] == 3
    assert values["durability_idempotency_hits_total"] == 2
    assert values["durability_counter_missing_total"] == 1
    assert values["durability_queue_depth"] == 8
    assert values["delivery_positions_waiting"] == 12
    assert values["event_loop_lag_max_seconds"] == 0.75
    assert values["event_loop_tasks"] == 21
    assert values['request_failures_total{kind="sync"}'] == 2
    # Of sockets, and of REST.
    assert values["security_auth_failures_total"] == 7 + 4
    assert values["security_rate_limits_total"] == 6 + 1
    assert values["security_access_denied_total"] == 5 + 2
    assert values['rest_errors_sent_total{code="VALIDATION_ERROR"}'] == 2
    assert values["security_session_revocations_total"] == 13
    assert values['audit_records_total{action="login"}'] == 4
    assert values['audit_records_total{action="login.failed"}'] == 0
    assert values["audit_records_lost_total"] == 2
    assert values["process_open_fds"] > 0


def test_histogram_counts_everything_up_to_a_bound_in_seconds() -> None:
    values = page(sources())
    name = "gateway_send_latency_seconds"
    assert values[f'{name}_bucket{{le="0.01"}}'] == 2
    assert values[f'{name}_bucket{{le="0.025"}}'] == 3
    assert values[f'{name}_bucket{{le="10.0"}}'] == 3
    assert values[f'{name}_bucket{{le="+Inf"}}'] == values[f"{name}_count"] == 4
    assert values[f"{name}_sum"] == 20.026


def test_store_that_counts_nothing_is_left_out() -> None:
    assert not any(name.startswith("sqlite_") for name in page(sources()))
    commits = SimpleNamespace(
        commits=4, writes=10, last_writes=3, seconds_total=0.5, last_seconds=0.1
    )
    wal = SimpleNamespace(wal_bytes=5, restarts=1, restarts_pinned=2, checkpoints_failed=3)
    values = page(
        sources(
            writer=SimpleNamespace(counters=commits, waiting_count=6),
            memory_bytes=77,
            checkpointer=wal,
            damage=SimpleNamespace(messages_damaged=8, requests_failed=9),
        )
    )
    assert values["durability_commit_duration_seconds_count"] == 4
    assert values["durability_commit_duration_seconds_sum"] == 0.5
    assert values["durability_commit_batch_size"] == 3
    assert values["durability_writes_waiting"] == 6
    assert values["sqlite_memory_bytes"] == 77
    assert values["sqlite_wal_size_bytes"] == 5
    assert values["store_messages_damaged_total"] == 8
    assert values["store_requests_damaged_total"] == 9


def test_labels_are_of_a_known_few_kinds() -> None:
    labels = {label for name in page(sources()) for label in re.findall(r"(\w+)=", name)}
    assert labels <= {
        "action",
        "code",
        "error",
        "kind",
        "le",
        "plane",
        "reason",
        "status",
        "topic",
        "type",
        "version",
    }


def test_tables_of_a_cluster_name_what_its_parts_count() -> None:
    """The attributes in a table are not seen by the type checker."""
    parts: list[tuple[str, type, type | None]] = [
        (ENGINES["dynamodb"].metrics["store"], DynamoStorage, None),
        (metrics.TABLES["publisher"], Publisher, PublisherCounters),
        (metrics.TABLES["relay"], Relay, RelayCounters),
        (metrics.TABLES["consumer"], LogConsumer, ConsumerCounters),
        (ENGINES["kafka"].metrics["log_reader"], KafkaLogReader, ReaderCounters),
        (ENGINES["redis"].metrics["router"], RedisRouter, RouterCounters),
        (ENGINES["redis"].metrics["inbox"], Inbox, InboxCounters),
    ]
    for table, part, counters in parts:
        for entry in metrics.entries_of(table):
            for attribute in entry.attributes.values():
                first, _, rest = attribute.partition(".")
                if first == "counts":
                    assert hasattr(Counts(), rest), attribute
                elif first == "queue":
                    assert hasattr(PushQueue(RedisOptions()), rest), attribute
                elif first == "counters":
                    assert counters is not None
                    assert hasattr(counters(), rest), attribute
                else:
                    assert hasattr(part, first), attribute
