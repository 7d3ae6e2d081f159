"""The wheel: what is put in comes out when its time has passed, and not before."""

import hypothesis.strategies as st
from hypothesis import given

from tidewire.gateway.hub import SLOT_MS, Wheel


def taken(wheel: Wheel[str], now_ms: int) -> list[str]:
    return [item for _, items in wheel.take(now_ms) for item in items]


def test_wheel_gives_items_when_their_slot_has_passed() -> None:
    wheel: Wheel[str] = Wheel(0)
    wheel.put("a", SLOT_MS)
    wheel.put("b", SLOT_MS + 1)
    wheel.put("c", 3 * SLOT_MS)
    assert taken(wheel, 2 * SLOT_MS - 1) == []
    assert taken(wheel, 2 * SLOT_MS) == ["a", "b"]
    assert taken(wheel, 10 * SLOT_MS) == ["c"]
    assert taken(wheel, 20 * SLOT_MS) == []


def test_wheel_says_in_which_slot_an_item_lies() -> None:
    wheel: Wheel[str] = Wheel(0)
    slot = wheel.put("a", 5 * SLOT_MS)
    assert wheel.take(6 * SLOT_MS) == [(slot, ["a"])]


def test_wheel_takes_what_is_late_already() -> None:
    wheel: Wheel[str] = Wheel(10 * SLOT_MS)
    wheel.put("late", 0)
    assert taken(wheel, 11 * SLOT_MS) == ["late"]


@given(
    st.lists(st.integers(0, 20 * SLOT_MS), max_size=30),
    st.lists(st.integers(1, 3 * SLOT_MS), min_size=1, max_size=30),
)
def test_wheel_is_never_early_and_at_most_a_slot_late(at_ms: list[int], steps: list[int]) -> None:
    wheel: Wheel[int] = Wheel(0)
    for index, one_ms in enumerate(at_ms):
        wheel.put(index, one_ms)
    now_ms = 0
    out: set[int] = set()
    for step_ms in steps:
        now_ms += step_ms
        for _, items in wheel.take(now_ms):
            for index in items:
                assert index not in out
                assert at_ms[index] <= now_ms
                out.add(index)
        assert all(index in out for index, one in enumerate(at_ms) if one + SLOT_MS <= now_ms)
