"""Entries about other entries: reads the facts that the rules need, and writes what they decide.

Only batches with sends that are not plain come here, so plain messages do not pay for it. As in
`append`, what has to be read for all sends of a batch is read in one statement.
"""

from collections.abc import Collection, Iterable, Sequence
from typing import Any, Final

import apsw
import msgspec
from msgspec.structs import replace

from tidewire.domain.amendments import NO_FACTS, Erasure, Target, TargetFacts
from tidewire.domain.append import AppendDecision
from tidewire.domain.damage import message_checksum
from tidewire.domain.errors import StoreDamaged
from tidewire.domain.fold import MessageNow
from tidewire.domain.ids import ChatId, UserId
from tidewire.domain.limits import CONTENT_TYPE_DEFAULT, CONTENT_TYPES, SEQUENCE_MAX
from tidewire.domain.messages import EntryKind, Message, SendMessage
from tidewire.domain.rows import extra_of
from tidewire.engines.sqlite.chats import access_chat
from tidewire.engines.sqlite.database import ask_rows, execute_rows, for_questions, for_rows
from tidewire.engines.sqlite.reactions import (
    COUNTS_ON,
    DROP_REACTIONS,
    IS_ON,
    find_reactions,
    look_at_reactions,
    set_reactions,
)
from tidewire.engines.sqlite.stored import COLUMNS, message_at, whole

_Place = tuple[ChatId, int]
"""A chat, and the sequence of a message."""
_Question = tuple[ChatId, int, str, str | None, UserId | None]
"""A place, what is done to it, and for a reaction the emoji and the user."""

_MESSAGE: Final = ", ".join(f"message.{column}" for column in COLUMNS)

# The last message of the chat; the edits of the message, if it is edited or deleted; the reactions
# on it, if it is deleted or reacted to.
_ABOUT: Final = f"""
    (
        SELECT iif(target IS NULL, sequence, message_before) FROM messages AS last
        WHERE last.chat_id = question.chat_id ORDER BY sequence DESC LIMIT 1
    ),
    iif(question.kind IN ('edit', 'delete'), (
        SELECT group_concat(sequence) FROM edits
        WHERE edits.chat_id = question.chat_id AND edits.target = question.sequence
    ), NULL),
    iif(question.kind IN ('delete', 'react'), ({COUNTS_ON}), NULL),
    iif(question.kind IN ('react', 'again'), ({IS_ON}), NULL)"""  # noqa: S608 - constants
_QUESTION: Final = """
WITH question (number, chat_id, sequence, kind, emoji, user_id) AS (VALUES {rows})
"""
_FIND_TARGETS: Final = for_questions(
    f"""
{_QUESTION}
SELECT number, {_ABOUT}, {_MESSAGE}
FROM question
CROSS JOIN messages AS message
    ON message.chat_id = question.chat_id AND message.sequence = question.sequence
""",  # noqa: S608 - constants
    columns=5,
)
# The same without the messages, whose text may not be UTF-8 any more.
_FIND_ABOUT: Final = for_questions(
    f"{_QUESTION} SELECT number, {_ABOUT} FROM question WHERE chat_id IS NOT NULL",  # noqa: S608
    columns=5,
)
_FIND_MEMBERS: Final = """
SELECT json_group_array(question.key) FROM json_each(?) AS question
CROSS JOIN chat_memberships AS member
    ON member.chat_id = question.value ->> 0 AND member.user_id = question.value ->> 1
"""

_ADD_EDITS: Final = for_rows(
    "INSERT OR FAIL INTO edits (chat_id, target, sequence) VALUES {rows}", columns=3
)
_ADD_MENTIONS: Final = for_rows(
    "INSERT OR FAIL INTO mentions (user_id, chat_id, sequence, sender_id) VALUES {rows}", columns=4
)

