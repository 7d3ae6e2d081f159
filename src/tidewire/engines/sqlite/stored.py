"""Reads messages from their table: every row is checked, and one that fails is mended or marked.

The usual way reads rows as they are and compares their checksums and their chain. Only if something
is wrong the same rows are read again the careful way: text as bytes, numbers from the index and
from the row, the neighbours beside them (`domain.damage`).
"""

from collections.abc import Sequence
from typing import Any, Final

import apsw

from tidewire.domain.damage import FoundRow, may_lack_end, mend, message_checksum, plain_checksum
from tidewire.domain.errors import StoreDamaged
from tidewire.domain.ids import PLACE_MAX, ChatId
from tidewire.domain.limits import CONTENT_BYTES_MAX
from tidewire.domain.messages import Message
from tidewire.domain.rows import NUMBER_FIELDS, ROW_FIELDS, entry_of_row

# A column has the name of its field; a time is without `_ms`.
_COLUMN_OF: Final = {name: name.removesuffix("_ms") for name in ROW_FIELDS}
COLUMNS: Final = (*_COLUMN_OF.values(), "checksum")
"""Of the table of messages, in the order in which rows are read and written."""

IS_INDEXED: Final = f"is_placed IS NULL OR sequence > {PLACE_MAX}"
"""Which messages are in the index of ids: those whose id does not carry their place."""

MESSAGE: Final = f"SELECT {', '.join(COLUMNS)} FROM messages\n"  # noqa: S608 - constants


def _integer(column: str) -> str:
    return f"iif(typeof({column}) = 'integer', {column}, NULL)"


def _bytes(column: str) -> str:
    return f"iif(typeof({column}) = 'text', CAST({column} AS BLOB), NULL)"


# What the index says of a place, and the row there, also if they are damaged: no value can fail to
# be decoded. The row is read from the table, not from an index that repeats some of its columns.
_PLACES: Final = f"""
SELECT position, {_integer("sequence")}
FROM messages INDEXED BY messages_by_sequence
WHERE chat_id = ? AND sequence {{compared}} ? ORDER BY sequence {{order}} LIMIT ?
"""  # noqa: S608 - constants
_PLACES_ABOVE: Final = _PLACES.format(compared=">", order="ASC")
_PLACES_FROM: Final = _PLACES.format(compared=">=", order="ASC")
_PLACES_THROUGH: Final = _PLACES.format(compared="<=", order="DESC")
_PLACES_BELOW: Final = _PLACES.format(compared="<", order="DESC")


def raw(names: Sequence[str]) -> str:
    """The checksum and these fields of a message, as `FoundRow` takes them."""
    columns = [_integer("checksum")]
    for name in names:
        read = _integer if name in NUMBER_FIELDS else _bytes
        columns.append(read(_COLUMN_OF[name]))
    return ", ".join(columns)


RAW: Final = raw(ROW_FIELDS[1:])
_RAW_ROW: Final = f"SELECT {RAW} FROM messages NOT INDEXED WHERE position = ?"  # noqa: S608

# A way around the index by sequence: the index by key leads to every row of the chat, too.
_FIND_BY_KEYS: Final = """
SELECT position FROM messages INDEXED BY messages_by_key WHERE chat_id = ? AND sequence = ?
"""
_PLACE_OF: Final = f"""
SELECT {_integer("sequence")} FROM messages INDEXED BY messages_by_sequence
WHERE chat_id = ? AND position = ?
"""  # noqa: S608 - constants
NEWEST_MESSAGE: Final = """
SELECT iif(target IS NULL, sequence, message_before) FROM messages
WHERE chat_id = ? ORDER BY sequence DESC LIMIT 1
"""
"""The sequence of a chat's last entry that is a message."""
_COUNTER: Final = f"""
SELECT {_integer("sequence_counter")} FROM chat_counters WHERE chat_id = ?
"""  # noqa: S608 - constants
_ABOVE_ALL: Final = (1 << 63) - 1
_BELOW_ALL: Final = -(1 << 63)

Place = tuple[int, int | None]
"""A position, and the sequence that the index has for it."""


def whole(row: Sequence[Any]) -> Message | None:
    """The message of a row that `MESSAGE` gives, or None if it is not what was stored."""
    *plain, target, extra, deleted_by, checksum = row
    if target is None and extra is None and deleted_by is None:
        message = Message(*plain)
        is_whole = plain_checksum(message) == checksum
    else:
        try:
            message = entry_of_row(row[:-1])
        except (ValueError, TypeError):
            return None
        is_whole = message_checksum(message) == checksum
    return message if is_whole and type(message.content) is str else None


def message_at(database: apsw.Connection, chat_id: ChatId, sequence: int) -> Message | None:
    """The message of a sequence, or None if there is none."""
    where = "WHERE chat_id = ? AND sequence = ?"
    messages = read_whole(database, where, (chat_id, sequence))
    if messages is None:
        messages = messages_after_mended(database, chat_id, sequence - 1, 1)
        messages = [message for message in messages if message.sequence == sequence]
    return messages[0] if messages else None


def newest_message(database: apsw.Connection, chat_id: ChatId) -> Message | None:
    """The last entry of a chat that is a message, or None."""
    sequence: Any = database.execute(NEWEST_MESSAGE, (chat_id,)).get
    return None if sequence is None else message_at(database, chat_id, sequence)


