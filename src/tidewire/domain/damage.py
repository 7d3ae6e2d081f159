"""Stored messages whose bytes are no longer those that were written. PURE.

Every stored message has a checksum over its fields. A message that fails it is marked as damaged
and never passed on as good: its place in the chat's chain is kept, or rebuilt from its neighbours,
and its content is left out.

The checksum is `version << 32 | CRC-32` of the message's canonical bytes: UTF-8 text of its fields
in a fixed order, each ended by a NUL, and the content last. Numbers are decimal. The order has
nothing to do with a table's columns. A field that not every message has comes between the
content type and the content as `name=value`, ended by a NUL. If it is absent, it is left out, so a
message without it keeps the checksum that it had before the field was introduced. Neither ids nor
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
"""How many missing rows are searched between two others; each search walks through the chat."""


def message_checksum(message: Message) -> int:
    """The checksum to be stored with a message."""
    # In two pieces: one emoji in a Python string makes the whole string four times as large.
    plain = (
        f"{message.chat_id}\0{message.sequence}\0{message.prev_sequence}\0{message.message_id}\0"
        f"{message.sender_id}\0{message.client_message_id}\0{message.created_at_ms}\0"
        f"{message.content_type}\0"
    )
    rest = f"{_optional(message)}{message.content}"
    return _VERSION_BITS | crc32(rest.encode(), crc32(plain.encode()))


def plain_checksum(message: Message) -> int:
    """The same for a message without optional fields. Called for every message, so it makes one
    text in one pass."""
    return _VERSION_BITS | crc32(
        f"{message.chat_id}\0{message.sequence}\0{message.prev_sequence}\0{message.message_id}\0"
        f"{message.sender_id}\0{message.client_message_id}\0{message.created_at_ms}\0"
        f"{message.content_type}\0{message.content}".encode()
    )


def _optional(message: Message) -> str:
    """The canonical text of the optional fields."""
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
    """A stored message as it was read, be it valid or not. Text comes as bytes.

    The fields of the message are the last ones, in the order of `rows.ROW_FIELDS`.
    """

    position: int
    """Where the row is, by a number that the store chooses."""
    indexed_sequence: object
    """The sequence in the index that leads to the row; the row has a sequence of its own."""
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
    """The checksum of a row as it is, or None if it is not a message: a field is not valid.

    For rows that have no checksum yet.
    """
    message = _read(chat_id, row, row.sequence, row.prev_sequence)
    return None if message is None else message_checksum(message)


def find_nothing(sequence: int) -> FoundRow | None:
    """The `find` of a store that has no other way to find a row."""
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

    Damaged messages are marked, none is left out. Wrong numbers are replaced by those of the
    neighbours: a message's sequence is the `prev_sequence` of the next one. If the checksum fits
    with these numbers, the message is whole. If the next message names one that has no row among
    these, `find` looks for it; if `find` does not know it either, the result has it as damaged,
    with empty ids and without a position. The first row must follow `after`, if that is given: a
    sequence up to which the reader has everything. The chat's last message has no next one, so the
    index, the row and the chat's counter are compared: two of the three must have the same
    sequence. `counter` is None if these rows do not end the chat. Raises StoreDamaged if not even
    the numbers can be determined.
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
            # The index has it in the wrong place; `find` will look for it in its own place.
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
    """Whether messages may be missing after the last one that was found.

    A counter equals the sequence of the chat's last message, or it was moved far ahead: after a
    restore, or when a lost counter was put back. Anything in between may mean lost messages.
    """
    return 0 < counter - head < RECOVERY_SEQUENCE_JUMP


def _lost_end(
    chat_id: ChatId,
    mended: Sequence[tuple[int | None, Message]],
    counter: int,
    find: Callable[[int], FoundRow | None],
) -> list[tuple[int | None, Message]]:
    """The messages after the last row, up to the counter, if they can be found."""
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
    """The message of a row that fails its checksum: `before` is the sequence before it, `named` its
    own sequence as the next message gives it."""
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
    """The row as a message with these numbers, or None if a field is not valid."""
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
