"""What is kept of messages that change is held against the log, entry by entry and row by row."""

from typing import Any

import pytest

from tidewire.domain.ids import ChatId
from tidewire.domain.messages import Amendment, EntryKind
from tidewire.ops.change_checks import check_changes, check_kept
from tidewire.ports.inspection import ChangeRow, KeptRow, TargetRow

CHAT = ChatId("chat_1")
EDIT = Amendment(kind=EntryKind.EDIT, target=1)
DELETE = Amendment(kind=EntryKind.DELETE, target=1)
REACT = Amendment(kind=EntryKind.REACT, target=1, emoji="👍")
THERE, GONE = TargetRow(True, True, None), TargetRow(True, False, 9)


def entry(amends: Amendment | None, **fields: Any) -> ChangeRow:
    """A sound entry 5, whose target is there."""
    is_edit, is_reaction = amends == EDIT, amends == REACT
    row = ChangeRow(
        sequence=5,
        sender_id="user_1",
        amends=amends,
        reply_to=None,
        mentions=(),
        counted=1 if is_reaction else 0,
        has_text=amends is None or is_edit,
        deleted_by=None,
        target=None if amends is None else THERE,
        kept=5 if is_edit or is_reaction else None,
        on_count=1 if is_reaction else None,
        message_before=None if amends is None else 4,
        chained_before=4,
    )
    if amends == DELETE:
        row = row._replace(target=TargetRow(True, False, 5))
    return row._replace(**fields)


def found(row: ChangeRow) -> list[str]:
    return [violation.invariant for violation in check_changes(CHAT, [row])]


@pytest.mark.parametrize(
    "row",
    [
        entry(EDIT),
        entry(EDIT, has_text=False, deleted_by=9, deletes=1, target=GONE, kept=None),
        entry(DELETE),
        entry(REACT),
        entry(REACT, kept=7, on_count=None),
        entry(REACT, target=GONE, kept=None, on_count=0),
        entry(REACT, told=(1, 5)),
        entry(REACT, counted=0, on_count=0, told=(0, 0)),
        entry(None, message_before=5, chained_before=5),
        entry(None, reply_to=1, target=THERE),
        entry(None, reply_to=1, target=GONE),
        entry(None, mentions=("user_2", "@all"), found_mentions=["@all", "user_2"]),
        entry(None, has_text=False, deleted_by=9, deletes=5),
    ],
)
def test_sound_entry_violates_nothing(row: ChangeRow) -> None:
    assert found(row) == []


@pytest.mark.parametrize(
    ("row", "invariant", "said"),
    [
        (entry(EDIT, target=None), "target_is_a_message", "names 1, which is not there"),
        (entry(REACT, target=THERE._replace(is_message=False)), "target_is_a_message", "not a mes"),
        (entry(None, reply_to=1, target=None), "target_is_a_message", "not there"),
        (entry(None, reply_to=5, target=THERE), "target_is_a_message", "not below it"),
        (entry(EDIT, sequence=1), "target_is_a_message", "not below it"),
        (entry(DELETE, target=THERE), "deleted_is_erased", "says that None deleted it"),
        (entry(DELETE, target=GONE), "deleted_is_erased", "says that 9 deleted it"),
        (entry(EDIT, target=GONE, kept=None), "deleted_is_erased", "by None, the message itself"),
        (
            entry(EDIT, deleted_by=9, deletes=1, target=GONE, kept=None),
            "deleted_is_erased",
            "still has its text",
        ),
        (entry(None, deleted_by=9, deletes=5), "deleted_is_erased", "still has its text"),
        (
            entry(None, has_text=False, deleted_by=9, deletes=4),
            "deleted_is_erased",
            "which deletes 4",
        ),
        (
            entry(None, has_text=False, deleted_by=9, deletes=None),
            "deleted_is_erased",
            "which deletes None",
        ),
        (entry(EDIT, kept=None), "edits_exact", "not deleted; kept as an edit: None"),
        (
            entry(EDIT, has_text=False, deleted_by=9, deletes=1, target=GONE),
            "edits_exact",
            "which is deleted; kept as an edit: 5",
        ),
        (entry(REACT, kept=None), "reactions_exact", "is kept as of None"),
        (entry(REACT, kept=4), "reactions_exact", "is kept as of 4"),
        (entry(REACT, target=GONE), "reactions_exact", "which is deleted, is kept"),
        (entry(REACT, on_count=2), "reactions_exact", "counted 1 users, but 2"),
        (entry(REACT, told=(1, 4)), "reactions_exact", "the message tells 1 as of 4"),
        (entry(REACT, told=(0, 0)), "reactions_exact", "the message tells 0 as of 0"),
        (entry(REACT, counted=0, on_count=0, told=(0, 5)), "reactions_exact", "tells 0 as of 5"),
        (entry(None, mentions=("user_2",)), "mentions_exact", "lacks user_2"),
        (entry(None, message_before=3, chained_before=5), "message_before_exact", "kept is 3"),
        (entry(EDIT, message_before=3), "message_before_exact", "is 4, kept is 3"),
    ],
)
def test_entry_that_disagrees_is_found(row: ChangeRow, invariant: str, said: str) -> None:
    violations = list(check_changes(CHAT, [entry(REACT), row, entry(EDIT)]))
    assert [(one.invariant, one.chat_id) for one in violations] == [(invariant, CHAT)]
    assert violations[0].found.startswith(f"entry {row.sequence}: ")
    assert said in violations[0].found


def kept(kind: EntryKind, **fields: Any) -> KeptRow:
    """A row that says what its entry says."""
    amends = {EntryKind.EDIT: EDIT, EntryKind.REACT: REACT}.get(kind)
    said = entry(amends, mentions=("user_1",) if amends is None else ())
    user_id = "" if kind is EntryKind.EDIT else "user_1"
    row = KeptRow(CHAT, kind, 5, user_id, amends, said, False)
    return row._replace(**fields)


KINDS = {
    EntryKind.EDIT: "edits_exact",
    EntryKind.REACT: "reactions_exact",
    EntryKind.MESSAGE: "mentions_exact",
}


def test_sound_rows_violate_nothing() -> None:
    assert list(check_kept([kept(kind) for kind in KINDS])) == []


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"entry": None}, "has no such entry"),
        ({"is_target_deleted": True}, "is of a message that is deleted"),
        ({"entry": entry(DELETE)}, "is not what that entry says"),
    ],
)
def test_row_that_no_entry_says_is_found(
    kind: EntryKind, fields: dict[str, Any], said: str
) -> None:
    [violation] = check_kept([kept(kind), kept(kind, **fields)])
    assert (violation.invariant, violation.chat_id) == (KINDS[kind], CHAT)
    assert violation.found.endswith(said)


def test_reaction_of_another_user_or_count_or_another_way_round_is_found() -> None:
    rows = [
        kept(EntryKind.REACT, user_id="user_2"),
        kept(EntryKind.REACT, amends=Amendment(**{**_fields(REACT), "is_on": False})),
        kept(EntryKind.REACT, counted=2),
        kept(EntryKind.MESSAGE, user_id="user_2"),
    ]
    assert list(check_kept([kept(EntryKind.REACT, counted=1)])) == []
    assert [one.invariant for one in check_kept(rows)] == [
        "reactions_exact",
        "reactions_exact",
        "reactions_exact",
        "mentions_exact",
    ]


def _fields(amends: Amendment) -> dict[str, Any]:
    return {name: getattr(amends, name) for name in amends.__struct_fields__}