# Finds rows by position, so that a damaged row is erased as well.
_PLACES_OF_EDITS: Final = """
SELECT message.position, message.target = edits.target FROM edits
CROSS JOIN messages AS message
    ON message.chat_id = edits.chat_id AND message.sequence = edits.sequence
WHERE edits.chat_id = ? AND edits.target = ?
"""
_AT: Final = f"SELECT {', '.join(COLUMNS)} FROM messages WHERE position = ?"  # noqa: S608
_ERASE: Final = """
UPDATE messages SET content = '', extra = ?, deleted_by = ?, checksum = ?
WHERE chat_id = ? AND sequence = ?
"""
# By the index: the row may hold anything. The deletion that it names counts if it has an entry.
_FIND_DAMAGED: Final = """
SELECT message.position,
    message.target IS NULL AND coalesce(instr(message.extra, '"kind"'), 0) = 0,
    (
        SELECT sequence FROM messages AS deletion
        WHERE deletion.chat_id = message.chat_id AND deletion.sequence = message.deleted_by
            AND deletion.target = ?2
    )
FROM messages AS message INDEXED BY messages_by_sequence
WHERE message.chat_id = ?1 AND message.sequence = ?2
"""
_ERASE_DAMAGED_MESSAGE: Final = """
UPDATE messages
SET content = '', content_type = ?, created_at = ?, prev_sequence = ?, extra = NULL, deleted_by = ?,
    checksum = ?
WHERE position = ?
"""
# A damaged message does not tell whom it mentioned, so all mentions are looked at.
_DROP_MENTIONS: Final = "DELETE FROM mentions WHERE chat_id = ? AND sequence = ?"
# Values that keep the table's constraints, whatever the row held.
_ERASE_DAMAGED: Final = """
UPDATE messages
SET content = '', content_type = '', created_at = 0, extra = NULL, deleted_by = ?, checksum = NULL
WHERE position = ?
"""
_DROP_EDITS: Final = "DELETE FROM edits WHERE chat_id = ? AND target = ?"
_DROP_MENTION: Final = "DELETE FROM mentions WHERE user_id = ? AND chat_id = ? AND sequence = ?"

_LAST_EDIT: Final = "SELECT max(sequence) FROM edits WHERE chat_id = ? AND target = ?"
_FIND_DELETED: Final = """
SELECT message.sequence, message.deleted_by FROM messages AS message
CROSS JOIN messages AS deletion
    ON deletion.chat_id = message.chat_id AND deletion.sequence = message.deleted_by
WHERE message.chat_id = ? AND message.sequence IN (SELECT value FROM json_each(?))
    AND message.target IS NULL AND deletion.target = message.sequence
"""
_FIND_LAST_EDITS: Final = f"""
SELECT edit.target, edit.sequence, {_MESSAGE}
FROM (
    SELECT target, max(sequence) AS sequence FROM edits
    WHERE chat_id = ?1 AND target IN (SELECT value FROM json_each(?2)) GROUP BY target
) AS edit
LEFT JOIN messages AS message
    ON message.chat_id = ?1 AND message.sequence = edit.sequence
"""  # noqa: S608 - constants

_CHATS_OF: Final = """
SELECT chat_id FROM delivery_state WHERE user_id = ? AND chat_id > ? ORDER BY chat_id LIMIT ?
"""
_BORDER: Final = """
SELECT sequence FROM messages INDEXED BY messages_by_sequence
WHERE chat_id = ? AND sequence > ? ORDER BY sequence LIMIT 1 OFFSET 20000
"""
_MESSAGES_BY: Final = """
SELECT sequence FROM messages
WHERE chat_id = ? AND sequence > ? AND sequence <= ? AND target IS NULL AND sender_id = ?
    AND deleted_by IS NULL
ORDER BY sequence LIMIT ?
"""

_encode: Final = msgspec.json.Encoder().encode
_decode_indices: Final = msgspec.json.Decoder(list[int]).decode


class Found:
    """The messages that the sends of a batch are about, as they are before the batch."""

    __slots__ = ("facts", "messages", "newest", "reacted")

    def __init__(self) -> None:
        self.facts = NO_FACTS
        self.messages: dict[_Place, Message] = {}
        """The targets, as they are stored."""
        self.reacted: set[_Place] = set()
        """The targets that have reactions, or may get some."""
        self.newest: dict[ChatId, int | None] = {}
        """The last message of each chat that has a target."""


