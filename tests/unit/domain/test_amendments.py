"""The rules for edits, deletions, reactions, replies and mentions: each refusal, each change."""

from typing import Any

import pytest

from tests.unit.domain.entries import (
    ANNA,
    BEN,
    CHAT,
    CLEO,
    NOW_MS,
    a_deletion,
    a_reaction,
    a_send,
    an_edit,
)
from tidewire.domain.amendments import NO_FACTS, Target, TargetFacts, amend, judge_amendment
from tidewire.domain.errors import (
    EditConflict,
    EditTooLate,
    Forbidden,
    InvalidMention,
    MessageDeleted,
    Refused,
    TargetNotFound,
    TooManyEdits,
    TooManyReactions,
)
from tidewire.domain.ids import ChatId
from tidewire.domain.limits import EDITS_MAX, REACTION_KINDS_MAX
from tidewire.domain.messages import MENTION_ALL, Amendment, EntryKind, SendMessage


def of_anna(**more: Any) -> Target:
    return Target(ANNA, NOW_MS, "hello", **more)


def judged(
    send: SendMessage, target: Target | None = None, *, is_admin: bool = False
) -> Refused | None:
    targets = {} if target is None else {(CHAT, 1): target}
    facts = TargetFacts(targets, {(CHAT, ANNA), (CHAT, BEN)})
    return judge_amendment(send, is_admin=is_admin, facts=facts)


# What there is no target for.


@pytest.mark.parametrize("send", [an_edit(), a_deletion(), a_reaction(), a_send(reply_to=1)])
def test_what_concerns_no_message_of_the_chat_is_refused(send: SendMessage) -> None:
    refusal = judged(send)
    assert isinstance(refusal, TargetNotFound)
    assert "sequence 1" in str(refusal)
    elsewhere = TargetFacts({(ChatId("chat_2"), 1): of_anna()})
    assert isinstance(judge_amendment(send, is_admin=True, facts=elsewhere), TargetNotFound)


@pytest.mark.parametrize("send", [an_edit(), a_reaction(), a_send(reply_to=1)])
def test_damaged_message_can_only_be_deleted(send: SendMessage) -> None:
    assert isinstance(judged(send, of_anna(is_damaged=True)), TargetNotFound)
    assert judged(a_deletion(), of_anna(is_damaged=True)) is None
    assert judged(a_deletion(BEN), of_anna(is_damaged=True), is_admin=True) is None
    assert isinstance(judged(a_deletion(BEN), of_anna(is_damaged=True)), Forbidden)
    deleted = of_anna(is_damaged=True, deleted_by=7)
    assert isinstance(judged(a_deletion(), deleted), MessageDeleted)


def test_plain_message_asks_for_nothing() -> None:
    assert judge_amendment(a_send(), is_admin=False, facts=NO_FACTS) is None


# Edits.


def test_edit_of_the_author_is_allowed_and_of_no_other() -> None:
    assert judged(an_edit(), of_anna()) is None
    for is_admin in (False, True):
        refusal = judged(an_edit(BEN), of_anna(), is_admin=is_admin)
        assert isinstance(refusal, Forbidden)
        assert "author" in str(refusal)


@pytest.mark.parametrize("edited_by", [0, 7])
def test_edit_holds_to_its_base(edited_by: int) -> None:
    target = of_anna(edited_by=edited_by, edits=bool(edited_by))
    assert judged(an_edit(base=edited_by), target) is None
    assert judged(an_edit(base=None), target) is None
    refusal = judged(an_edit(base=5), target)
    assert isinstance(refusal, EditConflict)
    assert (refusal.content, refusal.edited_by) == ("hello", edited_by)


def test_edits_are_bounded() -> None:
    assert judged(an_edit(), of_anna(edits=EDITS_MAX - 1)) is None
    assert isinstance(judged(an_edit(), of_anna(edits=EDITS_MAX)), TooManyEdits)


def test_edit_of_a_message_outside_the_window_is_refused() -> None:
    assert judged(an_edit(targets_since_ms=NOW_MS), of_anna()) is None
    assert isinstance(judged(an_edit(targets_since_ms=NOW_MS + 1), of_anna()), EditTooLate)
    # The window is for edits alone.
    assert judged(a_deletion(targets_since_ms=NOW_MS + 1), of_anna()) is None


# Deletions.


