"""New columns for a table, whatever its rows hold and however many there are.

ALTER TABLE itself changes nothing but the table's definition: rows that end before a column have
NULL there. But first it reads every row of a STRICT table, for each column again, and gives up if
one breaks the table's rules: a store with millions of messages waits for minutes, and one with a
damaged row cannot be migrated at all. So the definition is changed here as ALTER TABLE does it.
"""

import re
from typing import Any, Final

import apsw

from tidewire.engines.sqlite.database import single

_ADD_COLUMN: Final = re.compile(
    r"^ALTER TABLE (\w+) ADD COLUMN (\w+ (?:TEXT|INTEGER));$", re.MULTILINE
)
_FIND: Final = "SELECT sql FROM sqlite_schema WHERE type = 'table' AND name = ?"
_REPLACE: Final = "UPDATE sqlite_schema SET sql = ? WHERE type = 'table' AND name = ?"


def add_columns(database: apsw.Connection, sql: str) -> None:
    """Run a migration's file, inside its transaction; what adds a column without a rule of its own
    changes the table's definition alone."""
    added: dict[str, list[str]] = {}
    for table, column in _ADD_COLUMN.findall(sql):
        added.setdefault(table, []).append(column)
    if added:
        _redefine(database, added)
    database.execute(_ADD_COLUMN.sub("", sql)).fetchall()


def _redefine(database: apsw.Connection, added: dict[str, list[str]]) -> None:
    version = single(database, "PRAGMA schema_version")
    database.execute("PRAGMA writable_schema = ON")
    try:
        for table, columns in added.items():
            found: Any = database.execute(_FIND, (table,)).get
            body, end, rest = found.rpartition(")")
            database.execute(_REPLACE, (", ".join((body, *columns)) + end + rest, table))
        database.execute(f"PRAGMA schema_version = {version + 1}")
    finally:
        # Also reads the schema again.
        database.execute("PRAGMA writable_schema = RESET")
