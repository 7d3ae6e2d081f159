"""Pages: one a chat at a time, a few at once, later after failures."""

from random import Random

from tests.unit.client.stage import listed
from tidewire.client.options import ClientOptions
from tidewire.client.places import Place, place_of
from tidewire.client.syncs import Syncs
from tidewire.domain.ids import ChatId


def place(number: int = 1) -> Place:
    return place_of(listed(5, ChatId(f"chat_{number}")), waiting_max=1)


def syncs(syncs_max: int = 2) -> Syncs:
    return Syncs(ClientOptions(syncs_max=syncs_max), Random(1))


def test_page_of_a_chat_is_asked_for_once() -> None:
    made, here = syncs(), place()
    made.want(here, 100)
    assert made.due(99) == []
    made.want(here, 50)
    made.want(here, 80)
    assert made.next_deadline_ms(may_ask=True) == 50
    assert made.due(50) == [here]
    frame = made.ask(here, "1", 50)
    assert frame.payload.last_acked_sequence == 0
    made.want(here, 50)
    assert made.due(50) == []
    flight = made.answered("1")
    assert flight is not None
    assert flight.place is here
    assert made.answered("1") is None
    made.want(here, 60)
    assert made.due(60) == [here]


def test_so_many_at_once_and_the_others_wait() -> None:
    made = syncs(2)
    places = [place(n) for n in range(3)]
    for one in places:
        made.want(one, 0)
    due = made.due(0)
    assert due == places[:2]
    for number, one in enumerate(due):
        made.ask(one, str(number), 0)
    assert made.due(0) == []
    assert made.next_deadline_ms(may_ask=True) == 20_000
    assert not made.is_overdue(19_999)
    assert made.is_overdue(20_000)
    made.answered("0")
    assert made.next_deadline_ms(may_ask=True) == 0
    assert made.next_deadline_ms(may_ask=False) == 20_000
    assert made.due(0) == places[2:]


def test_chat_that_caught_up_meanwhile_is_not_asked_for() -> None:
    made, here = syncs(), place()
    made.want(here, 0)
    here.cursor = 5
    assert made.due(0) == []


def test_failures_wait_longer_until_one_succeeds() -> None:
    made, here = syncs(), place()
    waits = []
    for _ in range(3):
        made.failed(here, 0, 0)
        deadline_ms = made.next_deadline_ms(may_ask=True)
        assert deadline_ms is not None
        waits.append(deadline_ms)
    assert waits[0] < waits[1] < waits[2]
    made.succeeded(here)
    made.failed(here, 0, 0)
    assert (made.next_deadline_ms(may_ask=True) or 0) <= 1_250
    made.forget(here.chat_id)
    assert made.next_deadline_ms(may_ask=True) is None
    made.clear()


def test_next_deadline_is_never_after_what_is_wanted_first() -> None:
    made = syncs()
    late, early = place(1), place(2)
    made.want(late, 500)
    made.want(early, 200)
    assert made.next_deadline_ms(may_ask=True) == 200
    assert made.due(100) == []
    assert made.due(200) == [early]
    assert made.next_deadline_ms(may_ask=True) == 500
    made.want(late, 300)
    assert made.next_deadline_ms(may_ask=True) == 300
    assert made.due(300) == [late]
    assert made.next_deadline_ms(may_ask=True) is None
