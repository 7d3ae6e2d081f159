"""Stored messages whose bytes are no longer those that were written. PURE.

Every stored message has a checksum over its fields. What fails it is marked, never passed on as
truth: its place in the chat's chain is kept, or rebuilt from its neighbours, and its content is
left out.

The checksum is `version << 32 | CRC-32` of the message's canonical bytes: UTF-8 text of its fields
in a fixed order, each ended by a NUL, and the content last. Numbers are decimal. The order has
nothing to do with a table's columns. A field that not every message has stands between the
content type and the content as `name=value`, ended by a NUL, and is left out where it is absent: so
the checksums of messages without it are as they were before there was such a field. Neither ids nor
content hold a NUL, so no two messages have the same bytes. Any other change is a new version.
"""

from collections.abc import Callable, Sequence
from typing import Final, TypeGuard
from zlib import crc32

import msgspec

from tidewire.domain.errors import StoreDamaged
from tidewire.domain.ids import ChatId, ClientMessageId, MessageId, UserId
from tidewire.domain.limits import RECOVERY_SEQUENCE_JUMP, SEQUENCE_MAX, TIME_MS_MAX
from tidewire.domain.messages import Message
from tidewire.domain.rows import entry_of_row

CHECKSUM_VERSION: Final = 1
_VERSION_BITS: Final = CHECKSUM_VERSION << 32
_ID_CHARACTERS_MAX: Final = 128
_FINDS_MAX: Final = 64
"""How many rows are looked for between two others; each costs the store a walk through the chat."""


def message_checksum(message: Message) -> int:
    """The checksum to be stored with a message."""
    # In two pieces: an emoji in a text makes all of it four times as large.
    plain = (
        f"{message.chat_id}\0{message.sequence}\0{message.prev_sequence}\0{message.message_id}\0"
        f"{message.sender_id}\0{message.client_message_id}\0{message.created_at_ms}\0"
        f"{message.content_type}\0"
    )
    rest = f"{_optional(message)}{message.content}"
    return _VERSION_BITS | crc32(rest.encode(), crc32(plain.encode()))


def plain_checksum(message: Message) -> int:
    """The same of a message that has nothing but what all have. Called for every message: one text,
    one pass."""
    return _VERSION_BITS | crc32(
        f"{message.chat_id}\0{message.sequence}\0{message.prev_sequence}\0{message.message_id}\0"
        f"{message.sender_id}\0{message.client_message_id}\0{message.created_at_ms}\0"
        f"{message.content_type}\0{message.content}".encode()
    )


def _optional(message: Message) -> str:
    """The canonical text of what few messages have."""
    amends = message.amends
    text = ""
    if amends is None:
        if message.reply_to is not None:
            text = f"reply_to={message.reply_to}\0"
        if message.mentions:
            text += f"mentions={' '.join(message.mentions)}\0"
    else:
        text = "kind=" + amends.kind + f"\0target={amends.target}\0"
        if amends.emoji is not None:
            text += f"emoji={amends.emoji}\0is_on={int(amends.is_on)}\0count={message.count}\0"
        if amends.reason is not None:
            text += f"reason={amends.reason}\0"
    if message.deleted_by is not None:
        text += f"deleted_by={message.deleted_by}\0"
    return text


class FoundRow(msgspec.Struct, frozen=True):
    """A stored message as its bytes say, whatever they say. Text comes as bytes.

    The fields of the message are the last ones, in the order of `rows.ROW_FIELDS`.
    """

    position: int
    """Where the row is, by a number that the store chooses."""
    indexed_sequence: object
    """What the index that leads to the row says; the row has a sequence of its own."""
    checksum: object = None
    sequence: object = None
    prev_sequence: object = None
    message_id: object = None
    sender_id: object = None
    client_message_id: object = None
    content: object = None
    content_type: object = None
    created_at_ms: object = None
    target: object = None
    extra: object = None
    deleted_by: object = None


