"""The migration that gives every stored message its checksum.

A row that is broken already gets none, which marks it as damaged: nobody can say what it was. A
page that cannot be read costs its own rows their checksums, not the migration.
"""

from typing import Any, Final

import apsw

from tidewire.domain.damage import row_checksum
from tidewire.domain.ids import ChatId
from tidewire.engines.sqlite.database import single
from tidewire.engines.sqlite.errors import DAMAGED
from tidewire.engines.sqlite.stored import RAW, found_row

_CHUNK_ROWS: Final = 10_000

_FILL: Final = f"""
UPDATE messages SET checksum = tidewire_checksum(CAST(chat_id AS BLOB), {RAW})
WHERE position > ? AND position <= ?
"""  # noqa: S608 - constants

# What ALTER TABLE itself writes. It would first look for rows that break the table's rules, and
# give up if there is one.
_ADD_COLUMN: Final = """
UPDATE sqlite_schema SET sql = substr(sql, 1, {end}) || ', checksum INTEGER' || substr(sql, {rest})
WHERE type = 'table' AND name = 'messages'
"""


def add_checksums(database: apsw.Connection, sql: str) -> None:
    """Inside the transaction of the migrations: add the column, then fill it."""
    try:
        database.execute(sql).fetchall()
    except apsw.ConstraintError:
        _add_column(database)
    fill_checksums(database)


def fill_checksums(database: apsw.Connection) -> None:
    """Give every row the checksum of what it holds now."""
    database.create_scalar_function("tidewire_checksum", _checksum, 10, deterministic=True)
    try:
        last = single(database, "SELECT coalesce(max(position), 0) FROM messages")
        for begin in range(0, last, _CHUNK_ROWS):
            _fill(database, begin, min(begin + _CHUNK_ROWS, last))
    finally:
        database.create_scalar_function("tidewire_checksum", None, 10)


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
    """The rows of a range of positions; where a page cannot be read, the halves of the range."""
    try:
        database.execute(_FILL, (begin, end))
    except DAMAGED:
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
