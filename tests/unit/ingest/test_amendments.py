"""Edits, deletions and reactions on their way in: checked, bounded in time, noted."""

import pytest

from tests.unit.ingest.fake_store import FakeStore
from tests.unit.ingest.house import House, client_message_id
from tidewire.domain.errors import InvalidMessage
from tidewire.domain.ids import ChatId, UserId
from tidewire.domain.messages import Amendment, EntryKind, MessageBody
from tidewire.ports.audit import Origin, origin_noted

EDIT = Amendment(kind=EntryKind.EDIT, target=3)
DELETE = Amendment(kind=EntryKind.DELETE, target=3, reason="spam")
REACT = Amendment(kind=EntryKind.REACT, target=3, emoji="👍")


async def test_amendment_is_appended_as_it_was_said(house: House) -> None:
    house.submit("better", label="edit", amends=EDIT, base=5)
    house.submit("", key="d", label="delete", amends=DELETE)
    house.submit("", key="r", label="react", amends=REACT)
    await house.answered("edit", "delete", "react")
    [call] = house.store.calls
    assert [(send.content, send.amends, send.base) for send in call.sends] == [
        ("better", EDIT, 5),
        ("", DELETE, None),
        ("", REACT, None),
    ]
    assert [send.targets_since_ms for send in call.sends] == [0, 0, 0], "no window by default"


async def test_amendment_that_breaks_a_rule_never_reaches_the_store(house: House) -> None:
    house.submit("", key="e", label="edit", amends=EDIT)
    house.submit("text", key="d", label="delete", amends=DELETE)
    await house.answered("edit", "delete")
    assert all(isinstance(answer, InvalidMessage) for answer in house.answers.values())
    assert house.store.calls == []


async def test_edit_window_bounds_edits_alone(houses: list[House]) -> None:
    house = House(FakeStore(), edit_window_ms=60_000)
    houses.append(house)
    house.submit("better", label="edit", amends=EDIT)
    house.submit("", key="d", label="delete", amends=DELETE)
    house.submit("", key="r", label="react", amends=REACT)
    house.submit("hello")
    await house.answered("edit", "delete", "react", "hello")
    [call] = house.store.calls
    since = house.clock.date_ms - 60_000
    assert [send.targets_since_ms for send in call.sends] == [since, 0, 0, 0]


async def test_edit_window_longer_than_time_is_none(houses: list[House]) -> None:
    house = House(FakeStore(), edit_window_ms=1 << 60)
    houses.append(house)
    house.submit("better", label="edit", amends=EDIT)
    await house.answered("edit")
    assert house.store.calls[0].sends[0].targets_since_ms == 0


async def test_deletion_of_anothers_message_is_noted_from_where_it_came(house: House) -> None:
    house.store.moderated = UserId("user_ben")
    with origin_noted(Origin("192.0.2.7")):
        house.submit("", key="d", label="delete", amends=DELETE)
    await house.answered("delete")
    assert house.trail.records == [
        (
            "192.0.2.7",
            "message.deleted",
            {
                "actor": "user_anna",
                "target": "user_ben",
                "chat_id": "chat_1",
                "sequence": 3,
            },
        )
    ]


async def test_what_is_no_moderation_is_not_noted(house: House) -> None:
    house.submit("", key="own", label="own", amends=DELETE)
    house.submit("", key="r", label="react", amends=REACT)
    await house.answered("own", "react")
    house.store.moderated = UserId("user_ben")
    house.submit("", key="own", label="again", amends=DELETE)
    await house.answered("again")
    assert house.trail.records == []


async def test_send_waits_for_an_amendment_too(house: House) -> None:
    stored = await house.service.send(
        MessageBody(content="better"),
        chat_id=ChatId("chat_1"),
        sender_id=UserId("user_anna"),
        client_message_id=client_message_id("e"),
        amends=EDIT,
        base=0,
    )
    assert (stored.sequence, house.store.messages[0].amends) == (1, EDIT)
    with pytest.raises(InvalidMessage):
        await house.service.send(
            MessageBody(content="better"),
            chat_id=ChatId("chat_1"),
            sender_id=UserId("user_anna"),
            client_message_id=client_message_id("f"),
            amends=REACT,
        )
