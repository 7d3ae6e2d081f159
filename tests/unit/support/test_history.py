"""A history brings questions and answers together, and refuses to be written down wrongly."""

import pytest

from tests.support.history import Acked, Answer, FinalState, History, PositionAsked, Question, Sent
from tests.unit.support.story import ANN, CHAT, Story


def test_exchanges_come_in_the_order_of_the_answers() -> None:
    story = Story()
    first, second = story.begin_send("k1"), story.begin_send("k2")
    story.ack(second, 1)
    story.ack(first, 2)
    exchanges = list(History(story.entries).exchanges(Sent, Acked))
    assert [(one.began, one.ended, one.answer.sequence) for one in exchanges] == [
        (1, 2, 1),
        (0, 3, 2),
    ]
    assert [one.question.client_message_id for one in exchanges] == ["k2", "k1"]


def test_exchanges_are_of_the_kinds_asked_for() -> None:
    story = Story()
    story.send(1, "k1")
    story.look(0)
    history = History(story.entries)
    assert len(list(history.exchanges(Question, Answer))) == 2
    assert list(history.exchanges(PositionAsked, Acked)) == []


def test_questions_are_there_with_or_without_an_answer() -> None:
    story = Story()
    story.begin_send("k1")
    story.send(1, "k2")
    keys = [sent.client_message_id for sent in History(story.entries).questions(Sent)]
    assert keys == ["k1", "k2"]


def test_one_op_for_two_questions_is_refused() -> None:
    asked = PositionAsked(op=1, chat_id=CHAT, user_id=ANN)
    with pytest.raises(AssertionError, match="one question only"):
        History([asked, asked])


def test_answer_before_its_question_is_refused() -> None:
    story = Story()
    story.send(1, "k1")
    with pytest.raises(AssertionError, match="before its answer"):
        list(History(story.entries[::-1]).exchanges(Sent, Acked))


def test_final_state_knows_the_head() -> None:
    story = Story()
    story.store(1, "k1")
    final = FinalState(messages={CHAT: story.messages}, counters={}, positions={})
    assert final.head(CHAT) == 1
    assert FinalState(messages={}, counters={}, positions={}).head(CHAT) == 0