def last_entry(database: apsw.Connection, chat_id: ChatId) -> Message | None:
    """The chat's last entry, or None if it has none."""
    where = "WHERE chat_id = ? ORDER BY sequence DESC LIMIT 1"
    messages = read_whole(database, where, (chat_id,))
    if messages is not None:
        counter = _counter(database, chat_id)
        last = messages[0].sequence if messages else 0
        if counter is None or not may_lack_end(last, counter):
            return messages[0] if messages else None
    places = _places(database, _PLACES_BELOW, chat_id, _ABOVE_ALL, 3)
    places.reverse()
    mended = _mend(database, chat_id, places, ends_chat=True)
    return mended[-1][1] if mended else None


def checked_head(
    database: apsw.Connection, chat_id: ChatId, indexed: object, counter: object
) -> int:
    """The sequence of a chat's last entry, 0 if it has none.

    The index gives one number and the counter another; nearly always they are equal, and then both
    are right. Otherwise the entry itself is read.
    """
    if type(indexed) is int and indexed == counter:
        return indexed
    last = last_entry(database, chat_id)
    return 0 if last is None else last.sequence


def message_of_row(database: apsw.Connection, chat_id: ChatId, position: int) -> Message:
    """The message of a row that failed. Raises StoreDamaged if its place cannot be told."""
    place = database.execute(_PLACE_OF, (chat_id, position)).fetchone()
    sequence: Any = None if place is None else place[0]
    if sequence is None:
        raise StoreDamaged(f"{chat_id}: no sequence leads to the message at position {position}")
    before = _places(database, _PLACES_BELOW, chat_id, sequence, 1)
    places = _places(database, _PLACES_FROM, chat_id, sequence, 2)
    ends_chat = len(places) < 2
    for place_position, message in _mend(
        database, chat_id, [*before, *places], ends_chat=ends_chat
    ):
        if place_position == position:
            return message
    raise StoreDamaged(f"{chat_id}: the message at position {position} is not where it belongs")


def read_whole(
    database: apsw.Connection,
    where: str,
    bindings: tuple[str | int, ...],
    bytes_max: int = CONTENT_BYTES_MAX,
) -> list[Message] | None:
    """Rows as messages, up to the one that passes `bytes_max`. None if one of them is damaged."""
    messages: list[Message] = []
    size_bytes = 0
    try:
        for row in database.execute(MESSAGE + where, bindings):
            message = whole(row)
            if message is None:
                return None
            messages.append(message)
            size_bytes += len(message.content)
            if size_bytes > bytes_max and len(messages) > 1:
                break
    except UnicodeDecodeError:
        return None
    return messages


# The careful way.


def messages_after_mended(
    database: apsw.Connection, chat_id: ChatId, after: int, count_max: int
) -> list[Message]:
    """Messages above a sequence, ascending, at least one more than `count_max` if there are."""
    # One before and one behind: neighbours say what the numbers must be.
    before = _places(database, _PLACES_THROUGH, chat_id, after, 1)
    places = _places(database, _PLACES_ABOVE, chat_id, after, count_max + 2)
    ends_chat = len(places) < count_max + 2
    mended = _mend(database, chat_id, [*before, *places], ends_chat=ends_chat, after=after)
    return [message for _, message in mended if message.sequence > after]


def messages_before_mended(
    database: apsw.Connection, chat_id: ChatId, before: int, count_max: int
) -> list[Message]:
    """Messages up to a sequence, descending, at least one more than `count_max` if there are."""
    places = _places(database, _PLACES_BELOW, chat_id, before, count_max + 1)
    places.reverse()
    behind = _places(database, _PLACES_FROM, chat_id, before, 1)
    mended = _mend(database, chat_id, [*places, *behind], ends_chat=not behind)
    return [message for _, message in reversed(mended)]


def _mend(
    database: apsw.Connection,
    chat_id: ChatId,
    places: Sequence[Place],
    *,
    ends_chat: bool,
    after: int | None = None,
) -> list[tuple[int | None, Message]]:
    first = _places(database, _PLACES_FROM, chat_id, _BELOW_ALL, 1)

    def find(sequence: int) -> FoundRow | None:
        row: Any = database.execute(_FIND_BY_KEYS, (chat_id, sequence)).fetchone()
        return None if row is None else _found(database, row[0], None)

    return mend(
        chat_id,
        [_found(database, position, sequence) for position, sequence in places],
        begins_chat=first[:1] == list(places[:1]),
        after=after,
        counter=_counter(database, chat_id) if ends_chat else None,
        find=find,
    )


def _counter(database: apsw.Connection, chat_id: ChatId) -> int | None:
    counter: Any = database.execute(_COUNTER, (chat_id,)).get
    return counter if type(counter) is int else None


def _places(
    database: apsw.Connection, query: str, chat_id: ChatId, sequence: int, count: int
) -> list[Place]:
    rows: list[Any] = database.execute(query, (chat_id, sequence, count)).fetchall()
    return rows


def _found(database: apsw.Connection, position: int, indexed_sequence: int | None) -> FoundRow:
    row = database.execute(_RAW_ROW, (position,)).fetchone()
    return FoundRow(position, indexed_sequence, *(row or ()))
