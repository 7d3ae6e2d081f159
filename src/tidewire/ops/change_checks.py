"""The state invariants of messages that change: the log against the rows kept of it. PURE.

The log has everything; the current state of a message is kept beside it in rows, because clients
ask for that. Each entry is compared with the rows that are kept of it, and each row with its entry:
if both agree everywhere, the rows are the fold of the log.
"""

from collections.abc import Iterable, Iterator

from tidewire.domain.messages import EntryKind
from tidewire.ops.checks import Violation
from tidewire.ports.inspection import ChangeRow, KeptRow, TargetRow


def check_changes(chat_id: str, rows: Iterable[ChangeRow]) -> Iterator[Violation]:
    """Check the amendments, replies, mentions and deleted entries of one chat."""
    for row in rows:
        for invariant, found in _check_entry(row):
            yield Violation(invariant, chat_id, f"entry {row.sequence}: {found}")


def _check_entry(row: ChangeRow) -> Iterator[tuple[str, str]]:
    named = row.reply_to if row.amends is None else row.amends.target
    if named is not None:
        if named >= row.sequence or row.target is None or not row.target.is_message:
            yield "target_is_a_message", f"names {named}, which is {_what(row, named)}"
        elif row.amends is not None:
            yield from _check_amendment(row, row.target)
    if row.deleted_by is not None:
        yield from _check_erased(row)
    if {*row.mentions} != {*row.found_mentions}:
        missing = ", ".join(sorted({*row.mentions} - {*row.found_mentions}))
        yield "mentions_exact", f"the index of mentions lacks {missing}"
    keeps_before = row.amends is not None or row.message_before is not None
    if keeps_before and row.message_before != row.chained_before:
        found = f"the last message before it is {row.chained_before}, kept is {row.message_before}"
        yield "message_before_exact", found


def _check_amendment(row: ChangeRow, target: TargetRow) -> Iterator[tuple[str, str]]:
    assert row.amends is not None
    place = row.amends.target
    match row.amends.kind:
        case EntryKind.DELETE:
            if target.deleted_by != row.sequence:
                found = f"deletes {place}, which says that {target.deleted_by} deleted it"
                yield "deleted_is_erased", found
        case EntryKind.EDIT:
            if row.deleted_by != target.deleted_by:
                found = f"an edit of {place}, deleted by {row.deleted_by}, the message itself by "
                yield "deleted_is_erased", f"{found}{target.deleted_by}"
            wanted = row.sequence if target.deleted_by is None else None
            if row.kept != wanted:
                state = "not deleted" if wanted else "deleted"
                found = f"an edit of {place}, which is {state}; kept as an edit: {row.kept}"
                yield "edits_exact", found
        case _:
            yield from _check_reaction(row, target)


def _check_reaction(row: ChangeRow, target: TargetRow) -> Iterator[tuple[str, str]]:
    assert row.amends is not None
    about = f"a reaction to {row.amends.target}"
    if target.deleted_by is not None:
        if row.kept is not None:
            yield "reactions_exact", f"{about}, which is deleted, is kept as of {row.kept}"
    elif row.kept is None or row.kept < row.sequence:
        yield "reactions_exact", f"{about} is kept as of {row.kept}"
    elif row.on_count is not None and row.on_count != row.counted:
        found = f"{about} counted {row.counted} users, but {row.on_count} have it on"
        yield "reactions_exact", found
    elif row.told is not None and row.told != _told_by(row):
        count, of = row.told
        found = f"{about} counted {row.counted} users, but the message tells {count} as of {of}"
        yield "reactions_exact", found


def _told_by(row: ChangeRow) -> tuple[int, int]:
    """The count and the sequence that the target must have for the last reaction with an emoji."""
    return (row.counted, row.sequence) if row.counted else (0, 0)


def _check_erased(row: ChangeRow) -> Iterator[tuple[str, str]]:
    if row.has_text or row.mentions:
        yield "deleted_is_erased", f"was deleted by {row.deleted_by}, and still has its text"
    own = row.sequence if row.amends is None else row.amends.target
    if row.deletes != own:
        found = f"was deleted by {row.deleted_by}, which deletes {row.deletes}"
        yield "deleted_is_erased", found


def check_kept(rows: Iterable[KeptRow]) -> Iterator[Violation]:
    """Check rows that are kept beside the log, of any chats."""
    for row in rows:
        if row.entry is not None and not row.is_target_deleted and _agrees(row, row.entry):
            continue
        reason = "is not what that entry says"
        if row.entry is None:
            reason = "has no such entry"
        elif row.is_target_deleted:
            reason = "is of a message that is deleted"
        invariant, name = {
            EntryKind.EDIT: ("edits_exact", "an edit"),
            EntryKind.REACT: ("reactions_exact", f"a reaction of {row.user_id}"),
        }.get(row.kind, ("mentions_exact", f"a mention of {row.user_id}"))
        yield Violation(invariant, row.chat_id, f"{name} kept as of {row.sequence} {reason}")


def _agrees(row: KeptRow, entry: ChangeRow) -> bool:
    if row.kind is EntryKind.MESSAGE:
        return row.user_id in entry.mentions
    is_own = row.kind is EntryKind.EDIT or row.user_id == entry.sender_id
    is_counted = row.counted is None or row.counted == entry.counted
    return is_own and is_counted and entry.amends == row.amends


def is_sound_change(row: ChangeRow) -> bool:
    return not any(_check_entry(row))


def is_sound_kept(row: KeptRow) -> bool:
    return not any(check_kept([row]))


def _what(row: ChangeRow, named: int) -> str:
    if named >= row.sequence:
        return "not below it"
    return "not there" if row.target is None else "not a message"