def row_checksum(chat_id: ChatId, row: FoundRow) -> int | None:
    """The checksum of a row as it is, or None if it is no message: a field is not what it must be.

    For rows that have none yet.
    """
    message = _read(chat_id, row, row.sequence, row.prev_sequence)
    return None if message is None else message_checksum(message)


def find_nothing(sequence: int) -> FoundRow | None:
    """For a store that has no other way to a row."""
    return None


def mend(
    chat_id: ChatId,
    rows: Sequence[FoundRow],
    *,
    begins_chat: bool,
    after: int | None = None,
    counter: int | None = None,
    find: Callable[[int], FoundRow | None] = find_nothing,
) -> list[tuple[int | None, Message]]:
    """The messages of consecutive rows of a chat, ascending, each with the position of its row.

    Damaged ones are marked, none is left out. Numbers that fail are taken from the neighbours: a
    message's sequence is the `prev_sequence` of the next one. If the row holds its checksum with
    these numbers, the message is whole. A message that has to be there, because the next one names
    it, but has no row among these, is asked for with `find`; if that does not know it either, it
    stands there as damaged, with empty ids and without a position. The first row has to follow
    `after`, if that is given: a sequence up to which the reader has everything. The chat's last
    message has no next one: of its sequence as the index, the row and the chat's counter say it,
    two must agree. `counter` is None if these rows do not end the chat. Raises StoreDamaged where
    not even the numbers can be told.
    """
    whole = [_whole(chat_id, row) for row in rows]
    mended: list[tuple[int | None, Message]] = []
    for index, row in enumerate(rows):
        before = mended[-1][1].sequence if mended else 0 if begins_chat else None
        following = whole[index + 1] if index + 1 < len(rows) else None
        named = None if following is None else following.prev_sequence
        last = counter if index + 1 == len(rows) else None
        message = whole[index] or _rebuilt(chat_id, row, before, named, last)
        fits = before == message.prev_sequence or named == message.sequence
        if message.sequence != row.indexed_sequence and not fits:
            # The index has it in the wrong place; in its own place it will be asked for.
            continue
        if before is not None and message.prev_sequence != before:
            mended += _missing(chat_id, before, message, find)
        elif before is None and after is not None and message.prev_sequence > after:
            mended += _missing(chat_id, after, message, find)
        mended.append((row.position, message))
    if counter is not None:
        mended += _lost_end(chat_id, mended, counter, find)
    return mended


def may_lack_end(head: int, counter: int) -> bool:
    """Whether messages may be missing behind a chat's last one.

    A counter stands at the chat's last message, or it was moved far ahead: after a restore, or to
    put a lost one back.
    """
    return 0 < counter - head < RECOVERY_SEQUENCE_JUMP


def _lost_end(
    chat_id: ChatId,
    mended: Sequence[tuple[int | None, Message]],
    counter: int,
    find: Callable[[int], FoundRow | None],
) -> list[tuple[int | None, Message]]:
    """What the counter says is behind the last row, if it can be found."""
    before = mended[-1][1].sequence if mended else 0
    row = find(counter) if may_lack_end(before, counter) else None
    last = None if row is None else _whole(chat_id, row)
    if row is None or last is None or last.prev_sequence < before:
        return []
    return [*_missing(chat_id, before, last, find), (row.position, last)]


def _whole(chat_id: ChatId, row: FoundRow) -> Message | None:
    """The message, if it holds its checksum with the numbers of its row or of its index entry."""
    for sequence in (row.indexed_sequence, row.sequence):
        message = _read(chat_id, row, sequence, row.prev_sequence)
        if message is not None and message_checksum(message) == row.checksum:
            return message
    return None


