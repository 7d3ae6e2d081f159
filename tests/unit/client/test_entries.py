"""What an entry is to a client: a message, a change of one, or held and not shown."""

from typing import Any

import msgspec
import pytest

from tests.unit.client.stage import CHAT, ME, THEM, deletion, edit, item, reaction
from tidewire.client.entries import amendment_of, kind_of, may_be_unread, mentions_user
from tidewire.domain.messages import MENTION_ALL, Amendment, EntryKind


@pytest.mark.parametrize(
    ("made", "kind"),
    [
        (item(5), EntryKind.MESSAGE),
        (item(5, kind="message"), EntryKind.MESSAGE),
        (item(5, is_damaged=True, content=""), EntryKind.MESSAGE),
        (item(5, is_deleted=True, content=""), EntryKind.MESSAGE),
        (edit(5, 2, "new"), EntryKind.EDIT),
        (deletion(5, 2), EntryKind.DELETE),
        (reaction(5, 2, "👍", count=1), EntryKind.REACT),
        (reaction(5, 2, "👍", count=0, is_on=False), EntryKind.REACT),
        # Of a kind of tomorrow, of a server that names kinds alone, damaged, or impossible.
        (item(5, kind="poll", target=2), None),
        (item(5, kind="edit", content=""), None),
        (edit(5, 2, "new", is_damaged=True), None),
        (edit(5, 5, "new"), None),
        (item(5, kind="react", target=2, emoji="👍", is_on=True), None),
    ],
)
def test_kind_says_what_is_to_be_done_with_an_entry(made: Any, kind: EntryKind | None) -> None:
    assert kind_of(made) is kind
    is_amendment = kind not in (None, EntryKind.MESSAGE)
    assert (amendment_of(CHAT, made) is not None) is is_amendment


def test_amendment_has_what_its_kind_says_and_nothing_else() -> None:
    strange = {"emoji": "👍", "is_on": False, "reason": "why not"}
    edited = amendment_of(CHAT, msgspec.structs.replace(edit(5, 2, "new"), **strange))
    assert edited is not None
    assert edited.amends == Amendment(kind=EntryKind.EDIT, target=2)
    assert (edited.content, edited.sequence, edited.sender_id) == ("new", 5, THEM)
    deleted = amendment_of(CHAT, deletion(6, 2, reason="a mistake", emoji="👍"))
    assert deleted is not None
    assert deleted.amends == Amendment(kind=EntryKind.DELETE, target=2, reason="a mistake")
    reacted = amendment_of(CHAT, reaction(7, 2, "🎉", count=3, is_on=False, reason="no"))
    assert reacted is not None
    assert reacted.amends == Amendment(kind=EntryKind.REACT, target=2, emoji="🎉", is_on=False)
    assert (reacted.content, reacted.count) == ("", 3)


def test_only_messages_of_others_that_are_not_erased_can_be_unread() -> None:
    assert may_be_unread(item(5), ME)
    assert may_be_unread(item(5, is_damaged=True, content=""), ME)
    for made in (
        item(5, sender=ME),
        item(5, is_deleted=True, content=""),
        edit(5, 2, "new"),
        reaction(5, 2, "👍", count=1),
        item(5, kind="poll"),
    ):
        assert not may_be_unread(made, ME)


def test_mention_is_of_the_user_or_of_all() -> None:
    assert mentions_user([THEM, ME], ME)
    assert mentions_user([MENTION_ALL], ME)
    assert not mentions_user([THEM], ME)
    assert not mentions_user([], ME)
