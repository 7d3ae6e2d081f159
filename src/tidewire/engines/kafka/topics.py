"""Making the topics of a log, and saying what about them is not as it must be.

These calls wait: they are for the command line, not for a server.
"""

from typing import TYPE_CHECKING, Final

from confluent_kafka import KafkaError, KafkaException

# What this module offers to everybody, mypy takes for its own affair.
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from tidewire.domain.errors import LogUnavailable
from tidewire.engines.kafka.options import KafkaOptions
from tidewire.engines.kafka.schema import FoundTopic, Topic, differences, topics

if TYPE_CHECKING:
    from concurrent.futures import Future

ANSWER_S_MAX: Final = 20.0


def create_topics(options: KafkaOptions) -> list[str]:
    """Make what is missing; what was made. What is there stays as it is. Raises LogUnavailable."""
    admin = AdminClient(options.common_settings())
    try:
        there = _names(admin)
        missing = [topic for topic in topics(options) if topic.name not in there]
        if not missing:
            return []
        made = admin.create_topics(
            [_new(topic) for topic in missing],
            operation_timeout=ANSWER_S_MAX,
            request_timeout=ANSWER_S_MAX,
        )
        return [topic.name for topic in missing if _is_made(made[topic.name])]
    except KafkaException as error:
        raise _translated(error) from error


def delete_topics(options: KafkaOptions) -> None:
    """Take away topics that were made for a while. Raises LogUnavailable."""
    admin = AdminClient(options.common_settings())
    try:
        gone = admin.delete_topics(
            [topic.name for topic in topics(options)],
            operation_timeout=ANSWER_S_MAX,
            request_timeout=ANSWER_S_MAX,
        )
        for future in gone.values():
            future.result()
    except KafkaException as error:
        raise _translated(error) from error


def check_topics(options: KafkaOptions) -> list[str]:
    """What differs from what is needed, in words. Raises LogUnavailable."""
    admin = AdminClient(options.common_settings())
    try:
        return [
            fault for topic in topics(options) for fault in differences(topic, _found(admin, topic))
        ]
    except KafkaException as error:
        raise _translated(error) from error


def _names(admin: AdminClient) -> set[str]:
    return {*admin.list_topics(timeout=ANSWER_S_MAX).topics}


def _new(topic: Topic) -> NewTopic:
    return NewTopic(
        topic.name,
        num_partitions=topic.partitions,
        replication_factor=topic.replication_factor,
        config=dict(topic.settings),
    )


def _is_made(future: "Future[None]") -> bool:
    """False if somebody else was faster."""
    try:
        future.result()
    except KafkaException as error:
        if error.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS:
            return False
        raise
    return True


def _found(admin: AdminClient, topic: Topic) -> FoundTopic | None:
    described = admin.list_topics(timeout=ANSWER_S_MAX).topics.get(topic.name)
    if described is None or described.error is not None:
        return None
    resource = ConfigResource(ResourceType.TOPIC, topic.name)
    [answer] = admin.describe_configs([resource], request_timeout=ANSWER_S_MAX).values()
    settings = {name: str(entry.value) for name, entry in answer.result().items()}
    replicas = min(len(one.replicas) for one in described.partitions.values())
    return FoundTopic(len(described.partitions), replicas, settings)


def _translated(error: KafkaException) -> LogUnavailable:
    fault: KafkaError = error.args[0]
    return LogUnavailable(f"the event log: {fault.str()} ({fault.name()})")
