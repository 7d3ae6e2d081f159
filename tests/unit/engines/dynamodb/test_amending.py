from collections.abc import Sequence
from typing import Any

import pytest

from tests.unit.engines.dynamodb.samples import ANNA, BEN, CHAT, NOW_MS, a_message, a_send
from tidewire.domain.ids import ClientMessageId, UserId
from tidewire.domain.limits import EDITS_MAX
from tidewire.domain.messages import Amendment, EntryKind, Message, SendMessage
from tidewire.engines.dynamodb.amending import (
    ITEMS_MAX,
    NONE_CONCERNED,
    Concerned,
    Erased,
    Plan,
    amendment_writes,
    mark_id,
    unswept_after,
)
from tidewire.engines.dynamodb.commit_rows import commit_writes, number
from tidewire.engines.dynamodb.entries import Mark, StoredMessage
from tidewire.engines.dynamodb.options import SENDS_PER_TRANSACTION_MAX
from tidewire.engines.dynamodb.rows import Write, unpack

HEAD = 100


def edit(target: int = 1, sender: UserId = ANNA) -> SendMessage:
    return a_send(sender, amends=Amendment(kind=EntryKind.EDIT, target=target))


def deletion(target: int = 1, sender: UserId = ANNA) -> SendMessage:
    return a_send(sender, "", amends=Amendment(kind=EntryKind.DELETE, target=target))


def reaction(
    sender: UserId = ANNA, emoji: str = "👍", *, target: int = 1, is_on: bool = True
) -> SendMessage:
    amends = Amendment(kind=EntryKind.REACT, target=target, emoji=emoji, is_on=is_on)
    return a_send(sender, "", amends=amends)


def key_of(sequence: int) -> ClientMessageId:
    return ClientMessageId(f"key_{sequence}")


def concerned_by(*sends: SendMessage, edits: Sequence[int] = (), **more: Any) -> Concerned:
    """Messages 1 and 2, the first with these edits."""
    marks = {mark_id(one): Mark(*mark_id(one)) for one in sends if one.amends and one.amends.emoji}
    fields: dict[str, Any] = {
        "targets": {
            1: StoredMessage(a_message(1, client_message_id=key_of(1)), tuple(edits)),
            2: StoredMessage(a_message(2, client_message_id=key_of(2))),
        },
        "marks": marks,
        "erased": {
            1: [Erased(one, key_of(one), has_key=True) for one in (1, *edits)],
            2: [Erased(2, key_of(2), has_key=True)],
        },
    }
    return Concerned(**(fields | more))


def planned(concerned: Concerned, *sends: SendMessage) -> Plan:
    """As far as one transaction goes."""
    plan = Plan(CHAT, concerned)
    for index, send in enumerate(sends):
        if plan.must_wait(send) or not plan.take(index, send):
            break
    return plan


def entries(concerned: Concerned, *sends: SendMessage) -> list[Message]:
    plan = planned(concerned, *sends)
    assert plan.indexes == list(range(len(sends)))
    return number(sends, first=HEAD + 1, head=HEAD, now_ms=NOW_MS, counts=plan.counts)


def transaction(concerned: Concerned, *sends: SendMessage) -> list[Write]:
    messages = entries(concerned, *sends)
    writes = commit_writes(
        messages, [None] * len(messages), membership_version=3, now_ms=NOW_MS, last_message=HEAD
    )
    return writes + amendment_writes(messages, concerned)


def body(write: Write) -> dict[str, Any]:
    [found] = write.values()
    return found


def key(write: Write) -> dict[str, Any]:
    found = body(write)
    return unpack(found["Key"] if "Key" in found else found["Item"])


# What a transaction costs.


