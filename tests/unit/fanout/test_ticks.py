"""Ticks: told at once when quiet, at the interval when busy, the latest only, nothing forgotten."""

from hypothesis import given
from hypothesis import strategies as st

from tidewire.domain.delivery import Floors, Lowest
from tidewire.domain.ids import ChatId, UserId
from tidewire.fanout.ticks import DueChat, Ticks

ANN, BEN = UserId("user_ann"), UserId("user_ben")
ONE, TWO = ChatId("chat_1"), ChatId("chat_2")
FLOORS = Floors(ONE, 1, 3, Lowest(ANN, 1, 2), Lowest(ANN, 0, 1))


def ticks(*, chats_max: int = 10) -> Ticks:
    return Ticks(interval_ms=100, chats_max=chats_max)


def test_chat_is_due_at_once_when_nothing_was_told() -> None:
    held = ticks()
    assert held.next_at_ms() is None
    assert held.moved(ONE, ANN)
    assert held.next_at_ms() == 0
    assert held.take(5, 10) == [DueChat(ONE, (ANN,), None)]
    assert held.next_at_ms() is None


def test_chat_is_due_again_only_after_the_interval_with_all_who_moved() -> None:
    held = ticks()
    held.moved(ONE, ANN)
    [due] = held.take(0, 10)
    held.moved(ONE, BEN)
    assert held.take(0, 10) == []
    held.told(due, FLOORS, 10)
    held.missed(ONE, ANN)
    assert held.next_at_ms() == 110
    assert held.take(109, 10) == []
    assert held.take(110, 10) == [DueChat(ONE, (BEN, ANN), None)]


def test_chat_that_could_not_be_read_is_told_later_with_what_came_meanwhile() -> None:
    held = ticks()
    held.missed(ONE, ANN)
    [due] = held.take(0, 10)
    held.moved(ONE, BEN)
    held.failed(due, 0)
    [again] = held.take(100, 10)
    assert sorted(again.moved) == [ANN, BEN]
    assert again.told is None


def test_take_gives_no_more_than_asked_for_earliest_first() -> None:
    held = ticks()
    held.moved(ONE, ANN)
    [due] = held.take(0, 1)
    held.told(due, FLOORS, 0)
    held.moved(ONE, ANN)
    held.moved(TWO, ANN)
    assert [due.chat_id for due in held.take(200, 1)] == [TWO]
    assert [due.chat_id for due in held.take(200, 1)] == [ONE]


def test_ticks_forget_quiet_chats_at_the_bound_and_refuse_when_none_is() -> None:
    held = ticks(chats_max=1)
    held.moved(ONE, ANN)
    assert not held.moved(TWO, ANN)
    [due] = held.take(0, 1)
    assert not held.moved(TWO, ANN)
    held.told(due, FLOORS, 0)
    assert held.moved(TWO, ANN)
    assert len(held) == 1


def test_chat_may_have_an_interval_of_its_own() -> None:
    held = ticks()
    held.moved(ONE, ANN)
    [due] = held.take(0, 10)
    held.told(due, FLOORS, 10, interval_ms=2_000)
    held.moved(ONE, ANN)
    assert held.next_at_ms() == 2_010


@given(st.lists(st.sampled_from(["move one", "move two", "take", "told", "fail"]), max_size=60))
def test_every_move_is_told_in_the_end_and_never_within_the_interval(steps: list[str]) -> None:
    held = ticks()
    untold: set[ChatId] = set()
    reading: list[DueChat] = []
    last_read_at_ms: dict[ChatId, int] = {}
    now_ms = 0

    def take() -> None:
        for due in held.take(now_ms, 10):
            assert now_ms - last_read_at_ms.get(due.chat_id, -100) >= 100
            untold.discard(due.chat_id)
            reading.append(due)

    for step in [*steps, *["told"] * len(steps)]:
        now_ms += 30
        if step.startswith("move"):
            chat_id = ONE if step == "move one" else TWO
            held.moved(chat_id, ANN)
            untold.add(chat_id)
        elif step == "take":
            take()
        elif reading:
            due = reading.pop(0)
            last_read_at_ms[due.chat_id] = now_ms
            if step == "told":
                held.told(due, None, now_ms)
            else:
                held.failed(due, now_ms)
                untold.add(due.chat_id)
    now_ms += 100
    take()
    assert untold == set()
