"""What becomes of a send, verdict by verdict, and what a stored message moves."""

from typing import Any

import msgspec
import pytest

from tests.unit.domain import entries
from tidewire.domain.amendments import Erasure, Target, TargetFacts
from tidewire.domain.append import (
    AppendDecision,
    Author,
    ChatEnd,
    EarlierSend,
    answer_of,
    decide_append,
    earlier_send,
    judge,
    message_of,
    note_amendment,
)
from tidewire.domain.delivery import NOWHERE, Positions
from tidewire.domain.errors import (
    CounterMissing,
    Forbidden,
    InvalidMention,
    KeyReused,
    MessageDeleted,
    NotAMember,
    TargetNotFound,
)
from tidewire.domain.events import MessageAppended, PositionsAdvanced
from tidewire.domain.ids import (
    SYSTEM,
    ChatId,
    ClientMessageId,
    ConnectionId,
    MessageId,
    UserId,
    placed,
)
from tidewire.domain.limits import SEQUENCE_MAX
from tidewire.domain.messages import Amendment, Appended, EntryKind, Message, SendMessage

CHAT, ANNA, BEN = ChatId("chat_1"), UserId("user_anna"), UserId("user_ben")
NOW_MS = 1_700_000_000_000


def a_send(
    sender: UserId = ANNA, content: str = "hi", number: int = 1, seen: int | None = None
) -> SendMessage:
    return SendMessage(
        chat_id=CHAT,
        sender_id=sender,
        client_message_id=ClientMessageId(f"key_{number}"),
        content=content,
        message_id=MessageId(f"msg_{number}"),
        seen_sequence=seen,
        origin_connection_id=ConnectionId("conn_1"),
    )


STORED = message_of(a_send(), 5, 3, NOW_MS - 1)
"""Anna's."""


def verdict(
    send: SendMessage,
    earlier: EarlierSend | None = None,
    *,
    is_member: bool = True,
    is_blocked: bool = False,
    numbers: bool = True,
) -> object:
    author = Author(ChatEnd(1, 5 if numbers else None, 5), 0, NOWHERE, is_blocked=is_blocked)
    return judge(send, earlier, author if is_member else None)


def test_new_send_of_a_member_is_to_be_stored() -> None:
    assert verdict(a_send()) is None


def test_own_key_gets_its_first_answer_whatever_else_is_wrong() -> None:
    """Removed meanwhile, blocked, no counter: what is stored is stored."""
    send = a_send()
    again = verdict(send, earlier_send(send, STORED), is_member=False, is_blocked=True)
    assert again == Appended(STORED.message_id, 5, 3, NOW_MS - 1, deduplicated=True)
    other = a_send(content="other")
    reused = verdict(other, earlier_send(other, STORED), is_member=False)
    assert isinstance(reused, KeyReused)
    assert reused.original == again


def test_answer_to_a_reaction_has_its_count() -> None:
    amends = Amendment(kind=EntryKind.REACT, target=3, emoji="x")
    stored = msgspec.structs.replace(STORED, amends=amends, count=2)
    assert answer_of(stored, deduplicated=True).count == 2
    assert answer_of(STORED, deduplicated=True).count is None


def test_own_key_with_another_content_type_is_another_message() -> None:
    send = a_send()
    stored = msgspec.structs.replace(STORED, content_type="text/other")
    assert isinstance(verdict(send, earlier_send(send, stored)), KeyReused)


@pytest.mark.parametrize(
    ("is_member", "is_blocked", "numbers", "expected"),
    [
        (False, True, False, NotAMember),
        (True, True, False, Forbidden),
        (True, False, False, CounterMissing),
        (True, False, True, KeyReused),
    ],
)
def test_verdict_hides_what_comes_later_in_the_order(
    is_member: bool, is_blocked: bool, numbers: bool, expected: type[Exception]
) -> None:
    """Ben sends with Anna's key."""
    send = a_send(BEN)
    outcome = verdict(
        send,
        earlier_send(send, STORED),
        is_member=is_member,
        is_blocked=is_blocked,
        numbers=numbers,
    )
    assert type(outcome) is expected
    if isinstance(outcome, KeyReused):
        assert outcome.original is None


def test_key_of_a_damaged_message_is_answered_to_every_member() -> None:
    """Its sender and its content cannot be compared any more."""
    damaged = msgspec.structs.replace(STORED, sender_id=UserId("?"), content="", is_damaged=True)
    for sender in (ANNA, BEN):
        send = a_send(sender)
        assert verdict(send, earlier_send(send, damaged)) == answer_of(STORED, deduplicated=True)
        outsider = verdict(send, earlier_send(send, damaged), is_member=False)
        assert isinstance(outsider, NotAMember)


