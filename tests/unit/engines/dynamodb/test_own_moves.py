from tidewire.domain.delivery import Positions
from tidewire.domain.ids import ChatId, UserId
from tidewire.engines.dynamodb.own_moves import MOVES_MAX, WAIT_S, OwnMoves

ONE = (ChatId("chat_1"), UserId("user_1"))
OTHER = (ChatId("chat_1"), UserId("user_2"))


def test_moves_are_due_in_their_order() -> None:
    moves = OwnMoves()
    assert moves.next_due_s() is None
    assert moves.note(ONE, Positions(1, 1), 10.0)
    assert moves.note(OTHER, Positions(2, 2), 11.0)
    assert moves.next_due_s() == 10.0 + WAIT_S
    assert moves.due(10.0 + WAIT_S) == {ONE: Positions(1, 1)}
    assert moves.due(10.0 + WAIT_S) == {}, "it is being written"
    assert moves.all() == {OTHER: Positions(2, 2), ONE: Positions(1, 1)}, "and found until it is"
    moves.written(ONE, Positions(1, 1))
    assert (moves.find(ONE), moves.find(OTHER)) == (None, Positions(2, 2))
    assert len(moves) == 1


def test_move_that_waits_goes_on_and_is_due_when_it_was() -> None:
    moves = OwnMoves()
    moves.note(ONE, Positions(1, 1), 10.0)
    moves.note(ONE, Positions(3, 3), 12.0)
    assert moves.find(ONE) == Positions(3, 3)
    assert moves.next_due_s() == 10.0 + WAIT_S


def test_move_that_went_on_while_it_was_written_waits_on() -> None:
    moves = OwnMoves()
    moves.note(ONE, Positions(1, 1), 10.0)
    assert moves.due(99.0) == {ONE: Positions(1, 1)}
    moves.note(ONE, Positions(2, 2), 99.0)
    moves.written(ONE, Positions(1, 1))
    assert moves.find(ONE) == Positions(2, 2)
    moves.written(ONE, Positions(3, 2))
    moves.written(ONE, Positions(3, 2))
    assert moves.find(ONE) is None


def test_moves_that_wait_are_bounded() -> None:
    moves = OwnMoves()
    for index in range(MOVES_MAX):
        assert moves.note((ONE[0], UserId(f"user_{index}")), Positions(1, 1), 1.0)
    assert not moves.note((ChatId("chat_2"), ONE[1]), Positions(1, 1), 1.0)
    assert moves.note(ONE, Positions(2, 2), 1.0), "it waits already"
