"""Reads the rows that the sends of a batch are about: their targets, with reactions and edits.

All rows are read strongly, and the commit is conditional on them (`amending`).
"""

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from tidewire.domain.append import Author, EarlierSend, judge
from tidewire.domain.errors import EditConflict
from tidewire.domain.ids import ChatId, UserId
from tidewire.domain.messages import EntryKind, Message, SendMessage
from tidewire.engines.dynamodb import schema
from tidewire.engines.dynamodb.amending import Concerned, Erased, MarkId, mark_id
from tidewire.engines.dynamodb.database import Database, Wanted
from tidewire.engines.dynamodb.entries import (
    Mark,
    StoredMessage,
    entry_of,
    mark_key,
    mark_of,
    stored_message_of,
)
from tidewire.engines.dynamodb.rows import Row

Found = Mapping[object, Row | None]
"""Rows by the names under which they were asked for."""


def places_concerned(chat_id: ChatId, sends: Sequence[SendMessage]) -> dict[object, Wanted]:
    """The messages that sends reply to or amend, and the marks that they set."""
    wanted: dict[object, Wanted] = {}
    for send in sends:
        amends = send.amends
        sequences = [send.reply_to, None if amends is None else amends.target]
        for sequence in sequences:
            if sequence is not None:
                place: Wanted = (schema.MESSAGES, {"chat_id": chat_id, "sequence": sequence})
                wanted[schema.MESSAGES, sequence] = place
        if amends is not None and amends.kind is EntryKind.REACT:
            mark = mark_id(send)
            wanted[schema.REACTIONS, mark] = (schema.REACTIONS, mark_key(chat_id, Mark(*mark)))
    return wanted


def read_concerned(
    sends: Sequence[SendMessage],
    found: Found,
    members: Sequence[UserId],
    *,
    takes_entries: bool,
) -> Concerned:
    """Make the rows found at the `places_concerned` into values."""
    targets: dict[int, StoredMessage] = {}
    marks: dict[MarkId, Mark] = {}
    for send in sends:
        amends = send.amends
        for sequence in (send.reply_to, None if amends is None else amends.target):
            row = None if sequence is None else found[schema.MESSAGES, sequence]
            if sequence is not None and row is not None:
                targets[sequence] = stored_message_of(row)
        if amends is not None and amends.kind is EntryKind.REACT:
            mark = mark_id(send)
            row = found[schema.REACTIONS, mark]
            marks[mark] = Mark(*mark) if row is None else mark_of(row)
    return Concerned(targets, marks=marks, members=members, takes_entries=takes_entries)


async def look_closer(
    database: Database,
    sends: Sequence[SendMessage],
    concerned: Concerned,
    earlier: Sequence[EarlierSend | None],
    authors: Mapping[UserId, Author],
) -> Concerned:
    """Read more where the verdict needs it: all edits of a message that is to be deleted, and the
    text of the last edit where another edit was faster."""
    chat_id = sends[0].chat_id
    facts = concerned.facts(chat_id)
    deleted: dict[int, StoredMessage] = {}
    conflicting: dict[int, StoredMessage] = {}
    for send, first in zip(sends, earlier, strict=True):
        if send.amends is None:
            continue
        target = send.amends.target
        verdict = judge(send, first, authors.get(send.sender_id), facts)
        if verdict is None and send.amends.kind is EntryKind.DELETE:
            deleted[target] = concerned.targets[target]
        elif isinstance(verdict, EditConflict) and verdict.edited_by:
            conflicting[target] = concerned.targets[target]
    if not deleted and not conflicting:
        return concerned
    edits = {sequence for one in deleted.values() for sequence in one.edits}
    edits |= {one.edited_by for one in conflicting.values()}
    entries = await _amendments(database, chat_id, sorted(edits))
    return replace(
        concerned,
        texts={target: entries[one.edited_by].content for target, one in conflicting.items()},
        erased=await _erased(database, list(deleted.values()), entries),
    )


async def _amendments(
    database: Database, chat_id: ChatId, sequences: Sequence[int]
) -> dict[int, Message]:
    """Amendments that the rows of their targets name: they are there, or soon become visible."""

    async def look() -> dict[int, Message] | None:
        found = await database.get_many(
            [(schema.AMENDMENTS, {"chat_id": chat_id, "sequence": one}) for one in sequences]
        )
        entries = [entry_of(row) for row in found if row is not None]
        if len(entries) < len(sequences):
            return None
        return {entry.sequence: entry for entry in entries}

    return await database.until_shown(look) if sequences else {}


async def _erased(
    database: Database, deleted: Sequence[StoredMessage], edits: Mapping[int, Message]
) -> dict[int, list[Erased]]:
    """By target: the message and its edits, and which of their keys still exist."""
    entries = [
        (one.message.sequence, entry)
        for one in deleted
        for entry in (one.message, *(edits[sequence] for sequence in one.edits))
    ]
    found = await database.get_many(
        [
            (
                schema.KEYS,
                {"chat_id": entry.chat_id, "client_message_id": entry.client_message_id},
            )
            for _, entry in entries
        ]
    )
    erased: dict[int, list[Erased]] = {}
    for (target, entry), key in zip(entries, found, strict=True):
        has_key = key is not None and key["sequence"] == entry.sequence and "content_hash" in key
        erased.setdefault(target, []).append(
            Erased(entry.sequence, entry.client_message_id, has_key=has_key)
        )
    return erased