def test_items_of_each_kind() -> None:
    """An edit and a reaction cost at most two more than a message, a deletion two more per edit."""
    message = len(transaction(NONE_CONCERNED, a_send()))
    assert message == 4
    assert len(transaction(concerned_by(), edit())) == message + 1
    assert len(transaction(concerned_by(reaction()), reaction())) == message + 2
    assert len(transaction(concerned_by(), deletion())) == message + 2
    for count in (1, 3, EDITS_MAX):
        concerned = concerned_by(edits=range(10, 10 + count))
        assert len(transaction(concerned, deletion())) == message + 2 + 2 * count
    assert message + 2 + 2 * EDITS_MAX <= ITEMS_MAX


def test_full_batch_of_messages_is_as_large_as_before() -> None:
    sends = [a_send()] * SENDS_PER_TRANSACTION_MAX
    assert len(transaction(NONE_CONCERNED, *sends)) == 2 + 2 * SENDS_PER_TRANSACTION_MAX


@pytest.mark.parametrize("count", [1, 29])
def test_transaction_is_as_large_as_its_plan_says(count: int) -> None:
    """Many who react at once share the row of the message."""
    sends = [reaction(UserId(f"user_{n}")) for n in range(count)]
    assert len(transaction(concerned_by(*sends), *sends)) == 3 + 3 * count <= ITEMS_MAX


def test_batch_is_cut_at_so_many_items() -> None:
    sends = [reaction(UserId(f"user_{n}")) for n in range(SENDS_PER_TRANSACTION_MAX)]
    assert planned(concerned_by(*sends), *sends).indexes == list(range(29))
    same = [reaction(is_on=n % 2 == 0) for n in range(SENDS_PER_TRANSACTION_MAX)]
    assert len(transaction(concerned_by(*same), *same)) == 4 + 2 * SENDS_PER_TRANSACTION_MAX
    many = concerned_by(edits=range(10, 10 + EDITS_MAX))
    assert planned(many, deletion(), deletion(2)).indexes == [0, 1]
    assert planned(many, a_send(), deletion(), deletion(2)).indexes == [0, 1]
    assert planned(many, a_send(), a_send(), deletion()).indexes == [0, 1, 2]
    assert planned(many, a_send(), a_send(), a_send(), deletion()).indexes == [0, 1, 2]


# What waits for what.


@pytest.mark.parametrize(
    ("sends", "taken"),
    [
        ([edit(), edit(2), a_send()], 3),
        ([edit(), edit()], 1),
        ([edit(), reaction()], 1),
        ([reaction(), edit()], 1),
        ([reaction(), deletion()], 1),
        ([edit(), a_send(), deletion()], 2),
        ([deletion(), deletion()], 1),
        ([deletion(), deletion(2)], 2),
        ([reaction(), reaction(BEN), reaction(emoji="🎉"), reaction(is_on=False)], 4),
        ([edit(), a_send(reply_to=1)], 2),
    ],
)
def test_second_change_of_a_message_waits_for_the_first(
    sends: list[SendMessage], taken: int
) -> None:
    assert len(planned(concerned_by(*sends), *sends).indexes) == taken


def test_touches_what_an_earlier_one_amends() -> None:
    plan = planned(concerned_by(), edit(), a_send())
    assert plan.touches(reaction())
    assert not plan.touches(reaction(target=2))
    assert not plan.touches(a_send(reply_to=1))


# What is written.


def test_edit_is_listed_on_its_message() -> None:
    [write] = amendment_writes(entries(concerned_by(edits=[7]), edit()), concerned_by(edits=[7]))
    assert key(write) == {"chat_id": CHAT, "sequence": 1}
    values = unpack(body(write)["ExpressionAttributeValues"])
    assert values == {":edits": [7, HEAD + 1], ":was_edits": [7]}
    assert "attribute_not_exists(#deleted_by)" in body(write)["ConditionExpression"]


