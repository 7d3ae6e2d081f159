from tidewire.domain.delivery import Positions
from tidewire.domain.ids import ChatId, UserId
from tidewire.engines.dynamodb.known import Known

ONE, OTHER, THIRD = ChatId("chat_1"), ChatId("chat_2"), ChatId("chat_3")
PLACE = (ONE, UserId("user_1"))


def test_head_that_is_known_never_falls() -> None:
    known = Known()
    assert known.head(ONE) is None
    known.saw_head(ONE, 5)
    known.saw_head(ONE, 3)
    assert known.head(ONE) == 5
    known.forget_head(ONE)
    known.forget_head(OTHER)
    assert known.head(ONE) is None


def test_empty_chat_is_known_too() -> None:
    known = Known()
    known.saw_head(ONE, 0)
    assert known.head(ONE) == 0


def test_positions_that_are_known_are_the_highest_seen_of_each() -> None:
    known = Known()
    assert known.positions(PLACE) is None
    known.saw_positions(PLACE, Positions(5, 2))
    known.saw_positions(PLACE, Positions(4, 3))
    assert known.positions(PLACE) == Positions(5, 3)


def test_what_was_used_longest_ago_makes_room() -> None:
    known = Known(heads_max=2, positions_max=1)
    known.saw_head(ONE, 1)
    known.saw_head(OTHER, 2)
    assert known.head(ONE) == 1
    known.saw_head(THIRD, 3)
    assert (known.head(ONE), known.head(OTHER), known.head(THIRD)) == (1, None, 3)
    known.saw_positions(PLACE, Positions(1, 1))
    known.saw_positions((OTHER, PLACE[1]), Positions(1, 1))
    assert known.positions(PLACE) is None
