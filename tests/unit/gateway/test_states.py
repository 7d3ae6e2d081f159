"""The states lead one way."""

from tidewire.gateway.states import CLOSED, CLOSING, CONNECTING, READY, TRANSITIONS


def test_transitions_lead_one_way() -> None:
    order = [CONNECTING, READY, CLOSING, CLOSED]
    for state, after in TRANSITIONS.items():
        assert all(order.index(one) > order.index(state) for one in after)
    assert TRANSITIONS[CLOSED] == frozenset()
