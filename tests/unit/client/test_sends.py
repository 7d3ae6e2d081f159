"""Requests and the messages that they are."""

from tests.unit.client.stage import CHAT, WALL_MS, entry, key, listed
from tidewire.client.effects import Now
from tidewire.client.outbox import FLYING
from tidewire.client.places import place_of
from tidewire.client.sends import Sends

NOW = Now(1_000, WALL_MS)


def test_answer_leads_back_to_its_message() -> None:
    place = place_of(listed(0), waiting_max=1)
    sends = Sends({CHAT: place}, 20_000)
    assert sends.is_empty
    frame = sends.frame(entry(1, state=FLYING), lambda: "7", NOW)
    assert frame.payload.client_message_id == key(1)
    assert (place.sends_flying, sends.next_deadline_ms()) == (1, 21_000)
    answered = sends.answered("7")
    assert answered is not None
    assert answered.client_message_id == key(1)
    assert place.sends_flying == 0
    assert sends.answered("7") is None
    assert sends.answered(None) is None
    assert sends.next_deadline_ms() is None


def test_chat_need_not_be_known() -> None:
    sends = Sends({}, 20_000)
    sends.frame(entry(1, state=FLYING), lambda: "7", NOW)
    assert sends.answered("7") is not None


def test_what_is_not_marked_yet_waits_until_it_is() -> None:
    sends = Sends({}, 20_000)
    ready, fresh = entry(1), entry(2, left_at_ms=None)
    assert sends.divide([ready, fresh]) == ([ready], [fresh])
    assert not sends.is_empty
    assert sends.marked([fresh]) == [fresh]
    assert sends.marked([fresh]) == []
    sends.divide([fresh])
    sends.clear()
    assert sends.marked([fresh]) == []
