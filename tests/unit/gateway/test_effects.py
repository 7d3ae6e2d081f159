"""Effects are values: equal by content, and not to be changed."""

from typing import get_args

import pytest

from tests.unit.gateway.fakes import CHAT
from tidewire.gateway.effects import (
    CLOSED,
    CLOSING,
    CONNECTING,
    NOTHING,
    PING,
    READY,
    TRANSITIONS,
    UNROUTE,
    Effect,
    Ping,
    Report,
    Typing,
    Unroute,
)


def test_effects_are_equal_by_content() -> None:
    assert Typing(CHAT, True) == Typing(CHAT, True)
    assert Typing(CHAT, True) != Typing(CHAT, False)
    assert (Ping(), Unroute()) == (PING, UNROUTE)
    assert NOTHING == ()


def test_effects_cannot_be_changed() -> None:
    typing = Typing(CHAT, True)
    with pytest.raises(AttributeError):
        typing.is_typing = False  # type: ignore[misc]
    for effect in get_args(Effect):
        assert effect is Report or effect.__struct_config__.frozen


def test_transitions_lead_one_way() -> None:
    order = [CONNECTING, READY, CLOSING, CLOSED]
    for state, after in TRANSITIONS.items():
        assert all(order.index(one) > order.index(state) for one in after)
    assert TRANSITIONS[CLOSED] == frozenset()
