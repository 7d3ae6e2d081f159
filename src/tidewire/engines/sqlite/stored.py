"""Messages out of their table: every row is checked, and one that fails is mended or marked.

The usual way reads rows as they are and compares their checksums and their chain. Only if something
is wrong the same rows are read again the careful way: text as bytes, numbers from the index and
from the row, the neighbours beside them (`domain.damage`).
"""

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any, Final

import apsw

from tidewire.domain.damage import FoundRow, may_lack_end, mend, message_checksum
from tidewire.domain.errors import StoreDamaged
from tidewire.domain.ids import ChatId
from tidewire.domain.limits import CONTENT_BYTES_MAX
from tidewire.domain.messages import Message

MESSAGE: Final = """
SELECT chat_id, sequence, prev_sequence, message_id, sender_id, client_message_id,
    content, content_type, created_at, checksum
FROM messages
"""


def _integer(column: str) -> str:
    return f"iif(typeof({column}) = 'integer', {column}, NULL)"


def _bytes(column: str) -> str:
    return f"iif(typeof({column}) = 'text', CAST({column} AS BLOB), NULL)"


# What the index says of a place, and the row there, whatever they hold: no value can fail to be
# handed over. The row is read from the table, not from an index that repeats some of its columns.
_PLACES: Final = f"""
SELECT position, {_integer("sequence")}
FROM messages INDEXED BY messages_by_sequence
WHERE chat_id = ? AND sequence {{compared}} ? ORDER BY sequence {{order}} LIMIT ?
"""  # noqa: S608 - constants
_PLACES_ABOVE: Final = _PLACES.format(compared=">", order="ASC")
_PLACES_FROM: Final = _PLACES.format(compared=">=", order="ASC")
_PLACES_THROUGH: Final = _PLACES.format(compared="<=", order="DESC")
_PLACES_BELOW: Final = _PLACES.format(compared="<", order="DESC")
RAW: Final = ", ".join(
    [_integer(column) for column in ("sequence", "prev_sequence")]
    + [_bytes(column) for column in ("message_id", "sender_id", "client_message_id")]
    + [_bytes(column) for column in ("content", "content_type")]
    + [_integer(column) for column in ("created_at", "checksum")]
)
_RAW_ROW: Final = f"SELECT {RAW} FROM messages NOT INDEXED WHERE position = ?"  # noqa: S608

# The way round the index by sequence: another one leads to every row of the chat.
_FIND_BY_KEYS: Final = """
SELECT position FROM messages INDEXED BY messages_by_key WHERE chat_id = ? AND sequence = ?
"""
_PLACE_OF: Final = f"""
SELECT {_integer("sequence")} FROM messages INDEXED BY messages_by_sequence
WHERE chat_id = ? AND position = ?
"""  # noqa: S608 - constants
_COUNTER: Final = f"""
SELECT {_integer("sequence_counter")} FROM chat_counters WHERE chat_id = ?
"""  # noqa: S608 - constants
_ABOVE_ALL: Final = (1 << 63) - 1
_BELOW_ALL: Final = -(1 << 63)

Place = tuple[int, int | None]
"""A position, and the sequence that the index has for it."""


def whole(row: Sequence[Any]) -> Message | None:
    """The message of a row that `MESSAGE` gives, or None if it is not what was stored."""
    fields = row[:9]
    if message_checksum(*fields) != row[9] or type(row[6]) is not str:
        return None
    return Message(*fields)


def messages_after(
    database: apsw.Connection,
    chat_id: ChatId,
    after: int,
    count_max: int,
    bytes_max: int,
    *,
    head: int,
) -> tuple[list[Message], bool]:
    """The messages above a sequence, ascending, and whether they were cut before the chat's end.

    `head` is the sequence of the chat's last message.
    """
    where = "WHERE chat_id = ? AND sequence > ? ORDER BY sequence LIMIT ?"
    messages = _read_whole(database, where, (chat_id, after, count_max + 1), bytes_max)
    if messages:
        is_chain = messages[0].prev_sequence <= after and all(
            later.prev_sequence == one.sequence for one, later in pairwise(messages)
        )
        messages = messages if is_chain else None
    if messages is not None:
        found, has_more = _cut(messages, count_max, bytes_max)
        if has_more or (found[-1].sequence if found else after) == head:
            return found, has_more
    messages = _messages_after_mended(database, chat_id, after, count_max)
    return _cut(messages, count_max, bytes_max)


