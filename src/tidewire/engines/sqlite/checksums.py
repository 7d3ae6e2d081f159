"""The migration that gives every stored message its checksum.

A row that is broken already gets none, which marks it as damaged: nobody can say what it was. A
page that cannot be read costs its own rows their checksums, not the migration.
"""

from pathlib import Path
from typing import Any, Final

import apsw

from tidewire.domain.damage import row_checksum
from tidewire.domain.ids import ChatId
from tidewire.engines.sqlite.database import SqliteOptions, connect_reader, single
from tidewire.engines.sqlite.errors import DAMAGED
from tidewire.engines.sqlite.stored import RAW, found_row

Range = tuple[int, int]
"""The positions above the first number, up to the second."""

_CHUNK_ROWS: Final = 10_000

_FILL: Final = f"""
UPDATE messages SET checksum = tidewire_checksum(CAST(chat_id AS BLOB), {RAW})
WHERE position > ? AND position <= ?
"""  # noqa: S608 - constants

# Every byte of every row.
_READ: Final = """
SELECT sum(length(CAST(content AS BLOB))), sum(length(CAST(created_at AS BLOB))) FROM messages
WHERE position > ? AND position <= ?
"""

# What ALTER TABLE itself writes. It would first look for rows that break the table's rules, and
# give up if there is one.
_ADD_COLUMN: Final = """
UPDATE sqlite_schema SET sql = substr(sql, 1, {end}) || ', checksum INTEGER' || substr(sql, {rest})
WHERE type = 'table' AND name = 'messages'
"""


def add_checksums(database: apsw.Connection, sql: str) -> None:
    """Inside the transaction of the migrations: add the column, then fill it."""
    whole = _whole(database)
    readable = _readable(database) if whole else []
    try:
        if readable == whole:
            database.execute(sql).fetchall()
        else:
            _add_column(database)
    except (apsw.SQLError, apsw.ConstraintError):
        _add_column(database)
    fill_checksums(database, readable)


def fill_checksums(database: apsw.Connection, ranges: list[Range] | None = None) -> None:
    """Give every row the checksum of what it holds now, or those in these ranges."""
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
    """The same without the rows that cannot be read.

    On a connection of its own: a transaction that meets damage can write nothing any more.
    """
    reader = connect_reader(Path(database.filename), SqliteOptions())
    try:
        return [found for piece in _whole(reader) for found in _probe(reader, *piece)]
    finally:
        reader.close()


def _probe(database: apsw.Connection, begin: int, end: int) -> list[Range]:
    try:
        database.execute(_READ, (begin, end)).fetchall()
    except DAMAGED:
        if end - begin == 1:
            return []
        middle = (begin + end) // 2
        return _probe(database, begin, middle) + _probe(database, middle, end)
    return [(begin, end)]


def _add_column(database: apsw.Connection) -> None:
    """Change the table's definition alone, as ALTER TABLE does, but whatever its rows hold."""
    found = single(database, "SELECT sql FROM sqlite_schema WHERE name = 'messages'")
    end = found.rindex(")")
    version = single(database, "PRAGMA schema_version")
    database.execute("PRAGMA writable_schema = ON")
    try:
        database.execute(_ADD_COLUMN.format(end=end, rest=end + 1))
        database.execute(f"PRAGMA schema_version = {version + 1}")
    finally:
        # Also reads the schema again.
        database.execute("PRAGMA writable_schema = RESET")


def _fill(database: apsw.Connection, begin: int, end: int) -> None:
    """The rows of a range of positions; where a row breaks the table's rules, the halves of it."""
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
        return row_checksum(ChatId(chat_id.decode()), found_row(0, None, row))
    except (AttributeError, UnicodeDecodeError):
        return None
