"""What Prometheus is told of a cluster's parts; see `metrics`."""

from collections.abc import Iterator

from prometheus_client.core import Metric

from tidewire.engines.dynamodb.database import Counts
from tidewire.fanout.consumer import LogConsumer
from tidewire.ingest.publisher import Publisher
from tidewire.ingest.relay import Relay
from tidewire.ports.event_log import LogReader
from tidewire.runtime.backbone import Backbone
from tidewire.runtime.metric_families import counter, counter_by, gauge, gauge_by


def backbone_metrics(backbone: Backbone) -> Iterator[Metric]:
    yield from _dynamodb(backbone.store.counts)
    if backbone.publisher is not None:
        yield from _publisher(backbone.publisher)
    if backbone.relay is not None:
        yield from _relay(backbone.relay)
    if backbone.consumer is not None and backbone.reader is not None:
        yield from _consumer(backbone.consumer, backbone.reader)
        yield gauge(
            "kafka_partitions",
            "Partitions of the log that this process reads.",
            backbone.reader.counters.partitions,
        )
        yield counter(
            "kafka_reader_renewals",
            "How often the reading client had given up on the brokers and was made anew.",
            backbone.reader.counters.renewals,
        )
    yield from _redis(backbone)


def _dynamodb(counts: Counts) -> Iterator[Metric]:
    yield counter("dynamodb_requests", "Requests to the database.", counts.requests)
    hindrances = {
        "throttled": counts.throttled,
        "conflict": counts.conflicts,
        "answer_lost": counts.answers_lost,
    }
    yield counter_by("dynamodb_retries", "Requests that got no answer.", "reason", hindrances)
    yield counter(
        "durability_fences_failed",
        "Commits that another process was faster than.",
        counts.fences_failed,
    )
    yield counter(
        "durability_sequence_gaps",
        "Numbers never used that lie before commits of this process.",
        counts.sequences_skipped,
    )
    yield counter(
        "dynamodb_pages_cut",
        "Pages that ended before a message whose predecessor was not visible yet.",
        counts.pages_cut,
    )
    yield counter(
        "dynamodb_author_moves_lost",
        "Messages stored whose author's own position could not be moved.",
        counts.author_moves_lost,
    )


def _publisher(publisher: Publisher) -> Iterator[Metric]:
    counters = publisher.counters
    outcomes = {
        "published": counters.published,
        "failed": counters.failed,
        "left_to_relays": counters.left_to_relays,
    }
    yield counter_by("outbox_publish", "Commits on their way into the log.", "status", outcomes)
    yield counter("outbox_rows_deleted", "Rows of what the log has.", counters.rows_deleted)
    yield gauge(
        "outbox_publishing", "Commits that the log has not taken yet.", publisher.publishing_count
    )


def _relay(relay: Relay) -> Iterator[Metric]:
    counters = relay.counters
    yield gauge(
        "outbox_oldest_seconds",
        "How late the log is with what this relay looks after.",
        relay.outbox_oldest_seconds,
    )
    yield gauge("outbox_shards", "Shards that this relay looks after.", len(relay.shards))
    yield counter("outbox_relayed", "Rows that this relay has published.", counters.rows_published)
    yield counter(
        "outbox_rows_unreadable",
        "Looks at rows that nobody can make sense of; each stays until somebody deletes it.",
        counters.rows_unreadable,
    )
    yield counter("outbox_relay_faults", "Rounds that were cut short.", counters.faults)


def _consumer(consumer: LogConsumer, reader: LogReader) -> Iterator[Metric]:
    counters = consumer.counters
    yield counter_by(
        "fanout_records_read", "Records of the log.", "topic", counters.records_by_topic
    )
    yield counter("fanout_dead_letters", "Records that nobody can read.", counters.buried)
    yield counter("fanout_records_unknown", "Records of kinds not known here.", counters.unknown)
    yield counter("fanout_rewinds", "Batches that had to be read again.", counters.rewinds)
    lag: dict[str, float] = {}
    for (topic, _), count in reader.lag().items():
        lag[topic] = lag.get(topic, 0) + count
    yield gauge_by("kafka_consumer_lag", "Records that wait.", "topic", lag)


def _redis(backbone: Backbone) -> Iterator[Metric]:
    counters = backbone.router.counters
    yield counter("redis_pushes", "Pushes handed to Redis.", counters.pushes)
    yield counter("redis_entries", "Entries in the streams of gateways.", counters.entries)
    yield counter("redis_push_failures", "Calls that Redis did not answer.", counters.failures)
    yield gauge("redis_push_queue_bytes", "Pushes that wait.", backbone.router.queue_bytes)
    yield counter(
        "redis_pushes_dropped",
        "How often all pushes that waited were dropped, and everybody told.",
        backbone.router.losses,
    )
    if backbone.inbox is not None:
        inbox = backbone.inbox
        yield gauge("redis_routes", "Routes of this gateway.", inbox.routes_count)
        yield gauge("redis_lost", "1 while Redis does not answer.", float(inbox.is_lost))
        yield counter("redis_entries_taken", "Entries read.", inbox.counters.entries)
        yield counter(
            "redis_losses", "How often everybody here had to sync again.", inbox.counters.losses
        )
        yield counter(
            "redis_routes_missing",
            "Connections that had to sync again because their route was gone.",
            inbox.counters.routes_missing,
        )
