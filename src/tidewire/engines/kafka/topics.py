"""Makes the topics of a log, and says how they differ from what is required.

These calls block: they are for the command line, not for a server.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from confluent_kafka import KafkaError, KafkaException

# mypy takes the public names of this module for private ones.
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType  # type: ignore[attr-defined]

from tidewire.domain.errors import LogUnavailable
from tidewire.engines.kafka.options import KafkaOptions
from tidewire.engines.kafka.schema import FoundTopic, Topic, differences, topics

if TYPE_CHECKING:
    from concurrent.futures import Future

ANSWER_S_MAX: Final = 20.0
_UNREACHED: Final = (KafkaError._TRANSPORT, KafkaError._TIMED_OUT, KafkaError._ALL_BROKERS_DOWN)
"""No broker has answered."""


@contextmanager
def _admin(options: KafkaOptions) -> Iterator[AdminClient]:
    told: list[KafkaError] = []
    settings: dict[str, Any] = {**options.common_settings(), "error_cb": told.append}
    admin = AdminClient(settings)
    try:
        yield admin
    except KafkaException as error:
        fault: KafkaError = error.args[0]
        if fault.code() in _UNREACHED:
            # The error does not say why; the errors passed to `error_cb` do.
            admin.poll(0)
            reasons = [one for one in told if one.code() != KafkaError._ALL_BROKERS_DOWN]
            fault = reasons[-1] if reasons else fault
        raise LogUnavailable(f"the event log: {fault.str()} ({fault.name()})") from error


def create_topics(options: KafkaOptions) -> list[str]:
    """Make the missing topics; returns their names. Others stay as is. Raises LogUnavailable."""
    with _admin(options) as admin:
        there = admin.list_topics(timeout=ANSWER_S_MAX).topics
        missing = [topic for topic in topics(options) if topic.name not in there]
        if not missing:
            return []
        made = admin.create_topics(
            [_new(topic) for topic in missing],
            operation_timeout=ANSWER_S_MAX,
            request_timeout=ANSWER_S_MAX,
        )
        return [topic.name for topic in missing if _is_made(made[topic.name])]


def delete_topics(options: KafkaOptions) -> None:
    """Delete topics that were made for temporary use. Raises LogUnavailable."""
    with _admin(options) as admin:
        gone = admin.delete_topics(
            [topic.name for topic in topics(options)],
            operation_timeout=ANSWER_S_MAX,
            request_timeout=ANSWER_S_MAX,
        )
        for future in gone.values():
            future.result()


def check_topics(options: KafkaOptions) -> list[str]:
    """The differences from what is required, as sentences. Raises LogUnavailable."""
    with _admin(options) as admin:
        return [
            fault for topic in topics(options) for fault in differences(topic, _found(admin, topic))
        ]


def _new(topic: Topic) -> NewTopic:
    return NewTopic(
        topic.name,
        num_partitions=topic.partitions,
        replication_factor=topic.replication_factor,
        config=dict(topic.settings),
    )


def _is_made(future: "Future[None]") -> bool:
    """False if another process has made the topic first."""
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