def messages_before(
    database: apsw.Connection,
    chat_id: ChatId,
    before: int | None,
    count_max: int,
    bytes_max: int,
    *,
    head: int,
) -> list[Message]:
    """The messages below a sequence, or the last ones, ascending."""
    border = head + 1 if before is None else before
    # The message at the border says which one is before it.
    where = "WHERE chat_id = ? AND sequence <= ? ORDER BY sequence DESC LIMIT ?"
    messages = _read_whole(database, where, (chat_id, border, count_max + 1), bytes_max)
    if messages is not None:
        is_chain = all(later.prev_sequence == one.sequence for later, one in pairwise(messages))
        reaches_head = before is not None or (messages[0].sequence if messages else 0) == head
        messages = messages if is_chain and reaches_head else None
    if messages is None:
        messages = _messages_before_mended(database, chat_id, border, count_max)
    below = (message for message in messages if message.sequence < border)
    found, _ = _cut(below, count_max, bytes_max)
    found.reverse()
    return found


def message_at(database: apsw.Connection, chat_id: ChatId, sequence: int) -> Message | None:
    """The message of a sequence, or None if there is none."""
    where = "WHERE chat_id = ? AND sequence = ?"
    messages = _read_whole(database, where, (chat_id, sequence))
    if messages is None:
        messages = _messages_after_mended(database, chat_id, sequence - 1, 1)
        messages = [message for message in messages if message.sequence == sequence]
    return messages[0] if messages else None


def last_message(database: apsw.Connection, chat_id: ChatId) -> Message | None:
    """The chat's newest message, or None if it has none."""
    where = "WHERE chat_id = ? ORDER BY sequence DESC LIMIT 1"
    messages = _read_whole(database, where, (chat_id,))
    if messages is not None:
        counter = _counter(database, chat_id)
        last = messages[0].sequence if messages else 0
        if counter is None or not may_lack_end(last, counter):
            return messages[0] if messages else None
    places = _places(database, _PLACES_BELOW, chat_id, _ABOVE_ALL, 3)
    places.reverse()
    messages = _mended(database, chat_id, places, ends_chat=True)
    return messages[-1] if messages else None


def checked_head(
    database: apsw.Connection, chat_id: ChatId, indexed: object, counter: object
) -> int:
    """The sequence of a chat's last message, 0 if it has none.

    The index says one number and the counter another; nearly always they are the same, and then
    both are right. Otherwise the message itself is asked.
    """
    if type(indexed) is int and indexed == counter:
        return indexed
    last = last_message(database, chat_id)
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


def _read_whole(
    database: apsw.Connection,
    where: str,
    bindings: tuple[str | int, ...],
    bytes_max: int = CONTENT_BYTES_MAX,
) -> list[Message] | None:
    """Rows as messages, the last of them passes `bytes_max`. None: one is not what was stored."""
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


def _cut(messages: Iterable[Message], count_max: int, bytes_max: int) -> tuple[list[Message], bool]:
    """Messages up to a number of bytes of content, but at least one; whether some were left."""
    found: list[Message] = []
    size_bytes = 0
    for message in messages:
        size_bytes += len(message.content.encode())
        if len(found) == count_max or (found and size_bytes > bytes_max):
            return found, True
        found.append(message)
    return found, False


# The careful way.


def _messages_after_mended(
    database: apsw.Connection, chat_id: ChatId, after: int, count_max: int
) -> list[Message]:
    # One before and one behind: neighbours say what the numbers must be.
    before = _places(database, _PLACES_THROUGH, chat_id, after, 1)
    places = _places(database, _PLACES_ABOVE, chat_id, after, count_max + 2)
    ends_chat = len(places) < count_max + 2
    messages = _mended(database, chat_id, [*before, *places], ends_chat=ends_chat, after=after)
    return [message for message in messages if message.sequence > after]


def _messages_before_mended(
    database: apsw.Connection, chat_id: ChatId, before: int, count_max: int
) -> list[Message]:
    places = _places(database, _PLACES_BELOW, chat_id, before, count_max + 1)
    places.reverse()
    behind = _places(database, _PLACES_FROM, chat_id, before, 1)
    messages = _mended(database, chat_id, [*places, *behind], ends_chat=not behind)
    messages.reverse()
    return messages


def _mended(
    database: apsw.Connection,
    chat_id: ChatId,
    places: Sequence[Place],
    *,
    ends_chat: bool,
    after: int | None = None,
) -> list[Message]:
    mended = _mend(database, chat_id, places, ends_chat=ends_chat, after=after)
    return [message for _, message in mended]


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
    return found_row(position, indexed_sequence, row or (None,) * 9)


def found_row(position: int, indexed_sequence: int | None, values: Sequence[Any]) -> FoundRow:
    """A row by the columns of `RAW`."""
    sequence, prev, message_id, sender_id, key, content, content_type, created_at, checksum = values
    return FoundRow(
        position=position,
        indexed_sequence=indexed_sequence,
        sequence=sequence,
        prev_sequence=prev,
        message_id=message_id,
        sender_id=sender_id,
        client_message_id=key,
        content=content,
        content_type=content_type,
        created_at_ms=created_at,
        checksum=checksum,
    )
