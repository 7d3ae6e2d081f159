from typing import Any

import pytest

from tests.unit.engines.dynamodb.samples import (
    ANNA,
    BEN,
    CHAT,
    KEY,
    NOW_MS,
    a_chat,
    a_member,
    a_message,
    a_send,
)
from tidewire.domain.delivery import Positions
from tidewire.domain.errors import CounterMissing, Forbidden, KeyReused, NotAMember
from tidewire.domain.events import PositionsAdvanced
from tidewire.domain.messages import Appended
from tidewire.engines.dynamodb.values import MemberState, key_of, key_row
from tidewire.engines.dynamodb.verdicts import Known, author_moves, judge, number

ANNAS_KEY = key_of(dict(key_row(a_message(5, 3))), now_ms=NOW_MS)
assert ANNAS_KEY is not None


def known(**changed: Any) -> Known:
    fields: dict[str, Any] = {
        "chat": a_chat(),
        "has_counter": True,
        "keys": {},
        "members": {
            ANNA: MemberState(a_member(ANNA), is_blocked=False),
            BEN: MemberState(a_member(BEN), is_blocked=False),
        },
        "positions": {},
    }
    return Known(**(fields | changed))


def test_judge_lets_a_new_send_of_a_member_through() -> None:
    assert judge(a_send(), known()) is None


def test_judge_answers_the_own_key_whatever_else_is_wrong() -> None:
    """Removed meanwhile, no counter, no chat: what is stored is stored."""
    everything_gone = known(chat=None, has_counter=False, keys={KEY: ANNAS_KEY}, members={})
    again = judge(a_send(), everything_gone)
    assert isinstance(again, Appended)
    assert (again.sequence, again.deduplicated) == (5, True)
    reused = judge(a_send(content="other"), everything_gone)
    assert isinstance(reused, KeyReused)
    assert reused.original is not None


@pytest.mark.parametrize(
    ("changed", "verdict"),
    [
        ({"members": {}, "has_counter": False}, NotAMember),
        ({"members": {BEN: None}, "has_counter": False}, NotAMember),
        ({"chat": None}, NotAMember),
        (
            {"members": {BEN: MemberState(a_member(BEN), is_blocked=True)}, "has_counter": False},
            Forbidden,
        ),
        ({"has_counter": False}, CounterMissing),
        ({}, KeyReused),
    ],
)
def test_judge_hides_what_comes_later_in_the_order(
    changed: dict[str, Any], verdict: type[Exception]
) -> None:
    """Ben sends with Anna's key."""
    outcome = judge(a_send(BEN), known(keys={KEY: ANNAS_KEY}, **changed))
    assert type(outcome) is verdict
    if isinstance(outcome, KeyReused):
        assert outcome.original is None


def test_number_links_each_to_the_one_before() -> None:
    messages = number([a_send(), a_send(BEN)], first=11, prev_sequence=7, now_ms=NOW_MS)
    assert [(m.prev_sequence, m.sequence) for m in messages] == [(7, 11), (11, 12)]
    assert [m.sender_id for m in messages] == [ANNA, BEN]
    assert messages[0].created_at_ms == NOW_MS


def test_author_moves_with_his_own_messages_when_he_is_up_to_date() -> None:
    own = [(a_message(4, 3), None), (a_message(5, 4), None)]
    after, events = author_moves(Positions(3, 3), a_member(joined_sequence=0), own)
    assert (after, events) == (Positions(5, 5), [])


def test_author_moves_tell_of_what_he_read_by_replying() -> None:
    own = [(a_message(4, 3), 2), (a_message(6, 5), None)]
    after, events = author_moves(Positions(3, 1), a_member(joined_sequence=0), own)
    # The first tells that he had seen the second message; then another's fifth has not reached him.
    assert events == [
        PositionsAdvanced(CHAT, ANNA, Positions(4, 2)),
        PositionsAdvanced(CHAT, ANNA, Positions(4, 4)),
    ]
    assert after == Positions(4, 4)


def test_author_moves_count_from_where_he_joined() -> None:
    after, _ = author_moves(Positions(0, 0), a_member(joined_sequence=3), [(a_message(4, 3), None)])
    assert after == Positions(4, 4)
