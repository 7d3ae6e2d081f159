"""Records that wait for the readers: by partition, until the readers' offsets pass them."""

from tests.unit.ingest.events import ANNA, CHAT
from tidewire.domain.ids import ChatId
from tidewire.engines.kafka.unread import Unread

OTHER = ChatId("chat_2")
HERE = ("messages", 0)
THERE = ("messages", 1)


def test_record_waits_until_the_readers_have_passed_it() -> None:
    unread = Unread()
    unread.logged(HERE, 7, CHAT, (), 1_000)
    unread.logged(HERE, 8, OTHER, (ANNA,), 2_000)
    assert unread.since(2_000) == {CHAT: (), OTHER: (ANNA,)}
    unread.handled({HERE: 7})
    assert len(unread) == 2
    unread.handled({HERE: 8})
    assert unread.since(2_000) == {OTHER: (ANNA,)}
    unread.handled({HERE: 9, THERE: 50})
    assert unread.since(2_000) == {}
    assert len(unread) == 0


def test_record_is_late_when_it_has_waited_long_enough() -> None:
    unread = Unread()
    unread.logged(HERE, 7, CHAT, (), 1_000)
    unread.logged(THERE, 3, OTHER, (), 2_000)
    assert (unread.places(999), unread.since(999)) == ([], {})
    assert (unread.places(1_000), unread.since(1_000)) == ([HERE], {CHAT: ()})
    assert unread.places(2_000) == [HERE, THERE]


def test_past_the_bound_partitions_are_known_and_chats_are_not() -> None:
    unread = Unread(records_max=1)
    unread.logged(HERE, 7, CHAT, (), 1_000)
    unread.logged(HERE, 9, OTHER, (), 2_000)
    unread.logged(THERE, 4, OTHER, (), 2_000)
    unread.logged(THERE, 3, OTHER, (), 3_000)
    assert len(unread) == 1
    assert unread.since(1_999) == {CHAT: ()}
    assert unread.since(2_000) is None
    assert unread.places(2_000) == [HERE, THERE]
    unread.handled({HERE: 10, THERE: 4})
    assert unread.since(2_000) is None
    assert unread.places(2_000) == [THERE]
    unread.handled({THERE: 5})
    assert (unread.places(9_000), unread.since(9_000)) == ([], {})
