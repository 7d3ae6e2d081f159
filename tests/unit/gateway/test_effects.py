"""Effects are values: equal by content, and not to be changed."""

from typing import get_args

import pytest

from tests.unit.gateway.fakes import CHAT, send
from tidewire.gateway.effects import (
    NOTHING,
    PING,
    UNROUTE,
    Acknowledge,
    Effect,
    Ping,
    Report,
    Submit,
    Unroute,
)


def test_effects_are_equal_by_content() -> None:
    assert Submit(send("r1"), 1) == Submit(send("r1"), 1)
    assert Submit(send("r1"), 1) != Submit(send("r1"), 2)
    assert Acknowledge(CHAT, 3, 0) == Acknowledge(CHAT, 3, 0)
    assert (Ping(), Unroute()) == (PING, UNROUTE)
    assert NOTHING == ()


def test_effects_cannot_be_changed() -> None:
    acknowledge = Acknowledge(CHAT, 3, 0)
    with pytest.raises(AttributeError):
        acknowledge.read = 4  # type: ignore[misc]
    for effect in get_args(Effect):
        assert effect is Report or effect.__struct_config__.frozen
