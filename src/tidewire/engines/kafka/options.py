"""Where the brokers are, how the topics are made, and how long anything may take."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from tidewire.domain.accounts import Secret

POLL_INTERVAL_MS_MIN: Final = 6_000
"""A broker takes no shorter session, and a poll interval is no shorter than that."""


class SecurityProtocol(StrEnum):
    PLAINTEXT = "plaintext"
    SSL = "ssl"
    SASL_PLAINTEXT = "sasl_plaintext"
    SASL_SSL = "sasl_ssl"


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaOptions:
    """The event log of a cluster."""

    bootstrap_servers: tuple[str, ...] = ()
    """Some of the brokers, as host:port; they name the others."""
    topic_prefix: str = ""
    """Before the name of every topic and of the group: several clusters can share the brokers."""
    group: str = "fanout-workers"
    """The readers that share the work."""

    security_protocol: SecurityProtocol = SecurityProtocol.PLAINTEXT
    """How to talk to the brokers, as Kafka's clients name it: PLAINTEXT, SSL, SASL_PLAINTEXT or
    SASL_SSL."""
    sasl_mechanism: str = "SCRAM-SHA-512"
    """With SASL: the mechanism, for instance SCRAM-SHA-512."""
    sasl_username: str = ""
    """With SASL: the user."""
    sasl_password: Secret | None = None
    """With SASL: the password."""
    tls_ca_file: str = ""
    """Empty: the authorities that the machine trusts."""

    message_partitions: int = 64
    """Partitions of the topic of messages when 'cluster init' makes it."""
    change_partitions: int = 16
    """Partitions of each topic of changes when 'cluster init' makes it."""
    dead_letter_partitions: int = 8
    """Fixed when the topics are made: more of them later would move chats to other partitions."""
    replication_factor: int = 3
    """Copies of each partition when 'cluster init' makes a topic."""
    insync_replicas_min: int = 2
    """With a single broker both are 1."""

    linger_ms: int = 5
    """How long the producer gathers records before it sends them."""
    delivery_ms: int = 10_000
    """How long an event may take into the log; past it, it is left to the relays."""
    queue_records_max: int = 50_000
    """How many records may wait for the brokers; beyond it the outbox takes over."""
    queue_kilobytes_max: int = 65_536
    """What may wait in this process for the brokers; past either, events are left to the relays."""

    batch_records_max: int = 500
    """How many records a reader takes at once."""
    session_ms: int = 30_000
    """After this long without a sign of life a reader's partitions go to others."""
    poll_interval_ms: int = 300_000
    """The same for a reader that lives and does not read."""

    def __post_init__(self) -> None:
        _check(all(":" in one for one in self.bootstrap_servers), "bootstrap_servers are host:port")
        _check(bool(self.group), "group has a name")
        is_sasl = self.security_protocol.startswith("sasl")
        has_login = bool(self.sasl_username) and self.sasl_password is not None
        _check(is_sasl == has_login, "sasl_username and sasl_password belong to a sasl protocol")
        for name in ("message_partitions", "change_partitions", "dead_letter_partitions"):
            _check(getattr(self, name) >= 1, f"{name} is at least 1")
        _check(
            1 <= self.insync_replicas_min <= self.replication_factor,
            "insync_replicas_min is 1 to replication_factor",
        )
        _check(0 <= self.linger_ms < self.delivery_ms, "linger_ms is below delivery_ms")
        _check(self.queue_records_max >= 1, "queue_records_max is at least 1")
        _check(self.queue_kilobytes_max >= 1, "queue_kilobytes_max is at least 1")
        _check(1 <= self.batch_records_max <= 10_000, "batch_records_max is 1 to 10000")
        _check(
            POLL_INTERVAL_MS_MIN <= self.session_ms <= self.poll_interval_ms,
            f"session_ms is at least {POLL_INTERVAL_MS_MIN} and at most poll_interval_ms",
        )

    def common_settings(self) -> dict[str, str | int | float | bool]:
        """What every client of the vendor wants to know."""
        settings: dict[str, str | int | float | bool] = {
            "bootstrap.servers": ",".join(self.bootstrap_servers),
            "security.protocol": self.security_protocol.value,
            # A broker that comes back is found within a second.
            "reconnect.backoff.max.ms": 1_000,
            "log_level": 0,
        }
        if self.tls_ca_file:
            settings["ssl.ca.location"] = self.tls_ca_file
        if self.sasl_password is not None:
            settings |= {
                "sasl.mechanism": self.sasl_mechanism,
                "sasl.username": self.sasl_username,
                "sasl.password": self.sasl_password.reveal(),
            }
        return settings

    def producer_settings(self) -> dict[str, str | int | float | bool]:
        """A record that the producer reports as sent is on all replicas in sync, once."""
        return self.common_settings() | {
            "enable.idempotence": True,
            "acks": "all",
            "compression.type": "lz4",
            "linger.ms": self.linger_ms,
            "batch.size": 65_536,
            "delivery.timeout.ms": self.delivery_ms,
            "retry.backoff.ms": 100,
            # As Java's: clients of all languages agree on the partition of a chat (K-01).
            "partitioner": "murmur2_random",
            "queue.buffering.max.messages": self.queue_records_max,
            "queue.buffering.max.kbytes": self.queue_kilobytes_max,
        }


def _check(holds: bool, sentence: str) -> None:
    if not holds:
        raise ValueError(sentence)
