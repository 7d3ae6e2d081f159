"""Kafka's entry in the registry of engines: the event log of a cluster."""

from typing import Any, Final

from tidewire.domain.errors import InvalidOperation
from tidewire.engines.kafka.options import KafkaOptions
from tidewire.ports.engine import Engine, SharedLog, SharedLogReader

NO_BROKERS: Final = "kafka.bootstrap_servers is not set"

_METRICS: Final = """
gauge kafka_consumer_lag{topic} lag_by_topic : Records that wait.
gauge kafka_partitions counters.partitions : Partitions of the log that this process reads.
counter kafka_reader_renewals counters.renewals
  : How often the reading client had given up on the brokers and was made anew.
"""


def _event_log(options: KafkaOptions, **arguments: Any) -> SharedLog:
    from tidewire.engines.kafka.producer import KafkaEventLog

    return KafkaEventLog(options, **arguments)


def _log_reader(options: KafkaOptions, **arguments: Any) -> SharedLogReader:
    from tidewire.engines.kafka.consumer import KafkaLogReader

    return KafkaLogReader(options, **arguments)


def _make(options: KafkaOptions) -> list[str]:
    from tidewire.engines.kafka.topics import create_topics

    if not options.bootstrap_servers:
        raise InvalidOperation(f"{NO_BROKERS}; no topic was made")
    return [f"topic {name}" for name in create_topics(options)]


def _check(options: KafkaOptions) -> list[str]:
    from tidewire.engines.kafka.topics import check_topics

    if not options.bootstrap_servers:
        return [f"{NO_BROKERS}, so the topics cannot be checked"]
    return check_topics(options)


ENGINE: Final = Engine(
    name="kafka",
    options=KafkaOptions,
    settings="bootstrap_servers topic_prefix security_protocol sasl_mechanism sasl_username"
    " sasl_password tls_ca_file client_rack message_partitions replication_factor"
    " insync_replicas_min session_ms",
    is_shared=True,
    vendor="confluent_kafka",
    needs=lambda options: () if options.bootstrap_servers else ("kafka.bootstrap_servers",),
    metrics={"log_reader": _METRICS},
    event_log=_event_log,
    log_reader=_log_reader,
    make=_make,
    check=_check,
)