def find_facts(database: apsw.Connection, sends: Sequence[SendMessage]) -> Found:
    """Read the facts for sends that are not plain, inside the caller's transaction."""
    questions: dict[_Question, None] = {}
    mentioned: dict[tuple[ChatId, UserId], None] = {}
    reacted: set[_Place] = set()
    for send in sends:
        amends = send.amends
        if amends is not None:
            if amends.emoji is None:
                questions[send.chat_id, amends.target, amends.kind, None, None] = None
                continue
            # Many may react to one message: its reactions are counted once.
            place = (send.chat_id, amends.target)
            kind = "again" if place in reacted else amends.kind
            reacted.add(place)
            questions[*place, kind, amends.emoji, send.sender_id] = None
            continue
        if send.reply_to is not None:
            questions[send.chat_id, send.reply_to, "reply", None, None] = None
        for user_id in send.mentions:
            mentioned[send.chat_id, user_id] = None
    found = Found()
    targets = _find_targets(database, list(questions), found) if questions else {}
    for send in sends:
        if send.base is not None and send.amends is not None:
            _look_at_text(database, targets, (send.chat_id, send.amends.target))
    members = _find_members(database, list(mentioned)) if mentioned else ()
    found.facts = TargetFacts(targets, members)
    return found


def _find_targets(
    database: apsw.Connection, questions: Sequence[_Question], found: Found
) -> dict[_Place, Target]:
    targets: dict[_Place, Target] = {}
    for index, (newest, edits, counts, is_on, *row) in _answers(database, questions):
        chat_id, sequence, _, emoji, user_id = questions[index]
        place = (chat_id, sequence)
        target = targets.get(place)
        if target is None:
            message = (whole(row) if row else None) or message_at(database, chat_id, sequence)
            if message is not None and message.is_damaged:
                message = _damaged_message(database, message)
            if message is None or message.amends is not None:
                continue
            found.messages[place] = message
            found.newest[chat_id] = newest
            target = targets[place] = Target(
                message.sender_id,
                message.created_at_ms,
                message.content,
                deleted_by=message.deleted_by,
                is_damaged=message.is_damaged,
            )
        if edits is not None:
            numbers = edits.split(",")
            target.edits, target.edited_by = len(numbers), max(map(int, numbers))
        if emoji is not None and user_id is not None:
            look_at_reactions(target, emoji, user_id, counts, is_on=is_on == 1)
        if emoji is not None or counts is not None:
            found.reacted.add(place)
    return targets


def _damaged_message(database: apsw.Connection, found: Message) -> Message | None:
    """A damaged entry with the deletion that it names, if that exists; None if the entry has no
    row, or is no message."""
    row: Any = database.execute(_FIND_DAMAGED, (found.chat_id, found.sequence)).fetchone()
    if row is None or not row[1]:
        return None
    return replace(found, deleted_by=row[2])


def _answers(
    database: apsw.Connection, questions: Sequence[_Question]
) -> list[tuple[int, tuple[Any, ...]]]:
    try:
        return ask_rows(database, _FIND_TARGETS, questions)
    except UnicodeDecodeError:
        # A text is not UTF-8 any more: nothing of the statement's answer can be read.
        return ask_rows(database, _FIND_ABOUT, questions)


def _look_at_text(database: apsw.Connection, targets: dict[_Place, Target], place: _Place) -> None:
    """Set a target's present text, for an edit that says on which text it is based."""
    target = targets.get(place)
    if target is not None and target.edited_by:
        edit = message_at(database, place[0], target.edited_by)
        target.content = edit.content if edit is not None and _edits(edit, place[1]) else ""


