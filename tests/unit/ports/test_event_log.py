"""The commit bus: each subscriber its kinds, in order, one after the other."""

from tests.unit.ingest.events import a_message, a_rename
from tidewire.domain.delivery import Positions
from tidewire.domain.events import Event, Notice, PositionsAdvanced, StatusMissed
from tidewire.domain.ids import ChatId, UserId
from tidewire.ports.event_log import LOGGED, CommitBus

MOVED = PositionsAdvanced(ChatId("chat_1"), UserId("user_1"), Positions(1, 0))
MISSED = StatusMissed(ChatId("chat_1"), UserId("user_1"))


def test_every_subscriber_is_told_its_kinds_in_their_order() -> None:
    bus, told = CommitBus(), list[tuple[str, list[Event | Notice]]]()
    bus.subscribe(LOGGED, lambda events: told.append(("logged", [*events])))
    bus.subscribe((PositionsAdvanced,), lambda events: told.append(("moved", [*events])))
    bus.subscribe((StatusMissed,), lambda events: told.append(("missed", [*events])))
    bus([a_message(1), MOVED, a_rename(2), a_message(3)])
    assert told == [
        ("logged", [a_message(1), a_rename(2), a_message(3)]),
        ("moved", [MOVED]),
    ]


def test_subscriber_may_publish_in_its_turn() -> None:
    bus, missed = CommitBus(), list[StatusMissed]()
    bus.subscribe((PositionsAdvanced,), lambda _: bus([MISSED]))
    bus.subscribe((StatusMissed,), missed.extend)
    bus([MOVED])
    assert missed == [MISSED]


def test_commit_without_events_is_told_to_none() -> None:
    bus, told = CommitBus(), list[object]()
    bus.subscribe(LOGGED, told.append)
    bus([])
    assert told == []
