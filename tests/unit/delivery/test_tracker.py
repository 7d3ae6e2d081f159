"""The tracker: many acknowledgements in, few writes out, nothing lower than what was offered."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from tidewire.delivery.tracker import Tracker
from tidewire.domain.delivery import Advance, Advanced, AdvanceOutcome, Positions
from tidewire.domain.ids import ChatId, UserId

ANN = UserId("user_ann")
BEN = UserId("user_ben")
CHAT = ChatId("chat_1")


def wish(user_id: UserId = ANN, *, delivered: int = 0, read: int = 0) -> Advance:
    return Advance(user_id=user_id, chat_id=CHAT, delivered=delivered, read=read)


def moved(wishes: Sequence[Advance]) -> list[AdvanceOutcome]:
    return [Advanced(Positions(one.delivered, one.read), moved=True) for one in wishes]


def tracker(*, waiting_max: int = 10, batch_max: int = 10) -> Tracker[str]:
    return Tracker(waiting_max=waiting_max, batch_max=batch_max)


def test_tracker_gives_the_highest_of_each_when_one_origin_offers_many() -> None:
    held = tracker()
    for one in (wish(delivered=3), wish(delivered=7, read=1), wish(delivered=5, read=4)):
        assert held.offer("phone", one)
    assert held.take() == [wish(delivered=7, read=4)]


def test_tracker_keeps_origins_apart_so_that_a_bad_one_spoils_no_other() -> None:
    held = tracker()
    held.offer("phone", wish(delivered=5))
    held.offer("tablet", wish(delivered=10**15))
    assert held.take() == [wish(delivered=5), wish(delivered=10**15)]


def test_tracker_gives_nothing_while_a_batch_is_being_written() -> None:
    held = tracker()
    held.offer("phone", wish(delivered=1))
    first = held.take()
    held.offer("phone", wish(delivered=2))
    assert held.take() == []
    assert held.completed(moved(first)) == [("phone", first[0], moved(first)[0])]
    assert held.take() == [wish(delivered=2)]


def test_tracker_gives_nothing_when_nothing_waits() -> None:
    assert tracker().take() == []


def test_tracker_merges_a_failed_batch_with_what_came_meanwhile() -> None:
    held = tracker()
    held.offer("phone", wish(delivered=9))
    held.offer("phone", wish(BEN, delivered=1))
    held.take()
    held.offer("phone", wish(delivered=4, read=4))
    held.offer("tablet", wish(delivered=2))
    held.failed()
    assert held.take() == [wish(delivered=9, read=4), wish(BEN, delivered=1), wish(delivered=2)]


def test_tracker_refuses_another_chat_at_the_bound_but_not_one_it_holds() -> None:
    held = tracker(waiting_max=1)
    assert held.offer("phone", wish(delivered=1))
    assert not held.offer("phone", wish(BEN, delivered=1))
    assert held.offer("phone", wish(delivered=2))
    assert held.take() == [wish(delivered=2)]


def test_tracker_cuts_batches_at_their_bound_oldest_first() -> None:
    held = tracker(batch_max=2)
    for number in range(5):
        held.offer("phone", wish(UserId(f"user_{number}"), delivered=1))
    sizes = []
    while batch := held.take():
        sizes.append(len(batch))
        held.completed(moved(batch))
    assert sizes == [2, 2, 1]
    assert held.is_idle


def test_tracker_counts_what_waits_and_is_not_idle_while_writing() -> None:
    held = tracker()
    seen = [(held.is_idle, held.waiting_count)]
    held.offer("phone", wish(delivered=1))
    seen.append((held.is_idle, held.waiting_count))
    batch = held.take()
    seen.append((held.is_idle, held.waiting_count))
    held.completed(moved(batch))
    seen.append((held.is_idle, held.waiting_count))
    assert seen == [(True, 0), (False, 1), (False, 0), (True, 0)]


steps = st.lists(
    st.one_of(
        st.tuples(
            st.sampled_from(["phone", "tablet"]),
            st.sampled_from([ANN, BEN]),
            st.integers(0, 9),
            st.integers(0, 9),
        ),
        st.sampled_from(["take", "complete", "fail"]),
    )
)


@given(steps)
def test_tracker_writes_the_highest_of_everything_offered_whatever_fails(
    steps: list[object],
) -> None:
    held = tracker(waiting_max=100, batch_max=3)
    offered: dict[tuple[str, UserId], Positions] = {}
    written: dict[tuple[str, UserId], Positions] = {}
    batch: list[Advance] = []

    def complete() -> None:
        for origin, one, _ in held.completed(moved(batch)):
            key = (origin, one.user_id)
            before = written.get(key, Positions(0, 0))
            written[key] = before.merged(Positions(one.delivered, one.read))
        batch.clear()

    for step in steps:
        if isinstance(step, tuple):
            origin, user_id, delivered, read = step
            held.offer(origin, wish(user_id, delivered=delivered, read=read))
            before = offered.get((origin, user_id), Positions(0, 0))
            offered[origin, user_id] = before.merged(Positions(delivered, read))
        elif step == "take" and not batch:
            batch = held.take()
        elif step == "complete" and batch:
            complete()
        elif step == "fail" and batch:
            held.failed()
            batch.clear()
    if batch:
        complete()
    while batch := held.take():
        complete()
    assert written == offered
    assert held.is_idle


def test_one_at_a_time_is_taken_in_order_and_may_be_dropped() -> None:
    held: Tracker[str] = Tracker(waiting_max=10, batch_max=5)
    first, second = wish(UserId("user_1"), delivered=1), wish(UserId("user_2"), delivered=2)
    held.offer("phone", first)
    held.offer("phone", second)
    assert held.take() == [first, second]
    held.failed()
    assert held.take(1) == [first]
    held.dropped()
    assert held.take(1) == [second]
    held.completed(moved([second]))
    assert held.is_idle


def test_tracker_knows_of_whom_something_waits_also_after_a_failure() -> None:
    held = tracker()
    assert not held.may_wait(ANN, CHAT)
    held.offer("phone", wish(delivered=1))
    assert held.may_wait(ANN, CHAT)
    assert not held.may_wait(BEN, CHAT)
    held.take()
    assert not held.may_wait(ANN, CHAT)
    held.failed()
    assert held.may_wait(ANN, CHAT)


def test_tracker_forgets_nobody_who_waits_when_it_gives_a_part() -> None:
    held = tracker()
    held.offer("phone", wish(ANN, delivered=1))
    held.offer("phone", wish(BEN, delivered=1))
    held.take(1)
    assert held.may_wait(BEN, CHAT)


def test_what_waits_of_one_user_is_taken_from_all_origins_beside_a_batch() -> None:
    held = tracker()
    held.offer("phone", wish(ANN, delivered=1))
    held.take()
    held.offer("phone", wish(ANN, delivered=2))
    held.offer("laptop", wish(ANN, read=3))
    held.offer("phone", wish(BEN, delivered=1))
    taken = held.take_of(ANN, CHAT)
    assert sorted(taken) == [("laptop", wish(ANN, read=3)), ("phone", wish(ANN, delivered=2))]
    assert held.take_of(ANN, CHAT) == []
    assert (held.may_wait(ANN, CHAT), held.may_wait(BEN, CHAT)) == (False, True)
    # What could not be written waits again, merged with what came meanwhile.
    held.offer("phone", wish(ANN, read=1))
    held.give_back(taken)
    held.completed(moved([wish(ANN, delivered=1)]))
    assert held.take() == [
        wish(BEN, delivered=1),
        wish(ANN, delivered=2, read=1),
        wish(ANN, read=3),
    ]


def test_what_a_batch_has_taken_is_not_taken_of_its_user_again() -> None:
    held = tracker()
    held.offer("phone", wish(ANN, delivered=1))
    held.offer("phone", wish(BEN, delivered=1))
    held.take(1)
    assert held.take_of(ANN, CHAT) == []
    assert held.take_of(BEN, CHAT) == [("phone", wish(BEN, delivered=1))]
