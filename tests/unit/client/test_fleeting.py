"""Only the latest of a kind counts, and only so many."""

from tidewire.client.fleeting import Fleeting
from tidewire.client.model import TicksMoved


def test_fleeting_keeps_the_latest_of_each_key_and_no_more_than_its_bound() -> None:
    fleeting = Fleeting(2)
    for chat_id in ("a", "b", "a", "c"):
        fleeting.put(("ticks", chat_id), TicksMoved(chat_id=chat_id))
    assert fleeting.take() == [TicksMoved(chat_id="a"), TicksMoved(chat_id="c")]
    assert fleeting.take() == []
