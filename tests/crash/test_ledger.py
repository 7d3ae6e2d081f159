"""The ledger notices every fault that it must notice: a check that cannot fail proves nothing.

Each test spoils one thing in a story that is right.
"""

from collections.abc import Callable

import msgspec
import pytest

from tests.support import history
from tests.support.crash_cast import make_cast
from tests.support.crash_ledger import Ledger
from tests.support.crash_records import (
    Fault,
    OnLine,
    Placed,
    Record,
    content_of,
    decode_line,
    encode_line,
)
from tests.support.crash_snapshot import Snapshot
from tidewire.domain.delivery import Positions
from tidewire.domain.errors import ErrorCode
from tidewire.domain.ids import ClientMessageId, MessageId
from tidewire.domain.messages import Message

CAST = make_cast(4)
CHAT, ANNA, BERT = CAST.directs[0]


def sent(op: int, number: int) -> history.Sent:
    key = ClientMessageId(f"key-{number}")
    return history.Sent(
        op=op,
        chat_id=CHAT,
        user_id=ANNA,
        client_message_id=key,
        content=content_of(key, 40),
    )


def placed(op: int, number: int, sequence: int | None = None) -> Placed:
    sequence = sequence or number
    return Placed(
        op=op,
        sequence=sequence,
        prev_sequence=sequence - 1,
        message_id=MessageId(f"msg-{number}"),
        created_at_ms=1000 + number,
    )


def message(number: int) -> Message:
    key = ClientMessageId(f"key-{number}")
    return Message(
        CHAT,
        number,
        number - 1,
        MessageId(f"msg-{number}"),
        ANNA,
        key,
        content_of(key, 40),
        "text/plain",
        1000 + number,
    )


STORY: tuple[Record, ...] = (
    OnLine("line"),
    sent(1, 1),
    placed(1, 1),
    OnLine("line"),
    sent(2, 2),
    placed(2, 2),
    history.AdvanceSent(op=3, chat_id=CHAT, user_id=BERT, delivered=2, read=1),
    history.AdvanceAcked(op=3, delivered=2, read=1, moved=True),
    history.MemberAdding(op=4, chat_id=CAST.open_group, user_id=CAST.guest),
    history.MembershipDone(op=4),
    history.MemberRemoving(op=5, chat_id=CAST.open_group, user_id=CAST.guest),
    OnLine("line"),
    sent(6, 3),
    OnLine("line"),
    sent(7, 4),
    sent(8, 5),
    history.Refused(op=8, code=ErrorCode.NOT_A_MEMBER),
)
"""Two messages are acked, two are not answered, one is refused; a change is not answered."""

STATE = Snapshot(
    messages=[message(1), message(2), message(3)],
    counters={CHAT: 3},
    positions={(ANNA, CHAT): Positions(3, 3), (BERT, CHAT): Positions(2, 1)},
    members={(ANNA, CHAT), (BERT, CHAT), (CAST.guest, CAST.open_group)},
)


def faults(state: Snapshot, *more: Record) -> list[str]:
    ledger = Ledger(CAST)
    for record in (*STORY, *more):
        ledger.feed(record)
    return ledger.faults_in(state)


def with_messages(*messages: Message) -> Snapshot:
    return msgspec.structs.replace(STATE, messages=list(messages))


def changed(number: int, **fields: object) -> Snapshot:
    """The state with one message changed."""
    return with_messages(
        *[
            msgspec.structs.replace(one, **fields) if one.sequence == number else one
            for one in STATE.messages
        ]
    )


SWAPPED = with_messages(
    message(1),
    message(2),
    msgspec.structs.replace(message(4), sequence=3, prev_sequence=2),
    msgspec.structs.replace(message(3), sequence=4, prev_sequence=3),
)
"""The two unanswered messages have changed places."""


def test_story_that_is_right_has_no_faults() -> None:
    assert faults(STATE) == []
    without_the_guest = STATE.members - {(CAST.guest, CAST.open_group)}
    assert faults(msgspec.structs.replace(STATE, members=without_the_guest)) == []
    assert faults(with_messages(message(1), message(2))) != [], "Anna stands above her messages"


