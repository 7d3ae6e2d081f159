"""Options of chats: what is impossible is refused by name."""

import pytest

from tidewire.chats.options import ChatOptions


@pytest.mark.parametrize("count", [-1, 0, 1, 1001])
def test_impossible_group_is_refused(count: int) -> None:
    with pytest.raises(ValueError, match="group_members_max is 2 to 1000"):
        ChatOptions(group_members_max=count)


def test_bounds_themselves_are_possible() -> None:
    assert [ChatOptions(group_members_max=count).group_members_max for count in (2, 1000)]


def test_edit_window_is_a_time_or_none() -> None:
    assert ChatOptions().edit_window_ms is None
    assert ChatOptions(edit_window_ms=1).edit_window_ms == 1
    with pytest.raises(ValueError, match="edit_window_ms is at least 1, or none"):
        ChatOptions(edit_window_ms=0)


@pytest.mark.parametrize("count", [-1, 0, 1_000_001])
def test_impossible_bound_of_strangers_is_refused(count: int) -> None:
    with pytest.raises(ValueError, match="strangers_per_hour is 1 to 1000000"):
        ChatOptions(strangers_per_hour=count)
