from tidewire.domain.ids import ChatId
from tidewire.engines.dynamodb.numbers import SEEN_SECONDS, Counter
from tidewire.engines.dynamodb.tails import Tail, Tails

CHAT, OTHER = ChatId("chat_1"), ChatId("chat_2")
TAIL = Tail(head=5, membership_version=3, counter=Counter(10, 5), seen_at_s=100.0)


def known(tail: Tail = TAIL) -> Tails:
    tails = Tails()
    tails.committed(CHAT, tail)
    return tails


def test_tail_is_known_while_it_has_numbers() -> None:
    tails = known()
    assert tails.find(CHAT, 5, 100.0) == TAIL
    assert tails.find(CHAT, 6, 100.0) is None
    assert tails.find(OTHER, 1, 100.0) is None


def test_tail_is_not_used_when_its_counter_was_seen_too_long_ago() -> None:
    tails = known()
    assert tails.find(CHAT, 1, 100.0 + SEEN_SECONDS - 1) == TAIL
    assert tails.find(CHAT, 1, 100.0 + SEEN_SECONDS) is None


def test_tail_moves_with_what_others_commit() -> None:
    tails = known()
    tails.heard(CHAT, 8, 3)
    tails.heard(CHAT, 7, 3)
    found = tails.find(CHAT, 2, 100.0)
    assert found is not None
    assert found.head == 8
    assert tails.find(CHAT, 3, 100.0) is None, "their numbers are used"


def test_tail_is_forgotten_when_the_members_are_others() -> None:
    tails = known()
    tails.heard(CHAT, 9, 2)
    assert tails.find(CHAT, 1, 100.0) == TAIL, "old news"
    tails.heard(CHAT, 5, 4)
    assert tails.find(CHAT, 1, 100.0) is None
    tails.heard(CHAT, 6, 4)
    assert len(tails) == 0, "chats that this process does not write to are not kept"


def test_commit_does_not_hide_a_later_one_that_was_heard_of() -> None:
    tails = known()
    tails.heard(CHAT, 8, 3)
    tails.committed(CHAT, Tail(6, 3, Counter(12, 5), 101.0))
    found = tails.find(CHAT, 1, 101.0)
    assert found == Tail(8, 3, Counter(12, 5), 101.0)
    tails.committed(CHAT, Tail(7, 4, Counter(12, 5), 101.0))
    found = tails.find(CHAT, 1, 101.0)
    assert found is not None
    assert (found.head, found.membership_version) == (7, 4)


def test_tail_that_was_used_longest_ago_makes_room() -> None:
    tails = Tails(1)
    tails.committed(CHAT, TAIL)
    tails.committed(OTHER, TAIL)
    assert tails.find(CHAT, 1, 100.0) is None
    tails.forget(OTHER)
    tails.forget(OTHER)
    assert len(tails) == 0
