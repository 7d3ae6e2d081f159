"""What an acknowledgement and an author's own messages do to positions."""

from itertools import product

from tidewire.domain.advance import author_move, decide_advances
from tidewire.domain.delivery import (
    Advance,
    Advanced,
    Positions,
    positions_after_append,
    read_by_reply,
)
from tidewire.domain.errors import NotAMember, SequenceAboveHead
from tidewire.domain.events import PositionsAdvanced
from tidewire.domain.ids import ChatId, ClientMessageId, MessageId, UserId
from tidewire.domain.messages import Message

CHAT, ANNA = ChatId("chat_1"), UserId("user_anna")
HEAD = 9


def advance(*wishes: tuple[int, int], before: Positions | None = None) -> list[object]:
    """The outcomes, and the positions that move, of one user's advances."""
    members = {} if before is None else {(CHAT, ANNA): (before, HEAD)}
    decision = decide_advances(
        [
            Advance(chat_id=CHAT, user_id=ANNA, delivered=delivered, read=read)
            for delivered, read in wishes
        ],
        members,
    )
    assert decision.events == [
        PositionsAdvanced(CHAT, ANNA, after) for after in decision.moved.values()
    ]
    return [*decision.outcomes, decision.moved.get((CHAT, ANNA))]


def test_advance_moves_forward_one_after_the_other() -> None:
    assert advance((4, 0), (6, 5), before=Positions(2, 1)) == [
        Advanced(Positions(4, 1), moved=True),
        Advanced(Positions(6, 5), moved=True),
        Positions(6, 5),
    ]


def test_advance_that_is_old_news_is_answered_and_moves_nothing() -> None:
    assert advance((3, 0), before=Positions(4, 2)) == [
        Advanced(Positions(4, 2), moved=False),
        None,
    ]


def test_read_acknowledges_delivery() -> None:
    assert advance((0, 5), before=Positions(2, 1))[-1] == Positions(5, 5)


def test_advance_never_passes_the_head_and_hinders_no_other() -> None:
    above, moved, after = advance((0, HEAD + 1), (HEAD, 0), before=Positions(2, 1))
    assert isinstance(above, SequenceAboveHead)
    assert above.head == HEAD
    assert moved == Advanced(Positions(HEAD, 1), moved=True)
    assert after == Positions(HEAD, 1)


def test_outsider_is_told_nothing_else() -> None:
    outcome, after = advance((HEAD + 1, 0))
    assert isinstance(outcome, NotAMember)
    assert after is None


def own(sequence: int, prev_sequence: int) -> Message:
    return Message(
        CHAT,
        sequence,
        prev_sequence,
        MessageId("msg_1"),
        ANNA,
        ClientMessageId("key_1"),
        "hi",
        "text/plain",
        0,
    )


def test_author_moves_with_own_message_when_up_to_date() -> None:
    assert author_move(Positions(3, 3), 0, own(4, 3), None) == (Positions(4, 4), None)


def test_author_move_tells_what_was_read_by_replying() -> None:
    after = Positions(4, 2)
    told = PositionsAdvanced(CHAT, ANNA, after)
    assert author_move(Positions(3, 1), 0, own(4, 3), 2) == (after, told)


def test_author_does_not_move_past_what_has_not_arrived() -> None:
    after = Positions(4, 4)
    told = PositionsAdvanced(CHAT, ANNA, after)
    assert author_move(Positions(4, 2), 0, own(6, 5), None) == (after, told)


def test_author_move_counts_from_the_joining() -> None:
    assert author_move(Positions(0, 0), 3, own(4, 3), None) == (Positions(4, 4), None)


def test_author_moves_by_one_rule_however_far_along() -> None:
    """Also where the answer is given without asking the rules one by one."""
    small = range(5)
    for delivered, read, joined, prev in product(small, small, small, small):
        for seen in (None, *small):
            before = Positions(delivered, read)
            after, told = author_move(before, joined, own(prev + 2, prev), seen)
            assert after == positions_after_append(
                before,
                joined_sequence=joined,
                prev_sequence=prev,
                sequence=prev + 2,
                seen_sequence=seen,
            )
            was_read = read_by_reply(before, prev_sequence=prev, seen_sequence=seen)
            assert (told is not None) == (was_read > read)
