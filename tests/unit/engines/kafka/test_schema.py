"""The topics as they have to be, and what is said about others."""

import msgspec
import pytest

from tests.unit.ingest.events import ANNA, a_message, a_rename
from tidewire.domain.chats import Role
from tidewire.domain.events import (
    ChatClosed,
    ChatCreated,
    LoggedEvent,
    MembershipChange,
    MembershipChanged,
)
from tidewire.engines.kafka.options import KafkaOptions
from tidewire.engines.kafka.schema import READ, FoundTopic, Topic, differences, topic_of, topics

CHAT = a_rename(1).chat


def found_as(topic: Topic) -> FoundTopic:
    more = {"segment.bytes": "1073741824"}
    return FoundTopic(topic.partitions, topic.replication_factor, dict(topic.settings) | more)


def test_topics_are_those_of_the_contract() -> None:
    made = {topic.name: topic for topic in topics(KafkaOptions(topic_prefix="x."))}
    assert {name: topic.partitions for name, topic in made.items()} == {
        "x.messages.persisted": 64,
        "x.memberships.changed": 16,
        "x.chats.created": 16,
        "x.dead_letters": 8,
    }
    assert {topic.replication_factor for topic in made.values()} == {3}
    assert made["x.messages.persisted"].settings == {
        "cleanup.policy": "delete",
        "retention.ms": "604800000",
        "retention.bytes": "100000000000",
        "min.insync.replicas": "2",
        "unclean.leader.election.enable": "false",
        "message.timestamp.type": "CreateTime",
    }
    assert made["x.dead_letters"].settings["retention.ms"] == "2592000000"


@pytest.mark.parametrize(
    ("event", "topic"),
    [
        (a_message(1), "messages.persisted"),
        (a_rename(1), "memberships.changed"),
        (ChatCreated(CHAT, (ANNA,)), "chats.created"),
        (ChatClosed(CHAT, (ANNA,), ANNA, 1), "memberships.changed"),
        (
            MembershipChanged(
                chat=CHAT,
                user_id=ANNA,
                change=MembershipChange.ADDED,
                role=Role.MEMBER,
                joined_sequence=0,
                changed_by=ANNA,
                changed_at_ms=1,
            ),
            "memberships.changed",
        ),
    ],
)
def test_every_event_goes_into_a_topic_that_the_fan_out_reads(
    event: LoggedEvent, topic: str
) -> None:
    assert topic_of(event) == topic
    assert topic in READ


def test_topic_as_it_must_be_has_no_faults() -> None:
    topic = topics(KafkaOptions())[0]
    assert differences(topic, found_as(topic)) == []


def test_faults_say_what_is_and_what_should_be() -> None:
    topic = topics(KafkaOptions())[0]
    assert differences(topic, None) == ["messages.persisted: there is no such topic"]
    found = found_as(topic)
    [fault] = differences(topic, msgspec.structs.replace(found, partitions=32))
    assert "has 32 partitions, not 64" in fault
    [fault] = differences(topic, msgspec.structs.replace(found, replication_factor=1))
    assert "on 1 brokers, not 3" in fault
    settings = dict(found.settings) | {"retention.ms": "5", "cleanup.policy": "compact"}
    faults = differences(topic, msgspec.structs.replace(found, settings=settings))
    assert faults == [
        "messages.persisted: cleanup.policy is compact, not delete",
        "messages.persisted: retention.ms is 5, not 604800000",
    ]
