"""Settings of the event log: what is impossible is refused by name, secrets go to the vendor."""

from typing import Any

import pytest

from tidewire.domain.accounts import Secret
from tidewire.engines.kafka.options import KafkaOptions, SecurityProtocol


@pytest.mark.parametrize(
    "impossible",
    [
        {"bootstrap_servers": ("broker",)},
        {"sasl_username": "anna", "sasl_password": Secret("x")},
        {"sasl_username": "anna", "security_protocol": SecurityProtocol.SASL_SSL},
        {"message_partitions": 0},
        {"insync_replicas_min": 0},
        {"insync_replicas_min": 4},
        {"session_ms": 5_999},
        {"session_ms": 300_001},
    ],
)
def test_options_refuse_what_is_impossible(impossible: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(impossible))):
        KafkaOptions(**impossible)


def test_settings_say_where_and_how() -> None:
    plain = KafkaOptions(bootstrap_servers=("a:1", "b:2")).common_settings()
    assert plain["bootstrap.servers"] == "a:1,b:2"
    assert plain["security.protocol"] == "plaintext"
    assert not any(name.startswith(("sasl", "ssl")) for name in plain)
    secure = KafkaOptions(
        security_protocol=SecurityProtocol.SASL_SSL,
        sasl_username="anna",
        sasl_password=Secret("hidden"),
        tls_ca_file="ca.pem",
    )
    assert "hidden" not in repr(secure)
    settings = secure.common_settings()
    assert settings["sasl.password"] == "hidden"
    assert settings["ssl.ca.location"] == "ca.pem"


def test_rack_is_for_those_who_read() -> None:
    options = KafkaOptions(client_rack="eu-central-1a")
    assert options.reader_settings()["client.rack"] == "eu-central-1a"
    assert "client.rack" not in options.producer_settings()
    assert "client.rack" not in KafkaOptions().reader_settings()


def test_producer_waits_for_all_replicas_and_repeats_nothing() -> None:
    settings = KafkaOptions(delivery_ms=8_000).producer_settings()
    assert settings["acks"] == "all"
    assert settings["enable.idempotence"] is True
    assert settings["partitioner"] == "murmur2_random"
    assert settings["delivery.timeout.ms"] == 8_000
    assert settings["bootstrap.servers"] == KafkaOptions().common_settings()["bootstrap.servers"]
