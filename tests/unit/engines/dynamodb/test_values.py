import pytest

from tests.unit.engines.dynamodb.samples import (
    ANNA,
    NOW_MS,
    a_chat,
    a_member,
    a_message,
    a_send,
)
from tidewire.domain.delivery import NOWHERE, Positions
from tidewire.domain.users import User
from tidewire.engines.dynamodb import values
from tidewire.engines.dynamodb.rows import Row, Value, pack, unpack

USER = User(
    user_id=ANNA,
    username="Anna",
    display_name="Anna ✨",
    created_at_ms=NOW_MS,
    updated_at_ms=NOW_MS,
)


def stored(row: dict[str, Value]) -> Row:
    """A row as it comes back from the database."""
    return unpack(pack(row))


def test_message_comes_back_as_it_was() -> None:
    message = a_message(5, 3, content="naïve 👍")
    assert values.message_of(stored(values.message_row(message))) == message


def test_key_answers_with_the_first_numbers() -> None:
    message = a_message(5, 3)
    key = values.key_of(stored(values.key_row(message)), now_ms=NOW_MS)
    assert key is not None
    assert key.sender_id == ANNA
    answer = key.answer
    assert (answer.message_id, answer.sequence, answer.prev_sequence) == (message.message_id, 5, 3)
    assert (answer.created_at_ms, answer.deduplicated) == (NOW_MS, True)


def test_key_is_of_the_same_text_only() -> None:
    key = values.key_of(stored(values.key_row(a_message(content="one"))), now_ms=NOW_MS)
    assert key is not None
    assert values.is_same(a_send(content="one"), key)
    assert not values.is_same(a_send(content="two"), key)
    assert not values.is_same(a_send(content="one", content_type="text/other"), key)


@pytest.mark.parametrize(("later_seconds", "is_there"), [(-1, True), (0, False), (1, False)])
def test_key_counts_as_absent_once_it_has_expired(later_seconds: int, is_there: bool) -> None:
    row = stored(values.key_row(a_message()))
    now_ms = NOW_MS + (values.KEY_LIFE_SECONDS + later_seconds) * 1000
    assert (values.key_of(row, now_ms=now_ms) is not None) == is_there


def test_key_that_is_not_there_is_none() -> None:
    assert values.key_of(None, now_ms=NOW_MS) is None


def test_chat_comes_back_as_it_was() -> None:
    for chat in (a_chat(), a_chat(name=None)):
        assert values.chat_of(stored(values.chat_row(chat))) == chat


def test_chat_is_not_seen_while_it_is_being_made() -> None:
    assert values.chat_of(stored(values.chat_row(a_chat(), status=values.PENDING))) is None
    assert values.chat_of(None) is None


def test_member_comes_back_as_it_was() -> None:
    for member in (a_member(), a_member(muted_until_ms=5)):
        row = stored(values.member_row(a_chat().chat_id, member))
        assert values.member_of(row) == member
        state = values.member_state_of(row)
        assert state == values.MemberState(member, is_blocked=False)
    assert values.member_of(None) is None
    assert values.member_state_of(None) is None


def test_member_state_knows_a_block() -> None:
    row = stored(values.member_row(a_chat().chat_id, a_member(), is_blocked=True))
    state = values.member_state_of(row)
    assert state is not None
    assert state.is_blocked


def test_user_chat_row_is_what_a_list_is_sorted_by() -> None:
    row = values.user_chat_row(a_chat(), a_member())
    assert row == {
        "user_id": ANNA,
        "chat_id": "chat_1",
        "chat_type": "group",
        "joined_at": NOW_MS,
    }


def test_positions_begin_nowhere() -> None:
    assert values.positions_of(None) == NOWHERE
    row = {"last_acked_sequence": 4, "last_read_sequence": 3}
    assert values.positions_of(row) == Positions(4, 3)


def test_user_comes_back_as_he_was() -> None:
    row = stored(values.user_row(USER, password_hash="hash"))
    assert values.user_of(row) == USER
    assert row["password_hash"] == "hash"


def test_names_are_kept_by_their_first_letter_without_case() -> None:
    assert values.name_row(USER) == {"initial": "a", "username": "anna", "user_id": ANNA}
