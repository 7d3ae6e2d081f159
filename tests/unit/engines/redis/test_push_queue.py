"""The queue of pushes: in order, within bounds; what is dropped is owed as a word to everybody."""

from typing import Any

from tidewire.domain.ids import UserId
from tidewire.engines.redis.options import RedisOptions
from tidewire.engines.redis.push_queue import LOST, Kind, Parcel, PushQueue

ANN = UserId("ann")


def queue(**changed: Any) -> PushQueue:
    options: dict[str, Any] = {
        "queue_bytes_max": 1_000_000,
        "batch_pushes_max": 100,
        "batch_users_max": 100,
        "batch_bytes_max": 100_000,
        "attempts_max": 3,
    }
    return PushQueue(RedisOptions(**(options | changed)))


def parcel(body: bytes = b"x", users: int = 1) -> Parcel:
    return Parcel(Kind.PUSH, [ANN] * users, body)


def taken(pushes: PushQueue) -> list[Parcel]:
    batch = pushes.take()
    assert batch is not None
    return list(batch.parcels)


def test_batch_is_what_waits_in_order() -> None:
    pushes = queue()
    assert pushes.take() is None
    sent = [parcel(str(number).encode()) for number in range(3)]
    for one in sent:
        pushes.put(one)
    assert taken(pushes) == sent
    pushes.done()
    assert (pushes.put_count, pushes.done_count, pushes.bytes_count) == (3, 3, 0)
    assert pushes.take() is None


def test_batch_is_bounded_by_pushes_users_and_bytes() -> None:
    for bounds, count in (
        ({"batch_pushes_max": 2}, 2),
        ({"batch_users_max": 5}, 1),
        ({"batch_bytes_max": 1_500}, 2),
    ):
        pushes = queue(**bounds)
        for _ in range(3):
            pushes.put(parcel(b"x" * 300, users=3))
        assert len(taken(pushes)) == count


def test_push_larger_than_a_batch_goes_alone() -> None:
    pushes = queue(batch_users_max=1, batch_bytes_max=1)
    pushes.put(parcel(users=5))
    pushes.put(parcel(users=5))
    assert len(taken(pushes)) == 1


def test_batch_that_failed_is_tried_again_under_its_number() -> None:
    pushes = queue()
    pushes.put(parcel(b"1"))
    first = pushes.take()
    pushes.failed()
    pushes.put(parcel(b"2"))
    assert pushes.take() == first
    pushes.done()
    second = pushes.take()
    assert first is not None
    assert second is not None
    assert (first.number, second.number) == (1, 2)


def test_batch_is_tried_so_often_and_then_everybody_is_owed_a_word() -> None:
    pushes = queue(attempts_max=3)
    pushes.put(parcel(b"1"))
    for _ in range(2):
        pushes.take()
        pushes.failed()
    assert (pushes.owes_word, pushes.done_count) == (False, 0)
    pushes.take()
    pushes.put(parcel(b"2"))
    pushes.failed()
    assert (pushes.owes_word, pushes.losses) == (True, 1)
    # Given up counts as done: nobody waits for it any longer.
    assert (pushes.done_count, pushes.bytes_count) == (2, 0)
    later = parcel(b"3")
    pushes.put(later)
    assert taken(pushes) == [LOST, later]
    pushes.done()
    assert not pushes.owes_word
    assert pushes.done_count == 3


def test_word_that_could_not_be_said_is_owed_still_and_nothing_piles_up() -> None:
    pushes = queue(attempts_max=1)
    pushes.put(parcel())
    pushes.take()
    pushes.failed()
    for _ in range(3):
        pushes.put(parcel())
        assert taken(pushes)[0] is LOST
        pushes.failed()
        assert pushes.bytes_count == 0
        assert pushes.done_count == pushes.put_count
    assert taken(pushes) == [LOST]
    pushes.done()
    assert pushes.take() is None


def test_queue_at_its_bound_drops_what_waits() -> None:
    size = parcel().size
    pushes = queue(queue_bytes_max=2 * size)
    pushes.put(parcel())
    pushes.put(parcel())
    assert pushes.losses == 0
    pushes.put(parcel())
    assert (pushes.losses, pushes.owes_word) == (1, True)
    assert pushes.bytes_count == 0
    assert pushes.done_count == 3
    assert taken(pushes) == [LOST]


def test_drop_leaves_what_is_under_way_and_counts_it_last() -> None:
    size = parcel().size
    pushes = queue(queue_bytes_max=2 * size, batch_pushes_max=1)
    pushes.put(parcel(b"1"))
    pushes.take()
    pushes.put(parcel(b"2"))
    pushes.put(parcel(b"3"))
    # The first is not done before the others, though they are gone.
    assert pushes.done_count == 0
    assert pushes.bytes_count == size
    pushes.done()
    assert (pushes.done_count, pushes.bytes_count) == (3, 0)
    assert taken(pushes) == [LOST]


def test_drop_while_the_word_is_under_way_is_owed_another_word() -> None:
    size = parcel().size
    pushes = queue(queue_bytes_max=size, attempts_max=1)
    pushes.put(parcel())
    pushes.take()
    pushes.failed()
    assert taken(pushes) == [LOST]
    pushes.put(parcel())
    pushes.put(parcel())
    pushes.done()
    assert taken(pushes) == [LOST]
    pushes.done()
    assert not pushes.owes_word


def test_for_every_gateway_has_no_users() -> None:
    assert LOST.user_ids is None
    assert parcel(users=2).size > parcel(users=1).size
