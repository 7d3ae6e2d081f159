"""One digest at a time, asked for as early as anybody wants."""

from tests.unit.client.stage import CHAT, listed
from tidewire.client.digests import Digests
from tidewire.client.options import ClientOptions
from tidewire.domain.ids import ChatId


def test_digest_is_asked_for_at_the_earliest_wish_and_one_at_a_time() -> None:
    digests = Digests(ClientOptions())
    assert digests.next_deadline_ms(may_ask=True) is None
    digests.want(500)
    digests.want(300)
    digests.want(900)
    assert digests.next_deadline_ms(may_ask=True) == 300
    assert digests.next_deadline_ms(may_ask=False) is None
    assert not digests.is_due(299)
    assert digests.is_due(300)
    digests.ask("7", [], 300)
    assert digests.is_asked("7")
    digests.want(300)
    assert not digests.is_due(300)
    assert digests.next_deadline_ms(may_ask=True) == 20_300
    assert digests.is_overdue(20_300)
    digests.complete()
    assert digests.is_due(300)


def test_only_chats_that_were_held_and_not_heard_of_are_gone() -> None:
    digests = Digests(ClientOptions())
    a, b, c = ChatId("a"), ChatId("b"), ChatId("c")
    digests.begin([a, b, c], 0)
    digests.merge({}, listed(1, a))
    digests.updated(b)
    assert digests.complete() == [c]


def test_older_entry_is_no_news() -> None:
    digests = Digests(ClientOptions())
    places: dict[ChatId, object] = {}
    place, is_news = digests.merge(places, listed(1, membership_version=3))  # type: ignore[arg-type]
    assert is_news
    assert places == {CHAT: place}
    assert not digests.merge(places, listed(9, membership_version=2))[1]  # type: ignore[arg-type]
    assert place.head == 1