def _rebuilt(
    chat_id: ChatId, row: FoundRow, before: int | None, named: int | None, counter: int | None
) -> Message:
    """A row that fails: `before` is the sequence before it, `named` its own by the next one."""
    prev = before if before is not None else row.prev_sequence
    told = (row.indexed_sequence, row.sequence, counter)
    for sequence in told if named is None else (named,):
        message = _read(chat_id, row, sequence, prev)
        if message is not None and message_checksum(message) == row.checksum:
            return message
    agreed = named
    if named is None:
        agreed = next((one for one in told if _is_number(one, 1) and told.count(one) > 1), None)
    if agreed is None or not _is_number(prev, 0) or prev >= agreed:
        raise StoreDamaged(
            f"{chat_id}: the numbers of a message after {_shown(prev)} are lost "
            f"(index {_shown(row.indexed_sequence)}, row {_shown(row.sequence)})"
        )
    created_at_ms = row.created_at_ms
    return Message(
        chat_id,
        agreed,
        prev,
        MessageId(_id(row.message_id)),
        UserId(_id(row.sender_id)),
        ClientMessageId(_id(row.client_message_id)),
        "",
        _id(row.content_type),
        created_at_ms if _is_time(created_at_ms) else 0,
        is_damaged=True,
    )


def _missing(
    chat_id: ChatId, before: int, message: Message, find: Callable[[int], FoundRow | None]
) -> list[tuple[int | None, Message]]:
    """The messages between two rows: the later one names the last of them."""
    sequence = message.prev_sequence
    if sequence < before:
        raise StoreDamaged(
            f"{chat_id}: message {message.sequence} follows {sequence}, but stands after {before}"
        )
    found: list[tuple[int | None, Message]] = []
    while sequence > before:
        row = find(sequence) if len(found) < _FINDS_MAX else None
        one = None if row is None else _whole(chat_id, row)
        if row is None or one is None:
            found.append((None, _absent(chat_id, sequence, before)))
            break
        found.append((row.position, one))
        sequence = one.prev_sequence
    found.reverse()
    return found


def _absent(chat_id: ChatId, sequence: int, prev_sequence: int) -> Message:
    nothing = MessageId(""), UserId(""), ClientMessageId("")
    return Message(chat_id, sequence, prev_sequence, *nothing, "", "", 0, is_damaged=True)


def _read(
    chat_id: ChatId, row: FoundRow, sequence: object, prev_sequence: object
) -> Message | None:
    """The row as a message with these numbers, or None if a field is not what it must be."""
    message_id, sender_id = _text(row.message_id), _text(row.sender_id)
    client_message_id = _text(row.client_message_id)
    content, content_type = _text(row.content), _text(row.content_type)
    created_at_ms = row.created_at_ms
    if message_id is None or sender_id is None or client_message_id is None:
        return None
    if content is None or content_type is None or not _is_time(created_at_ms):
        return None
    if not _is_number(sequence, 1) or not _is_number(prev_sequence, 0):
        return None
    extra = None if row.extra is None else _text(row.extra) or ""
    numbers = (sequence, prev_sequence, message_id, sender_id, client_message_id)
    values = (chat_id, *numbers, content, content_type, created_at_ms)
    try:
        return entry_of_row((*values, row.target, extra, row.deleted_by))
    except (ValueError, TypeError):
        return None


def _text(value: object) -> str | None:
    if not isinstance(value, bytes):
        return None
    try:
        return value.decode()
    except UnicodeDecodeError:
        return None


def _id(value: object) -> str:
    """An id that may be damaged itself: as it was found if it can be shown at all, else empty."""
    text = _text(value) or ""
    return text if len(text) <= _ID_CHARACTERS_MAX and text.isprintable() else ""


def _is_number(value: object, least: int) -> TypeGuard[int]:
    return type(value) is int and least <= value <= SEQUENCE_MAX


def _is_time(value: object) -> TypeGuard[int]:
    return type(value) is int and 0 <= value <= TIME_MS_MAX


def _shown(value: object) -> str:
    return str(value) if type(value) is int else "unreadable"