def test_reactions_of_one_transaction_are_counted_one_after_the_other() -> None:
    sends = [reaction(), reaction(BEN), reaction(BEN, "🎉"), reaction(is_on=False)]
    marks = {mark_id(one): Mark(*mark_id(one)) for one in sends}
    marks[mark_id(sends[1])] = Mark(*mark_id(sends[1]), sequence=8, is_on=True)
    before = StoredMessage(a_message(1), (), 8, {"👍": (1, 8)})
    concerned = concerned_by(targets={1: before}, marks=marks)
    messages = entries(concerned, *sends)
    assert [one.count for one in messages] == [2, 2, 1, 1]
    target, *found = amendment_writes(messages, concerned)
    values = unpack(body(target)["ExpressionAttributeValues"])
    assert values[":reactions"] == '{"👍":[1,104],"🎉":[1,103]}'
    assert (values[":reacted_by"], values[":was_reacted_by"]) == (104, 8)
    assert [
        (key(one)["reaction"][17:], key(one)["sequence"], key(one)["is_on"]) for one in found
    ] == [
        ("👍 user_a", 104, False),
        ("👍 user_b", 102, True),
        ("🎉 user_b", 103, True),
    ]
    conditions = [body(one)["ConditionExpression"] for one in found]
    is_new = "attribute_not_exists(#chat_id)"
    assert conditions == [is_new, "#sequence = :before", is_new]


def test_deletion_takes_away_every_text_and_every_hash_that_is_there() -> None:
    erased = {
        1: [
            Erased(1, key_of(1), has_key=False),
            Erased(7, key_of(7), has_key=True),
        ]
    }
    concerned = concerned_by(edits=[7], erased=erased)
    target, edited, hashed = amendment_writes(entries(concerned, deletion()), concerned)
    assert body(target)["UpdateExpression"] == (
        "SET #deleted_by = :deleted_by REMOVE #content, #mentions, #reactions"
    )
    assert unpack(body(target)["ExpressionAttributeValues"])[":was_edits"] == [7]
    assert key(edited) == {"chat_id": CHAT, "sequence": 7}
    assert body(edited)["UpdateExpression"] == "SET #deleted_by = :deleted_by REMOVE #content"
    assert key(hashed) == {"chat_id": CHAT, "client_message_id": key_of(7)}
    assert body(hashed)["UpdateExpression"] == "REMOVE #content_hash"
    assert body(hashed)["ConditionExpression"] == "#sequence = :was_sequence"


def test_message_amends_nothing() -> None:
    assert amendment_writes([a_message(5)], NONE_CONCERNED) == []
    odd = a_message(5, amends=Amendment(kind=EntryKind.MESSAGE, target=1))
    with pytest.raises(AssertionError):
        amendment_writes([odd], concerned_by())


def test_reactions_are_swept_after_a_deletion_only() -> None:
    reacted = StoredMessage(a_message(1), (), 8, {})
    concerned = concerned_by(targets={1: reacted, 2: StoredMessage(a_message(2))})
    gone = [a_message(9, amends=Amendment(kind=EntryKind.DELETE, target=n)) for n in (1, 2, 3)]
    assert [unswept_after(one, concerned) for one in gone] == [[1], [], []]
    assert unswept_after(a_message(9), concerned) == []
    edited = a_message(9, amends=Amendment(kind=EntryKind.EDIT, target=1))
    assert unswept_after(edited, concerned) == []


def test_facts_are_those_of_the_rows() -> None:
    marks = {
        (1, "👍", ANNA): Mark(1, "👍", ANNA, 8, True),
        (1, "🎉", ANNA): Mark(1, "🎉", ANNA, 7, False),
        (9, "👍", ANNA): Mark(9, "👍", ANNA),
    }
    concerned = concerned_by(edits=[7], marks=marks, texts={1: "later"}, members=[BEN])
    facts = concerned.facts(CHAT)
    assert facts.targets[CHAT, 1].on == {(ANNA, "👍")}
    assert (facts.targets[CHAT, 1].content, facts.targets[CHAT, 2].content) == ("later", "hello")
    assert facts.members == {(CHAT, BEN)}
    assert facts.takes_entries
    assert not concerned_by(takes_entries=False).facts(CHAT).takes_entries
