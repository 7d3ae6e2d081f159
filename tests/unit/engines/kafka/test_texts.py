"""Texts on their way: what a deletion finds of them, and what is published after it."""

import msgspec

from tests.unit.ingest.events import CHAT, a_deletion, a_message, a_rename, amending
from tidewire.domain.events import LoggedEvent, MessageAppended
from tidewire.domain.messages import Amendment, EntryKind
from tidewire.engines.kafka.texts import Texts, owner_of

OWNER = (CHAT, 1)
AN_EDIT = amending(Amendment(kind=EntryKind.EDIT, target=1), 4, "new")
A_REACTION = amending(Amendment(kind=EntryKind.REACT, target=1, emoji="👍"), 5)


def test_text_belongs_to_its_message() -> None:
    events = (a_message(1), AN_EDIT, A_REACTION, a_deletion(1, 6), a_rename(2))
    assert [owner_of(event) for event in events] == [OWNER, OWNER, None, None, None]


def test_what_is_published_after_its_deletion_has_no_text() -> None:
    texts = Texts()
    mentioning = msgspec.structs.replace(a_message(1).message, mentions=("user_1",))
    events: list[LoggedEvent] = [MessageAppended(mentioning, 1, None), AN_EDIT]
    events += [A_REACTION, a_message(2), a_rename(2)]
    assert [texts.current(event) for event in events] == events
    texts.deleted(a_deletion(1, 6).message)
    erased = [texts.current(event) for event in events]
    assert erased[2:] == events[2:]
    assert erased[:2] == [
        MessageAppended(
            msgspec.structs.replace(said, content="", mentions=(), deleted_by=6), 1, None
        )
        for said in (mentioning, AN_EDIT.message)
    ]


def test_deleted_text_waits_until_all_of_it_has_arrived() -> None:
    texts = Texts()
    for owner in (OWNER, OWNER, (CHAT, 2)):
        texts.leaves(owner)
    waits = [texts.is_deleted_waiting]
    texts.deleted(a_deletion(1, 6).message)
    waits.append(texts.is_deleted_waiting)
    for owner in (OWNER, (CHAT, 2), OWNER):
        texts.arrived(owner)
        waits.append(texts.is_deleted_waiting)
    texts.deleted(a_deletion(1, 7).message)
    waits.append(texts.is_deleted_waiting)
    assert waits == [False, True, True, True, False, False]


def test_deletions_of_long_ago_are_forgotten() -> None:
    texts = Texts(deleted_max=2)
    for target in (1, 2, 3):
        texts.deleted(a_deletion(target, 9).message)
    found = [texts.current(a_message(target)) for target in (1, 2, 3)]
    assert [owner_of(event) is None for event in found] == [False, True, True]
