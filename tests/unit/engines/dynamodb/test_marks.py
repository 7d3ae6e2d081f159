"""The writes of positions as they are sent; what they do is tried on the database itself."""

from tests.unit.engines.dynamodb.samples import a_member
from tidewire.domain.delivery import Positions
from tidewire.domain.ids import ChatId, UserId
from tidewire.engines.dynamodb import marks

CHAT = ChatId("chat_1")
PLACE = (CHAT, UserId("user_1"))


def test_first_row_is_marked_and_stands_at_the_beginning() -> None:
    member = a_member()
    row = marks.first_row(CHAT, member)
    assert marks.is_marked(row)
    assert row["last_acked_sequence"] == row["last_read_sequence"] == 0
    assert not marks.is_marked(None)


def test_mark_and_hiding_make_a_row_that_is_not_there_yet() -> None:
    member = a_member()
    for write in (marks.mark(CHAT, member), marks.hide(CHAT, member, 7)):
        change = write["Update"]["UpdateExpression"]
        assert "if_not_exists(#last_acked_sequence, :none)" in change
        assert "if_not_exists(#last_read_sequence, :none)" in change
    assert (
        "REMOVE #joined_sequence"
        in (marks.unmark(CHAT, member.user_id, now_ms=1)["Update"]["UpdateExpression"])
    )


def test_move_is_conditioned_on_the_mark_and_goes_forward_only() -> None:
    body = marks.forward(PLACE, Positions(5, 3), now_ms=1)["Update"]
    assert body["ConditionExpression"] == (
        "attribute_exists(#joined_sequence) AND #last_acked_sequence <= :delivered"
        " AND #last_read_sequence <= :read"
    )
    assert "#last_read_sequence = :read" in body["UpdateExpression"]


def test_move_without_a_read_leaves_it_as_it_is() -> None:
    body = marks.forward(PLACE, Positions(5, 0), now_ms=1)["Update"]
    assert "read" not in body["UpdateExpression"]
    assert "read" not in body["ConditionExpression"]


def test_move_without_marks_may_make_the_row() -> None:
    body = marks.forward(PLACE, Positions(5, 0), now_ms=1, needs_mark=False)["Update"]
    assert body["ConditionExpression"].startswith("attribute_not_exists(#user_id) OR (")
    assert "#last_read_sequence = :read" in body["UpdateExpression"]
