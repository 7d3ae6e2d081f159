"""The migration that gives every stored message its checksum.

A row that is broken already gets none, which marks it as damaged: its old content is not known. If
a page cannot be read, only its rows stay without a checksum; the migration goes on.
"""

from contextlib import closing
from pathlib import Path
from typing import Any, Final

import apsw

from tidewire.domain.damage import FoundRow, row_checksum
from tidewire.domain.ids import ChatId
from tidewire.engines.sqlite.columns import add_columns
from tidewire.engines.sqlite.database import SqliteOptions, connect_reader, single
from tidewire.engines.sqlite.errors import DAMAGED
from tidewire.engines.sqlite.stored import raw

Range = tuple[int, int]
"""The positions above the first number, up to the second."""

_CHUNK_ROWS: Final = 10_000

# The fields of messages when checksums were added; a file of that age has no other columns.
_FIELDS: Final = (
    "sequence",
    "prev_sequence",
    "message_id",
    "sender_id",
    "client_message_id",
    "content",
    "content_type",
    "created_at_ms",
)
_FILL: Final = f"""
UPDATE messages SET checksum = tidewire_checksum(CAST(chat_id AS BLOB), {raw(_FIELDS)})
WHERE position > ? AND position <= ?
"""  # noqa: S608 - constants

# Reads every byte of every row.
_READ: Final = """
SELECT sum(length(CAST(content AS BLOB))), sum(length(CAST(created_at AS BLOB))) FROM messages
WHERE position > ? AND position <= ?
"""


def add_checksums(database: apsw.Connection, sql: str) -> None:
    """Inside the transaction of the migrations: add the column, then fill it."""
    readable = _readable(database) if _whole(database) else []
    add_columns(database, sql)
    fill_checksums(database, readable)


def fill_checksums(database: apsw.Connection, ranges: list[Range] | None = None) -> None:
    """Give every row, or every row in `ranges`, the checksum of its present content."""
    database.create_scalar_function("tidewire_checksum", _checksum, 10, deterministic=True)
    try:
        for begin, end in _whole(database) if ranges is None else ranges:
            _fill(database, begin, end)
    finally:
        database.create_scalar_function("tidewire_checksum", None, 10)


def _whole(database: apsw.Connection) -> list[Range]:
    """All positions, in pieces."""
    last = single(database, "SELECT coalesce(max(position), 0) FROM messages")
    return [(begin, min(begin + _CHUNK_ROWS, last)) for begin in range(0, last, _CHUNK_ROWS)]


def _readable(database: apsw.Connection) -> list[Range]:
    """All positions, in pieces, without the rows that cannot be read.

    Uses a connection of its own: a transaction that has met damage cannot write any more.
    """
    with closing(connect_reader(Path(database.filename), SqliteOptions())) as reader:
        return [found for piece in _whole(reader) for found in _probe(reader, *piece)]


def _probe(database: apsw.Connection, begin: int, end: int) -> list[Range]:
    try:
        database.execute(_READ, (begin, end)).fetchall()
    except DAMAGED:
        if end - begin == 1:
            return []
        middle = (begin + end) // 2
        return _probe(database, begin, middle) + _probe(database, middle, end)
    return [(begin, end)]


def _fill(database: apsw.Connection, begin: int, end: int) -> None:
    """Fill a range of positions; if a row breaks the table's constraints, each of its halves."""
    try:
        database.execute(_FILL, (begin, end))
    except apsw.ConstraintError:
        if end - begin > 1:
            middle = (begin + end) // 2
            _fill(database, begin, middle)
            _fill(database, middle, end)


def _checksum(*values: Any) -> int | None:
    chat_id, *row = values
    try:
        return row_checksum(ChatId(chat_id.decode()), FoundRow(0, None, *row))
    except (AttributeError, UnicodeDecodeError):
        return None
