"""The topics: their partitions, retention, and which events they hold (docs/data-model.md).
PURE.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from tidewire.domain.events import ChatCreated, LoggedEvent, MessageAppended
from tidewire.engines.kafka.options import KafkaOptions

MESSAGES: Final = "messages.persisted"
MEMBERSHIPS: Final = "memberships.changed"
CHATS: Final = "chats.created"
DEAD_LETTERS: Final = "dead_letters"

READ: Final = (MESSAGES, MEMBERSHIPS, CHATS)
"""What the fan-out reads."""

GROUP: Final = "fanout-workers"
"""The group of the readers that share the work, without the prefix of the topics."""

DAY_MS: Final = 86_400_000
GB: Final = 1_000_000_000


class Topic(msgspec.Struct, frozen=True):
    """A topic as it is required. `name` includes the prefix."""

    name: str
    partitions: int
    replication_factor: int
    settings: Mapping[str, str]


class FoundTopic(msgspec.Struct, frozen=True):
    """A topic as the brokers describe it."""

    partitions: int
    replication_factor: int
    settings: Mapping[str, str]


def topic_of(event: LoggedEvent) -> str:
    """The topic of an event, without the prefix. The key of its records is always the chat's id."""
    if isinstance(event, MessageAppended):
        return MESSAGES
    return CHATS if isinstance(event, ChatCreated) else MEMBERSHIPS


def topics(options: KafkaOptions) -> list[Topic]:
    changes, letters = options.change_partitions, options.dead_letter_partitions
    return [
        _topic(options, MESSAGES, options.message_partitions, days=7, gigabytes=100),
        _topic(options, MEMBERSHIPS, changes, days=7, gigabytes=10),
        _topic(options, CHATS, changes, days=7, gigabytes=10),
        _topic(options, DEAD_LETTERS, letters, days=30, gigabytes=50),
    ]


def _topic(
    options: KafkaOptions, name: str, partitions: int, *, days: int, gigabytes: int
) -> Topic:
    settings = {
        "cleanup.policy": "delete",
        "retention.ms": str(days * DAY_MS),
        "retention.bytes": str(gigabytes * GB),
        "min.insync.replicas": str(options.insync_replicas_min),
        "unclean.leader.election.enable": "false",
        "message.timestamp.type": "CreateTime",
    }
    return Topic(options.topic_prefix + name, partitions, options.replication_factor, settings)


def differences(topic: Topic, found: FoundTopic | None) -> list[str]:
    """The differences from what is required, as sentences."""
    if found is None:
        return [f"{topic.name}: there is no such topic"]
    faults = []
    if found.partitions != topic.partitions:
        faults.append(
            f"{topic.name}: it has {found.partitions} partitions, not {topic.partitions}; "
            "the number cannot be changed without moving chats, so make a new topic"
        )
    if found.replication_factor != topic.replication_factor:
        faults.append(
            f"{topic.name}: its partitions are on {found.replication_factor} brokers, "
            f"not {topic.replication_factor}"
        )
    return faults + [
        f"{topic.name}: {name} is {found.settings.get(name)}, not {wanted}"
        for name, wanted in topic.settings.items()
        if found.settings.get(name) != wanted
    ]