def _find_members(
    database: apsw.Connection, mentioned: Sequence[tuple[ChatId, UserId]]
) -> Collection[tuple[ChatId, UserId]]:
    found: Any = database.execute(_FIND_MEMBERS, (_question(mentioned),)).get
    return {mentioned[index] for index in _decode_indices(found)}


def messages_before(messages: Iterable[Message], found: Found) -> list[int | None]:
    """For each new entry, the last message before it in its chat; None if it is a message."""
    newest = found.newest
    before: list[int | None] = []
    for message in messages:
        if message.amends is None:
            newest[message.chat_id] = message.sequence
            before.append(None)
        else:
            before.append(newest[message.chat_id])
    return before


def write_amendments(database: apsw.Connection, decision: AppendDecision, found: Found) -> None:
    """Write edits, reactions and mentions, and erase what is deleted: in the caller's transaction,
    after the entries are written."""
    edits, mentions = [], []
    for message in decision.messages:
        amends = message.amends
        if amends is not None and amends.kind is EntryKind.EDIT:
            edits.append((message.chat_id, amends.target, message.sequence))
        mentions += [
            (user_id, message.chat_id, message.sequence, message.sender_id)
            for user_id in message.mentions
        ]
    execute_rows(database, _ADD_EDITS, edits)
    execute_rows(database, _ADD_MENTIONS, mentions)
    if decision.reactions:
        set_reactions(database, decision.reactions)
    for erasure in decision.erasures:
        place = (erasure.chat_id, erasure.target)
        _erase(database, found.messages[place], erasure.deleted_by)
        if found.facts.targets[place].edits:
            _erase_edits(database, erasure)
        if place in found.reacted:
            database.execute(DROP_REACTIONS, place)


def _edits(entry: Message, target: int) -> bool:
    """Whether an entry is an edit of a message. Tables beside the messages have no checksums: an
    entry that they name is checked before it is shown, or erased."""
    amends = entry.amends
    return amends is not None and (amends.kind, amends.target) == (EntryKind.EDIT, target)


def _erase(database: apsw.Connection, message: Message, deleted_by: int) -> None:
    if message.is_damaged:
        _erase_damaged_message(database, message, deleted_by)
        return
    erased = replace(message, content="", mentions=(), deleted_by=deleted_by)
    extra, checksum = extra_of(erased), message_checksum(erased)
    place = (message.chat_id, message.sequence)
    database.execute(_ERASE, (extra, deleted_by, checksum, *place))
    for user_id in message.mentions:
        database.execute(_DROP_MENTION, (user_id, *place))


def _erase_edits(database: apsw.Connection, erasure: Erasure) -> None:
    place = (erasure.chat_id, erasure.target)
    positions: list[Any] = database.execute(_PLACES_OF_EDITS, place).fetchall()
    for position, is_about_target in positions:
        try:
            row = database.execute(_AT, (position,)).fetchone()
            message = None if row is None else whole(row)
        except UnicodeDecodeError:
            message = None
        if not (is_about_target if message is None else _edits(message, erasure.target)):
            raise StoreDamaged(
                f"{erasure.chat_id}: what is kept as an edit of message {erasure.target} is none"
            )
        if message is None:
            _erase_damaged(database, erasure, position)
        else:
            _erase(database, message, erasure.deleted_by)
    database.execute(_DROP_EDITS, place)


def _erase_damaged_message(database: apsw.Connection, found: Message, deleted_by: int) -> None:
    """Turn a message of which only the numbers are sure into a deleted one. Its ids stay as they
    were found; if one of them is no id, the message stays damaged, without its text."""
    content_type = found.content_type
    if content_type not in CONTENT_TYPES:
        content_type = CONTENT_TYPE_DEFAULT
    erased = replace(
        found, content_type=content_type, reply_to=None, deleted_by=deleted_by, is_damaged=False
    )
    place = (found.chat_id, found.sequence)
    values = (
        *(content_type, found.created_at_ms, found.prev_sequence, deleted_by),
        message_checksum(erased),
    )
    position: Any = database.execute(_FIND_DAMAGED, place).get[0]
    try:
        database.execute(_ERASE_DAMAGED_MESSAGE, (*values, position))
    except apsw.ConstraintError as error:
        raise StoreDamaged(
            f"{found.chat_id}: message {found.sequence} cannot be erased ({error})"
        ) from error
    database.execute(_DROP_MENTIONS, place)