@pytest.mark.parametrize(
    ("state", "words"),
    [
        (with_messages(message(1)), "lost: key-2"),
        (changed(2, message_id="msg-x"), "changed: key-2"),
        (changed(2, created_at_ms=1), "changed: key-2"),
        (changed(2, prev_sequence=0), "changed: key-2"),
        (changed(2, prev_sequence=0), "msg-2 comes after 1"),
        (changed(2, content="something else"), "key-2 has another text"),
        (changed(2, sender_id=BERT), "key-2 is in the wrong place"),
        (with_messages(*STATE.messages, message(3)), "key-3 is there 2 times"),
        (with_messages(*STATE.messages, message(5)), "key-5 was refused, but is there"),
        (with_messages(*STATE.messages, message(6)), "key-6 is there, but nobody has sent it"),
        (with_messages(message(1), message(2), message(4)), "key-4 is there, key-3 before it"),
        (SWAPPED, "key-4 is at 3, the one before at 4"),
    ],
)
def test_message_that_is_not_as_promised_is_noticed(state: Snapshot, words: str) -> None:
    assert any(words in fault for fault in faults(state)), faults(state)


@pytest.mark.parametrize(
    ("positions", "words"),
    [
        ({(ANNA, CHAT): Positions(3, 3)}, "were shown as"),
        ({(BERT, CHAT): Positions(1, 1)}, "were shown as"),
        ({(BERT, CHAT): Positions(3, 1)}, "nobody has acknowledged above 2"),
        ({(BERT, CHAT): Positions(2, 1), (ANNA, CHAT): Positions(4, 3)}, "above 3"),
    ],
)
def test_position_that_fell_or_was_made_up_is_noticed(
    positions: dict[tuple[str, str], Positions], words: str
) -> None:
    found = faults(msgspec.structs.replace(STATE, positions=positions))
    assert any(words in fault for fault in found), found


def test_membership_that_was_confirmed_and_is_not_there_is_noticed() -> None:
    done = history.MembershipDone(op=5)
    assert any("membership" in fault for fault in faults(STATE, done))


@pytest.mark.parametrize(
    "more",
    [
        pytest.param(lambda: (Fault("strange"),), id="fault"),
        pytest.param(lambda: (sent(9, 1), placed(9, 1, 7)), id="another-answer-to-a-retry"),
        pytest.param(
            lambda: (
                history.SyncAsked(op=9, chat_id=CHAT, user_id=BERT, after=0),
                history.Synced(op=9, messages=[message(4)], synced_through=4),
            ),
            id="shown-and-gone",
        ),
    ],
)
def test_answer_that_does_not_fit_is_noticed(more: Callable[[], tuple[Record, ...]]) -> None:
    assert faults(STATE, *more()) != []


def test_send_found_after_the_crash_is_promised_from_then_on() -> None:
    ledger = Ledger(CAST)
    for record in STORY:
        ledger.feed(record)
    ledger.end_life()
    assert ledger.settle(STATE) == 1
    assert list(ledger.open) == ["key-3", "key-4"]
    assert ledger.faults_in(STATE) == []
    assert any("lost: key-3" in fault for fault in ledger.faults_in(with_messages()))


def test_trace_invariants_are_checked_over_all_lives() -> None:
    ledger = Ledger(CAST)
    for record in STORY:
        ledger.feed(record)
    ledger.end_life()
    assert ledger.trace_faults(STATE) == []
    assert any(
        "ack_implies_persistence" in fault
        for fault in ledger.trace_faults(with_messages(message(2)))
    )


@pytest.mark.parametrize("record", [*STORY, Fault("é"), history.Published(CHAT, 2, 1)])
def test_record_survives_the_pipe(record: Record) -> None:
    assert decode_line(encode_line(record)) == record


def test_page_of_messages_survives_the_pipe() -> None:
    page = history.Synced(op=1, messages=[message(1), message(2)], synced_through=2)
    decoded = decode_line(encode_line(page))
    assert isinstance(decoded, history.Synced)
    assert list(decoded.messages) == page.messages
