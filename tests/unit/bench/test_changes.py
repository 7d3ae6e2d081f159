"""What a device changes in a mixed run, and what it notices in what it is shown afterwards."""

from random import Random
from typing import Any

import pytest

from tidewire_bench.changes import (
    DELETED_MAX,
    KNOWN_MAX,
    Changes,
    Deletions,
    differences,
    folded,
    readable,
    view_in,
)

CHAT = "chat"


def message(sequence: int, content: str = "hello", **more: Any) -> dict[str, Any]:
    return {"sequence": sequence, "prev_sequence": sequence - 1, "content": content, **more}


def entry(sequence: int, kind: str, target: int, **more: Any) -> dict[str, Any]:
    who = {"sender_id": "user_2", "kind": kind, "target": target}
    return message(sequence, more.pop("content", ""), **who, **more)


PAGE = [
    message(1),
    message(2, now={"reactions": [{"emoji": "👍", "count": 1, "sequence": 3}]}),
    entry(3, "react", 2, emoji="👍", is_on=True, count=1),
]


# What it changes.


def test_wishes_are_about_the_last_messages_and_only_authors_edit_and_delete() -> None:
    changes, chance = Changes(), Random(1)
    assert changes.wish(CHAT, chance) is None
    for sequence in range(1, 3 * KNOWN_MAX):
        changes.met(CHAT, sequence, is_own=sequence % 2 == 0)
    wishes = [wish for _ in range(60) if (wish := changes.wish(CHAT, chance)) is not None]
    assert {kind for kind, _ in wishes} == {
        *("edit_message", "delete_message", "react", "send_message")
    }
    for kind, fields in wishes:
        target = int(str(fields.get("target") or fields.get("reply_to")))
        assert target > KNOWN_MAX - 2
        assert target % 2 == 0 or kind in {"react", "send_message"}
    deleted = [fields["target"] for kind, fields in wishes if kind == "delete_message"]
    assert len(set(deleted)) == len(deleted)
    changes.forget(CHAT)
    assert changes.wish(CHAT, chance) is None


def test_deletions_are_those_of_the_moment_and_bounded() -> None:
    deletions = Deletions()
    assert deletions.of(CHAT) == frozenset()
    for sequence in range(DELETED_MAX + 5):
        deletions.add(CHAT, sequence)
    before = deletions.of(CHAT)
    deletions.add(CHAT, 9_999)
    assert 9_999 not in before
    assert len(before) == DELETED_MAX


# What it notices.


@pytest.mark.parametrize(
    "shown",
    [
        message(1, "secret"),
        message(1, "", now={"content": "secret", "edited_sequence": 2}),
        entry(2, "edit", 1, content="secret"),
    ],
)
def test_text_of_a_deleted_message_is_noticed_wherever_it_is(shown: dict[str, Any]) -> None:
    assert readable([shown], {1}) == [1]
    assert readable([shown], {5}) == []


def test_deleted_message_without_its_text_is_as_it_should_be() -> None:
    page = [message(1, "", is_deleted=True), entry(2, "edit", 1), entry(3, "delete", 1)]
    assert readable(page, {1}) == []


def test_page_of_before_and_the_entries_since_then_are_the_page_of_now() -> None:
    since = [
        entry(4, "edit", 1, content="hello!"),
        entry(5, "react", 2, emoji="👍", is_on=False, count=0),
        entry(6, "react", 1, emoji="🎉", is_on=True, count=1),
        message(7),
        entry(8, "edit", 7, content="not on that page"),
    ]
    party = {"emoji": "🎉", "count": 1, "sequence": 6}
    fresh = [
        message(1, now={"content": "hello!", "edited_sequence": 4, "reactions": [party]}),
        message(2),
    ]
    view = folded(view_in(PAGE), since, "user_1")
    assert differences(view, view_in(fresh)) == []
    assert differences(folded(view_in(PAGE), since[1:], "user_1"), view_in(fresh)) == [1]
    assert differences(view_in(PAGE), view_in(fresh)) == [1, 2]
    deleted = folded(view, [entry(9, "delete", 1)], "user_1")
    gone = [message(1, "", is_deleted=True, now={"deleted_sequence": 9}), message(2)]
    assert differences(deleted, view_in(gone)) == []
    assert differences(view, view_in(gone)) == [1]
