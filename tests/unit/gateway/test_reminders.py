"""Whom to tell while the log is behind: at once, then after 5 s, doubling to a minute."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from tidewire.domain.ids import UserId
from tidewire.gateway.reminders import OVER_MS, Reminders

ANNA, BEN, EVE = (UserId(f"user_{name}") for name in ("anna", "ben", "eve"))


def never() -> float:
    return 0.0


def test_user_is_told_at_once_then_less_and_less_often() -> None:
    reminders = Reminders()
    told_s = [
        second
        for second in range(0, 300, 5)
        if reminders.due([ANNA], second * 1_000, never) == {ANNA: 0}
    ]
    assert told_s == [0, 5, 15, 35, 75, 130, 185, 240, 295]


def test_users_are_told_each_at_their_own_times() -> None:
    reminders = Reminders()
    assert reminders.due([ANNA], 0, never) == {ANNA: 0}
    # Of another chat, or by another process.
    assert reminders.due([ANNA, BEN], 2_000, never) == {BEN: 0}
    assert reminders.due([ANNA, BEN], 5_000, never) == {ANNA: 0}
    assert reminders.due([ANNA, BEN], 7_000, never) == {BEN: 0}


def test_chance_says_how_long_clients_wait_before_they_ask() -> None:
    reminders = Reminders()
    chances = iter([0.0, 0.5, 0.999])
    assert reminders.due([ANNA, BEN], 0, lambda: next(chances)) == {ANNA: 0, BEN: 500}
    assert reminders.due([ANNA], 5_000, lambda: next(chances)) == {ANNA: 1_998}


def test_what_is_not_heard_any_more_is_over_and_begins_anew() -> None:
    reminders = Reminders()
    for second in (0, 5, 10, 15):
        reminders.due([ANNA], second * 1_000, never)
    over_ms = 15_000 + OVER_MS
    assert reminders.due([ANNA], over_ms, never) == {}
    assert reminders.due([BEN], over_ms + OVER_MS + 1, never) == {BEN: 0}
    assert len(reminders) == 1
    assert reminders.due([ANNA], over_ms + OVER_MS + 1, never) == {ANNA: 0}
    assert reminders.due([ANNA], over_ms + OVER_MS + 5_001, never) == {ANNA: 0}


def test_memory_is_bounded_and_forgets_who_was_heard_of_longest_ago() -> None:
    reminders = Reminders(users_max=2)
    reminders.due([ANNA, BEN], 0, never)
    reminders.due([ANNA], 1_000, never)
    assert reminders.due([EVE], 2_000, never) == {EVE: 0}
    assert len(reminders) == 2
    assert reminders.due([ANNA], 3_000, never) == {}
    assert reminders.due([BEN], 3_000, never) == {BEN: 0}


@given(st.lists(st.integers(0, 20_000), max_size=60), st.floats(0, 1))
def test_no_user_is_told_more_often_than_every_few_seconds(gaps: list[int], chance: float) -> None:
    reminders = Reminders()
    now_ms, told_ms = 0, []
    for gap in gaps:
        now_ms += gap
        for delay_ms in reminders.due([ANNA, ANNA], now_ms, lambda: chance).values():
            assert 0 <= delay_ms <= 12_000
            told_ms.append(now_ms)
    assert all(later - earlier >= 4_500 for earlier, later in pairwise(told_ms))