def test_deletion_is_for_the_author_and_admins() -> None:
    assert judged(a_deletion(), of_anna()) is None
    assert judged(a_deletion(BEN), of_anna(), is_admin=True) is None
    refusal = judged(a_deletion(BEN), of_anna())
    assert isinstance(refusal, Forbidden)
    assert "admin" in str(refusal)


@pytest.mark.parametrize(
    "send", [an_edit(), an_edit(base=3), a_deletion(), a_reaction(BEN), a_reaction(is_on=False)]
)
def test_deletion_is_final(send: SendMessage) -> None:
    refusal = judged(send, of_anna(deleted_by=4), is_admin=True)
    assert isinstance(refusal, MessageDeleted)
    assert refusal.deleted_by == 4


@pytest.mark.parametrize("send", [an_edit(BEN), a_deletion(BEN)])
def test_whose_message_it_is_comes_before_its_deletion(send: SendMessage) -> None:
    assert isinstance(judged(send, of_anna(deleted_by=4)), Forbidden)


def test_deleted_message_can_be_replied_to() -> None:
    assert judged(a_send(BEN, reply_to=1), of_anna(deleted_by=4)) is None


# Reactions.


def test_reactions_of_everybody_are_allowed() -> None:
    assert judged(a_reaction(BEN), of_anna()) is None
    assert judged(a_reaction(BEN, is_on=False), of_anna()) is None


def test_kinds_of_reactions_are_bounded() -> None:
    counts = {f":{number}:": 1 for number in range(REACTION_KINDS_MAX)}
    assert isinstance(judged(a_reaction(BEN), of_anna(counts=counts)), TooManyReactions)
    assert judged(a_reaction(BEN, ":3:"), of_anna(counts=counts)) is None
    assert judged(a_reaction(BEN, is_on=False), of_anna(counts=counts)) is None
    del counts[":3:"]
    assert judged(a_reaction(BEN), of_anna(counts=counts)) is None


# Mentions.


def test_mentions_are_members() -> None:
    assert judged(a_send(mentions=(BEN, ANNA))) is None
    refusal = judged(a_send(mentions=(BEN, CLEO)), is_admin=True)
    assert isinstance(refusal, InvalidMention)
    assert refusal.user_ids == (CLEO,)


def test_all_are_mentioned_by_admins_only() -> None:
    assert judged(a_send(mentions=(MENTION_ALL, BEN)), is_admin=True) is None
    assert isinstance(judged(a_send(mentions=(MENTION_ALL,))), Forbidden)
    # The refusal tells nothing about who is a member.
    assert isinstance(judged(a_send(mentions=(MENTION_ALL, CLEO))), Forbidden)


def test_reply_and_mentions_are_both_judged() -> None:
    assert isinstance(judged(a_send(reply_to=1, mentions=(CLEO,))), TargetNotFound)
    assert isinstance(judged(a_send(reply_to=1, mentions=(CLEO,)), of_anna()), InvalidMention)
    assert judged(a_send(reply_to=1, mentions=(BEN,)), of_anna()) is None


# What becomes of the target.


def test_edit_changes_the_text() -> None:
    target = of_anna()
    assert amend(target, an_edit(content="two"), 5) == 0
    assert amend(target, an_edit(content="three"), 9) == 0
    assert (target.content, target.edited_by, target.edits) == ("three", 9, 2)


def test_deletion_takes_the_text_away() -> None:
    target = of_anna()
    assert amend(target, a_deletion(), 5) == 0
    assert (target.content, target.deleted_by) == ("", 5)


def test_counts_are_those_of_the_set() -> None:
    target = of_anna(counts={"👍": 1}, on={(CLEO, "👍")})
    steps = [
        (a_reaction(ANNA), 2),
        (a_reaction(ANNA), 2),
        (a_reaction(BEN, is_on=False), 2),
        (a_reaction(ANNA, "🎉"), 1),
        (a_reaction(ANNA, is_on=False), 1),
        (a_reaction(ANNA, is_on=False), 1),
        (a_reaction(CLEO, is_on=False), 0),
        (a_reaction(BEN), 1),
    ]
    assert [amend(target, send, 5) for send, _ in steps] == [count for _, count in steps]
    assert target.counts == {"🎉": 1, "👍": 1}
    assert target.on == {(ANNA, "🎉"), (BEN, "👍")}


def test_message_amends_nothing() -> None:
    nonsense = a_send(amends=Amendment(kind=EntryKind.MESSAGE, target=1))
    with pytest.raises(AssertionError):
        judged(nonsense, of_anna())
    with pytest.raises(AssertionError):
        amend(of_anna(), nonsense, 5)