@pytest.mark.parametrize(
    ("counter", "head", "expected"),
    [
        (0, 0, True),
        (7, 7, True),
        (9, 7, True),
        (6, 7, False),
        (None, 0, False),
        (SEQUENCE_MAX - 1, 7, True),
        (SEQUENCE_MAX, 7, False),
    ],
)
def test_counter_gives_no_number_out_twice(counter: int | None, head: int, expected: bool) -> None:
    assert ChatEnd(1, counter, head).has_numbers is expected


@pytest.mark.parametrize(("sequence", "prev_sequence"), [(5, 5), (4, 5), (1, -1)])
def test_message_follows_the_one_before_it(sequence: int, prev_sequence: int) -> None:
    with pytest.raises(AssertionError):
        message_of(a_send(), sequence, prev_sequence, NOW_MS)


def authors(
    counter: int | None = 7, head: int = 5, ben: Positions = NOWHERE
) -> dict[tuple[ChatId, UserId], Author]:
    end = ChatEnd(3, counter, head)
    return {
        (CHAT, ANNA): Author(end, 0, Positions(head, head), is_blocked=False),
        (CHAT, BEN): Author(end, 0, ben, is_blocked=False),
    }


def test_batch_numbers_its_messages_and_links_each_to_the_one_before() -> None:
    sends = [a_send(), a_send(BEN, number=2), a_send(UserId("user_out"), number=3)]
    decision = decide_append(sends, {}, authors(), NOW_MS)
    assert [(m.prev_sequence, m.sequence, m.sender_id) for m in decision.messages] == [
        (5, 8, ANNA),
        (8, 9, BEN),
    ]
    assert decision.counters == {CHAT: 9}
    first, second, third = decision.outcomes
    ids = [placed(MessageId(name), sequence) for name, sequence in (("msg_1", 8), ("msg_2", 9))]
    assert first == Appended(ids[0], 8, 5, NOW_MS, deduplicated=False)
    assert second == Appended(ids[1], 9, 8, NOW_MS, deduplicated=False)
    assert isinstance(third, NotAMember)
    # Anna has everything, so her own message is no news to her. Ben has nothing yet.
    assert decision.positions == {(CHAT, ANNA): Positions(8, 8)}
    assert decision.events == [
        MessageAppended(message, 3, ConnectionId("conn_1")) for message in decision.messages
    ]


def test_batch_moves_an_author_from_one_send_to_the_next() -> None:
    sends = [a_send(number=1), a_send(number=2)]
    decision = decide_append(sends, {}, authors(), NOW_MS)
    assert decision.positions == {(CHAT, ANNA): Positions(9, 9)}


def test_batch_tells_what_an_author_has_read_by_replying() -> None:
    decision = decide_append([a_send(BEN, seen=4)], {}, authors(ben=Positions(5, 2)), NOW_MS)
    [message] = decision.messages
    assert decision.events == [
        MessageAppended(message, 3, ConnectionId("conn_1")),
        PositionsAdvanced(CHAT, BEN, Positions(8, 4)),
    ]


def test_batch_stores_nothing_that_is_stored_already_or_has_no_counter() -> None:
    earlier: dict[int, Message] = {0: STORED}
    sends = [a_send(), a_send(number=2)]
    decision = decide_append(sends, earlier, authors(counter=None), NOW_MS)
    assert decision.outcomes[0] == answer_of(STORED, deduplicated=True)
    assert isinstance(decision.outcomes[1], CounterMissing)
    assert not decision.messages
    assert not decision.events
    assert not decision.counters
    assert not decision.positions


def test_batch_refuses_a_blocked_sender_and_stores_the_others() -> None:
    known = authors()
    known[CHAT, ANNA].is_blocked = True
    decision = decide_append([a_send(), a_send(BEN, number=2)], {}, known, NOW_MS)
    assert isinstance(decision.outcomes[0], Forbidden)
    assert [message.sender_id for message in decision.messages] == [BEN]


# Messages that change.


def facts(**more: Any) -> TargetFacts:
    return TargetFacts({(CHAT, 1): Target(ANNA, NOW_MS, "hi", **more)}, {(CHAT, BEN)})


