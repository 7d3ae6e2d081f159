"""Topics as an operator makes and checks them."""

from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic  # type: ignore[attr-defined]

from tests.e2e.commands import EVERY_OPTION, tidewire
from tests.engines.kafka import gateway as gateways
from tests.support.kafka import kafka_settings, local_options
from tests.support.stack import ensure
from tidewire.domain.errors import LogUnavailable
from tidewire.engines.kafka import topics
from tidewire.engines.kafka.topics import check_topics, create_topics

pytestmark = pytest.mark.slow
"""Topics are made, and commands started."""


def test_topics_are_made_once_and_checked() -> None:
    options = local_options(ensure("kafka"))
    names = [
        options.topic_prefix + name
        for name in ("messages.persisted", "memberships.changed", "chats.created", "dead_letters")
    ]
    assert check_topics(options) == [f"{name}: there is no such topic" for name in names]
    assert create_topics(options) == names
    assert create_topics(options) == []
    assert check_topics(options) == []


def test_topic_that_somebody_else_made_otherwise_stays_and_is_told() -> None:
    options = local_options(ensure("kafka"))
    name = options.topic_prefix + "dead_letters"
    admin = AdminClient(options.common_settings())
    settings = {"retention.ms": "5000", "min.insync.replicas": "1"}
    admin.create_topics([NewTopic(name, 3, 1, config=settings)])[name].result()
    assert name not in create_topics(options)
    faults = check_topics(options)
    assert all(fault.startswith(f"{name}: ") for fault in faults)
    told = "\n".join(faults)
    assert "3 partitions, not 1" in told
    assert "retention.ms is 5000, not 2592000000" in told
    [described] = admin.describe_configs([ConfigResource("topic", name)]).values()
    assert described.result()["retention.ms"].value == "5000"


def test_log_that_cannot_be_reached_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topics, "ANSWER_S_MAX", 2.0)
    options = local_options(1)
    for ask in (create_topics, check_topics):
        with pytest.raises(LogUnavailable, match=r"event log.*Connection refused"):
            ask(options)


def test_replication_that_the_brokers_cannot_give_is_told() -> None:
    options = local_options(ensure("kafka"), replication_factor=3)
    with pytest.raises(LogUnavailable, match=r"(?i)replication"):
        create_topics(options)


def test_refusal_of_one_broker_is_told_while_another_cannot_be_reached() -> None:
    port = ensure("kafka")
    servers = ("127.0.0.1:1", f"127.0.0.1:{port}")
    options = local_options(port, bootstrap_servers=servers, replication_factor=3)
    with pytest.raises(LogUnavailable, match="INVALID_REPLICATION_FACTOR"):
        create_topics(options)


async def test_commands_make_and_check_topics(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = await gateways.tables(ensure("dynamodb"))
    settings = {
        "TIDEWIRE_DATA_DIR": str(tmp_path),
        "TIDEWIRE_DYNAMODB_ENDPOINT_URL": tables.endpoint_url,
        "TIDEWIRE_DYNAMODB_REGION": tables.region,
        "TIDEWIRE_DYNAMODB_ACCESS_KEY": "local",
        "TIDEWIRE_DYNAMODB_SECRET_KEY": "local",
        "TIDEWIRE_DYNAMODB_TABLE_PREFIX": tables.table_prefix,
    }
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    told = tidewire("cluster", "check", program=EVERY_OPTION)
    assert told.exit_code == 1
    assert "kafka.bootstrap_servers is not set" in told.out
    log = kafka_settings()
    for name, value in log.items():
        monkeypatch.setenv(name, value)
    prefix = log["TIDEWIRE_KAFKA_TOPIC_PREFIX"]
    assert (
        f"topic {prefix}messages.persisted" in tidewire("cluster", "init", program=EVERY_OPTION).out
    )
    assert "redis.url is not set" in tidewire("cluster", "check", program=EVERY_OPTION).out
    monkeypatch.setenv("TIDEWIRE_REDIS_URL", f"redis://127.0.0.1:{ensure('redis')}/0")
    assert "are as they must be" in tidewire("cluster", "check", program=EVERY_OPTION).out
    monkeypatch.setenv("TIDEWIRE_KAFKA_DEAD_LETTER_PARTITIONS", "3")
    told = tidewire("cluster", "check", program=EVERY_OPTION)
    assert told.exit_code == 1
    assert f"{prefix}dead_letters: it has 1 partitions, not 3" in told.out
