"""The ledger notices every fault of changed messages that it must notice.

Anna writes, edits and deletes one message, Bert reacts to another; each test spoils one thing.
"""

import pytest
from msgspec.structs import replace

from tests.crash.test_ledger import ANNA, BERT, CAST, CHAT, message, placed, sent
from tests.support import history
from tests.support.crash_ledger import Ledger
from tests.support.crash_records import TEXT_MAX, Record, decode_line, encode_line
from tests.support.crash_snapshot import Snapshot
from tidewire.domain.delivery import Positions
from tidewire.domain.messages import Amendment, EntryKind, Message

EDIT = Amendment(kind=EntryKind.EDIT, target=1)
DELETION = Amendment(kind=EntryKind.DELETE, target=1, reason="a mistake")
REACTION = Amendment(kind=EntryKind.REACT, target=2, emoji="👍")
BEFORE = [
    message(1),
    message(2),
    replace(message(3), amends=EDIT),
    replace(message(4), amends=REACTION, content="", sender_id=BERT, count=1),
]
"""The chat before the deletion."""
LOG = [
    replace(BEFORE[0], content="", deleted_by=5),
    BEFORE[1],
    replace(BEFORE[2], content="", deleted_by=5),
    BEFORE[3],
    replace(message(5), amends=DELETION, content=""),
]
STORY: tuple[Record, ...] = (
    sent(1, 1),
    placed(1, 1),
    sent(2, 2),
    placed(2, 2),
    replace(sent(3, 3), amends=EDIT),
    placed(3, 3),
    replace(sent(4, 4), amends=REACTION, content="", user_id=BERT),
    placed(4, 4),
    history.SyncAsked(op=5, chat_id=CHAT, user_id=BERT, after=0),
    history.Synced(op=5, messages=BEFORE, synced_through=4),
    replace(sent(6, 5), amends=DELETION, content=""),
    placed(6, 5),
    history.TextsAsked(op=7, chat_id=CHAT, user_id=BERT, way="history"),
    history.TextsShown(op=7, texts={1: "", 2: message(2).content[:TEXT_MAX]}),
)


def told(*more: Record) -> Ledger:
    ledger = Ledger(CAST)
    for record in (*STORY, *more):
        ledger.feed(record)
    return ledger


def state(log: list[Message]) -> Snapshot:
    positions: dict[tuple[str, str], Positions] = {
        (ANNA, CHAT): Positions(5, 5),
        (BERT, CHAT): Positions(4, 4),
    }
    members: set[tuple[str, str]] = {(ANNA, CHAT), (BERT, CHAT)}
    return Snapshot(messages=log, counters={CHAT: 5}, positions=positions, members=members)


def spoiled(sequence: int, **fields: object) -> Snapshot:
    return state([replace(one, **fields) if one.sequence == sequence else one for one in LOG])


def test_story_that_is_right_has_no_faults() -> None:
    ledger = told()
    assert ledger.faults_in(state(LOG)) == []
    ledger.end_life()
    assert ledger.trace_faults(state(LOG)) == []
    assert ledger.kinds() == {"message": 2, "edit": 1, "react": 1, "delete": 1}


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (state(LOG[:4]), "lost: key-5"),
        (state([*BEFORE, LOG[4]]), "readable: 1"),
        (spoiled(3, content=BEFORE[2].content, deleted_by=None), "readable: 3"),
        (spoiled(2, content="", deleted_by=5), "2 in chat_"),
        (spoiled(4, amends=replace(REACTION, is_on=False)), "key-4 has another text"),
        (spoiled(5, amends=replace(DELETION, target=2)), "key-5 has another text"),
    ],
)
def test_entry_that_is_not_as_promised_is_noticed(found: Snapshot, words: str) -> None:
    faults = told().faults_in(found)
    assert any(words in fault for fault in faults), faults


def test_read_of_what_was_deleted_is_noticed() -> None:
    asked = history.TextsAsked(op=8, chat_id=CHAT, user_id=BERT, way="the list of chats")
    shown = history.TextsShown(op=8, texts={1: BEFORE[2].content})
    faults = told(asked, shown).trace_faults(state(LOG))
    assert any("deleted_is_not_read" in fault for fault in faults), faults


def test_count_that_is_not_that_of_the_set_is_noticed() -> None:
    """Bert's device has the right count from before; a new device would get the wrong one."""
    ledger = told(
        history.SyncAsked(op=8, chat_id=CHAT, user_id=ANNA, after=0),
        history.Synced(op=8, messages=LOG[:2], synced_through=2, has_more=True),
    )
    faults = ledger.trace_faults(spoiled(4, count=2))
    assert any("sees 2 in" in fault for fault in faults), faults


@pytest.mark.parametrize("record", STORY)
def test_record_survives_the_pipe(record: Record) -> None:
    assert decode_line(encode_line(record)) == record