def test_amendment_is_judged_last() -> None:
    """Ben may not edit what Anna wrote; but first he must be a member, and the key be new."""
    send = entries.an_edit(BEN, message_id=MessageId("msg_2"))
    assert isinstance(verdict(send, is_member=False), NotAMember)
    assert isinstance(verdict(send, is_blocked=True), Forbidden)
    assert isinstance(verdict(send, numbers=False), CounterMissing)
    assert isinstance(verdict(send, earlier_send(send, STORED)), KeyReused)
    author = Author(ChatEnd(1, 5, 5), 0, NOWHERE, is_blocked=False)
    refusal = judge(send, None, author, facts())
    assert isinstance(refusal, Forbidden)
    assert "author" in str(refusal)
    assert isinstance(judge(send, None, author), TargetNotFound)


def test_key_of_an_erased_message_gets_its_first_answer_whatever_it_says() -> None:
    erased = msgspec.structs.replace(STORED, content="", deleted_by=9)
    for content in ("hi", "something else"):
        send = a_send(content=content)
        assert verdict(send, earlier_send(send, erased)) == answer_of(STORED, deduplicated=True)
    # To others it is a key that another member used.
    send = a_send(BEN)
    assert isinstance(verdict(send, earlier_send(send, erased)), KeyReused)


def test_key_with_another_amendment_is_another_entry() -> None:
    send = entries.a_reaction(ANNA)
    stored = message_of(send, 5, 3, NOW_MS, 1)
    assert verdict(send, earlier_send(send, stored)) == answer_of(stored, deduplicated=True)
    for other in (entries.a_reaction(ANNA, is_on=False), entries.a_reaction(ANNA, target=2)):
        assert isinstance(verdict(other, earlier_send(other, stored)), KeyReused)


def test_batch_says_what_amendments_leave_beside_themselves() -> None:
    known, about = authors(), facts()
    sends = [
        entries.an_edit(ANNA, "new"),
        entries.a_reaction(BEN),
        entries.a_reaction(ANNA),
        entries.a_reaction(BEN, is_on=False),
        entries.an_edit(ANNA, "newer"),
        a_send(BEN),
    ]
    decision = decide_append(sends, {}, known, NOW_MS, about)
    assert [message.sequence for message in decision.messages] == [8, 9, 10, 11, 12, 13]
    assert [message.count for message in decision.messages] == [0, 1, 2, 1, 0, 0]
    assert decision.edits == {(CHAT, 1): 12}
    assert {key[2:]: one.sequence for key, one in decision.reactions.items()} == {
        ("👍", BEN): 11,
        ("👍", ANNA): 10,
    }
    assert decision.erasures == []
    target = about.targets[CHAT, 1]
    assert (target.content, target.edits, target.counts) == ("newer", 2, {"👍": 1})


def test_batch_refuses_what_meets_a_deletion_before_it() -> None:
    sends = [
        entries.an_edit(ANNA, "new"),
        entries.a_deletion(ANNA),
        entries.an_edit(ANNA, "again"),
        entries.a_reaction(BEN),
        entries.a_send(BEN, reply_to=1),
        entries.a_send(ANNA, mentions=(UserId("user_out"),)),
    ]
    decision = decide_append(sends, {}, authors(), NOW_MS, facts())
    assert [type(outcome) for outcome in decision.outcomes] == [
        Appended,
        Appended,
        MessageDeleted,
        MessageDeleted,
        Appended,
        InvalidMention,
    ]
    assert decision.erasures == [Erasure(CHAT, 1, 9)]


def test_admin_may_delete_what_another_wrote() -> None:
    known = authors()
    known[CHAT, BEN].is_admin = True
    [outcome] = decide_append([entries.a_deletion(BEN)], {}, known, NOW_MS, facts()).outcomes
    assert isinstance(outcome, Appended)


def test_system_moves_no_positions() -> None:
    end = ChatEnd(3, 5, 5)
    known = {(CHAT, SYSTEM): Author(end, 0, NOWHERE, is_blocked=False, is_admin=True)}
    decision = decide_append([entries.a_deletion(SYSTEM)], {}, known, NOW_MS, facts())
    assert [message.sender_id for message in decision.messages] == [SYSTEM]
    assert decision.positions == {}
    assert [type(event) for event in decision.events] == [MessageAppended]


def test_message_amends_nothing() -> None:
    nonsense = a_send()
    stored = message_of(nonsense, 5, 3, NOW_MS)
    amends = Amendment(kind=EntryKind.MESSAGE, target=1)
    with pytest.raises(AssertionError):
        note_amendment(AppendDecision(), msgspec.structs.replace(stored, amends=amends))
