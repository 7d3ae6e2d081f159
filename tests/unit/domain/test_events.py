"""Events are immutable facts, one type each."""

from typing import get_args

import msgspec
import pytest

from tidewire.domain.delivery import Positions
from tidewire.domain.events import Event, MembershipChange, PositionsAdvanced
from tidewire.domain.ids import ChatId, UserId


def test_every_event_is_a_frozen_struct() -> None:
    for kind in get_args(Event):
        assert issubclass(kind, msgspec.Struct)
        assert kind.__struct_config__.frozen


def test_event_cannot_be_changed_afterwards() -> None:
    event = PositionsAdvanced(ChatId("chat_1"), UserId("user_1"), Positions(5, 3))
    with pytest.raises(AttributeError):
        event.positions = Positions(6, 3)  # type: ignore[misc]
    assert event == PositionsAdvanced(ChatId("chat_1"), UserId("user_1"), Positions(5, 3))


def test_membership_changes_are_those_of_the_contract() -> None:
    assert set(MembershipChange) == {"added", "removed", "role_changed"}
