"""Where the brokers are, how the topics are made, and how long anything may take."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from tidewire.domain.accounts import Secret
from tidewire.domain.limits import check

SESSION_MS_MIN: Final = 6_000
"""Brokers refuse a shorter session unless configured otherwise (`group.min.session.timeout.ms`)."""
HEARTBEATS_PER_SESSION: Final = 6
"""How many heartbeats a reader sends in a session. It learns from the answer to one that another
reader has gone, and only then the partitions are assigned anew: pushes wait for that, too."""

STATISTICS_MS: Final = 2_000
"""How often the vendor's clients report their statistics."""


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
    client_rack: str = ""
    """Where this process runs, as the brokers name it (`broker.rack`), for instance an availability
    zone: a worker then reads from a replica there, if the brokers let it."""

    message_partitions: int = 64
    """Partitions of the topic of messages when 'cluster init' makes it."""
    change_partitions: int = 16
    """Partitions of each topic of changes when 'cluster init' makes it."""
    dead_letter_partitions: int = 8
    """Fixed when the topics are made: more of them later would move chats to other partitions."""
    replication_factor: int = 3
    """Copies of each partition when 'cluster init' makes a topic."""
    insync_replicas_min: int = 2
    """Copies that must have a record before it counts as sent, when 'cluster init' makes a topic.
    With a single broker, this and `replication_factor` are 1."""

    delivery_ms: int = 10_000
    """How long an event may take to get into the log; after that it is left to the relays."""
    queue_records_max: int = 50_000
    """How many records may wait for the brokers; beyond this, events wait in the outbox."""

    batch_records_max: int = 500
    """How many records a reader takes at once."""
    session_ms: int = SESSION_MS_MIN
    """After this long without a heartbeat, a reader's partitions go to other readers. If a reader
    was killed, pushes of their chats wait for this time and about a second more."""
    poll_interval_ms: int = 300_000
    """The same timeout for a reader that is alive but does not read."""

    def __post_init__(self) -> None:
        check(all(":" in one for one in self.bootstrap_servers), "bootstrap_servers are host:port")
        is_sasl = self.security_protocol.startswith("sasl")
        has_login = bool(self.sasl_username) and self.sasl_password is not None
        check(is_sasl == has_login, "sasl_username and sasl_password belong to a sasl protocol")
        check(self.message_partitions >= 1, "message_partitions is at least 1")
        check(
            1 <= self.insync_replicas_min <= self.replication_factor,
            "insync_replicas_min is 1 to replication_factor",
        )
        check(
            SESSION_MS_MIN <= self.session_ms <= self.poll_interval_ms,
            f"session_ms is {SESSION_MS_MIN} to {self.poll_interval_ms}",
        )

    def common_settings(self) -> dict[str, str | int | float | bool]:
        """The settings that every client of the vendor needs."""
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

    def reader_settings(self) -> dict[str, str | int | float | bool]:
        """The common settings, and the rack that a reader prefers to read from."""
        rack = {"client.rack": self.client_rack} if self.client_rack else {}
        return self.common_settings() | rack

    def producer_settings(self) -> dict[str, str | int | float | bool]:
        """A record that the producer reports as sent is on all replicas in sync, once."""
        return self.common_settings() | {
            "enable.idempotence": True,
            "acks": "all",
            "compression.type": "lz4",
            # How long it gathers records before it sends them: each push is delayed by as much.
            "linger.ms": 5,
            "batch.size": 65_536,
            "delivery.timeout.ms": self.delivery_ms,
            "retry.backoff.ms": 100,
            # As in Java's client: clients of all languages agree on the partition of a chat (K-01).
            "partitioner": "murmur2_random",
            "queue.buffering.max.messages": self.queue_records_max,
            # What may wait in this process for the brokers; beyond it, the relays publish events.
            "queue.buffering.max.kbytes": 65_536,
        }