def _erase_damaged(database: apsw.Connection, erasure: Erasure, position: int) -> None:
    """Erase the text of a damaged edit, which stays damaged."""
    try:
        database.execute(_ERASE_DAMAGED, (erasure.deleted_by, position))
    except apsw.ConstraintError as error:
        raise StoreDamaged(
            f"{erasure.chat_id}: an edit of message {erasure.target} cannot be erased ({error})"
        ) from error


def messages_now(
    database: apsw.Connection, reader: UserId, chat_id: ChatId, sequences: Sequence[int]
) -> dict[int, MessageNow]:
    access_chat(database, reader, chat_id)
    place = (chat_id, _question(list(sequences)))
    edits = _last_edits(database, place)
    reactions = find_reactions(database, reader, chat_id, sequences)
    found: dict[int, MessageNow] = {}
    for sequence in (edits | reactions) if edits else reactions:
        edited_by, content = edits.get(sequence, (0, None))
        found[sequence] = MessageNow(
            content=content,
            edited_sequence=edited_by,
            reactions=tuple(reactions.get(sequence, ())),
        )
    deleted: list[Any] = database.execute(_FIND_DELETED, place).fetchall()
    for sequence, deleted_by in deleted:
        found[sequence] = MessageNow(deleted_sequence=deleted_by)
    return found


def _last_edits(
    database: apsw.Connection, place: tuple[ChatId, str]
) -> dict[int, tuple[int, str | None]]:
    """For each of these messages that was edited: the sequence of its last edit, and that edit's
    text; None if it is damaged."""
    try:
        rows: list[Any] = database.execute(_FIND_LAST_EDITS, place).fetchall()
    except UnicodeDecodeError:
        rows = database.execute(_FIND_LAST_EDITS.replace(_MESSAGE, "NULL"), place).fetchall()
    found: dict[int, tuple[int, str | None]] = {}
    for target, edited_by, *row in rows:
        edit = whole(row) if len(row) == len(COLUMNS) else None
        edit = edit or message_at(database, place[0], edited_by)
        if edit is None or edit.is_damaged:
            found[target] = edited_by, None
        elif _edits(edit, target):
            found[target] = edited_by, edit.content
    return found


def chats_of_author(
    database: apsw.Connection, user_id: UserId, *, after: ChatId | None, count_max: int
) -> list[ChatId]:
    rows: list[Any] = database.execute(_CHATS_OF, (user_id, after or "", count_max)).fetchall()
    return [chat_id for (chat_id,) in rows]


def some_messages_by(
    database: apsw.Connection, user_id: UserId, chat_id: ChatId, *, after: int, count_max: int
) -> tuple[list[int], int | None]:
    """The user's messages that are not deleted, in a piece of the chat; and where the next piece
    begins, or None. Each entry is looked at, so a long chat takes several reads."""
    border: Any = database.execute(_BORDER, (chat_id, after)).get
    through = SEQUENCE_MAX if border is None else border
    rows: list[Any] = database.execute(
        _MESSAGES_BY, (chat_id, after, through, user_id, count_max)
    ).fetchall()
    return [sequence for (sequence,) in rows], border


def edited_text(database: apsw.Connection, message: Message | None) -> str | None:
    """The text of a message's last edit; None if it has none, or one of the two is damaged."""
    if message is None or message.is_damaged:
        return None
    edited_by: Any = database.execute(_LAST_EDIT, (message.chat_id, message.sequence)).get
    edit = None if edited_by is None else message_at(database, message.chat_id, edited_by)
    is_whole = edit is not None and not edit.is_damaged and _edits(edit, message.sequence)
    return edit.content if edit is not None and is_whole else None


def _question(values: Sequence[Any]) -> str:
    return _encode(values).decode()
