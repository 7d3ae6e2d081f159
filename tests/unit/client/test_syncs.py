"""Pages: one a chat at a time, a few at once, later after failures."""

from random import Random

from tidewire.client.options import ClientOptions
from tidewire.client.replica import Replica
from tidewire.client.syncs import Syncs
from tidewire.domain.chats import ChatType
from tidewire.domain.ids import ChatId


def replica(number: int = 1) -> Replica:
    return Replica(
        chat_id=ChatId(f"chat_{number}"), chat_type=ChatType.DIRECT, head=5, waiting_max=1
    )


def syncs(syncs_max: int = 2) -> Syncs:
    return Syncs(ClientOptions(syncs_max=syncs_max), Random(1))


def test_page_of_a_chat_is_asked_for_once() -> None:
    made, here = syncs(), replica()
    made.want(here, 100)
    assert made.take(99) == []
    made.want(here, 50)
    made.want(here, 80)
    assert made.next_deadline_ms() == 50
    assert made.take(50) == [here]
    made.want(here, 50)
    assert made.take(50) == []
    made.answered(here.chat_id)
    made.want(here, 60)
    assert made.take(60) == [here]


def test_so_many_at_once_and_the_others_wait() -> None:
    made = syncs(2)
    replicas = [replica(n) for n in range(3)]
    for one in replicas:
        made.want(one, 0)
    due = made.take(0)
    assert due == replicas[:2]
    assert made.take(0) == []
    assert made.next_deadline_ms() is None
    made.answered(due[0].chat_id)
    assert made.next_deadline_ms() == 0
    assert made.take(0) == replicas[2:]


def test_chat_that_caught_up_meanwhile_is_not_asked_for() -> None:
    made, here = syncs(), replica()
    made.want(here, 0)
    here.cursor = 5
    assert made.take(0) == []


def test_failures_wait_longer_until_one_succeeds() -> None:
    made, here = syncs(), replica()
    waits = []
    for _ in range(3):
        made.failed(here, 0, 0)
        deadline_ms = made.next_deadline_ms()
        assert deadline_ms is not None
        waits.append(deadline_ms)
    assert waits[0] < waits[1] < waits[2]
    made.succeeded(here.chat_id)
    made.failed(here, 0, 0)
    assert (made.next_deadline_ms() or 0) <= 1_250
    made.forget(here.chat_id)
    assert made.next_deadline_ms() is None
    made.clear()


def test_wait_after_a_failure_is_not_cut_short_until_its_end() -> None:
    made, here = syncs(), replica()
    made.want(here, 500)
    made.failed(here, 0, 9_000)
    made.want(here, 10)
    assert made.next_deadline_ms() == 9_000
    assert made.take(8_999) == []
    assert made.take(9_000) == [here]
    # The next failure has a wait of its own; a chat that was left and is back has none.
    made.answered(here.chat_id)
    made.failed(here, 9_000, 20_000)
    made.want(here, 9_010)
    assert made.next_deadline_ms() == 29_000
    made.forget(here.chat_id)
    made.want(here, 9_020)
    assert made.take(9_020) == [here]


def test_next_deadline_is_never_after_what_is_wanted_first() -> None:
    made = syncs()
    late, early = replica(1), replica(2)
    made.want(late, 500)
    made.want(early, 200)
    assert made.next_deadline_ms() == 200
    assert made.take(100) == []
    assert made.take(200) == [early]
    assert made.next_deadline_ms() == 500
    made.want(late, 300)
    assert made.next_deadline_ms() == 300
    assert made.take(300) == [late]
    assert made.next_deadline_ms() is None
