"""New columns for a table, whatever its rows hold and however many there are.

ALTER TABLE itself changes nothing but the table's definition: rows that end before a column have
NULL there. But first it reads every row of a STRICT table, for each column again, and gives up if
one breaks the table's rules: a store with millions of messages waits for minutes, and one with a
damaged row cannot be migrated at all. So the definition is changed here as ALTER TABLE does it.

The same holds for an index that gets a condition which all its present rows fulfil: SQL would drop
it and build it again from the table, with the same content as before.
"""

import re
from typing import Any, Final

import apsw

from tidewire.engines.sqlite.database import single

_ADD_COLUMN: Final = re.compile(
    r"^ALTER TABLE (\w+) ADD COLUMN (\w+ (?:TEXT|INTEGER));$", re.MULTILINE
)
_LIMIT_INDEX: Final = re.compile(
    r"^DROP INDEX (\w+);\n(CREATE UNIQUE INDEX \1 ON [^;]+ WHERE [^;]+);$", re.MULTILINE
)
_FIND: Final = "SELECT sql FROM sqlite_schema WHERE type = 'table' AND name = ?"
_REPLACE: Final = "UPDATE sqlite_schema SET sql = ? WHERE type = 'table' AND name = ?"
_REPLACE_INDEX: Final = "UPDATE sqlite_schema SET sql = ? WHERE type = 'index' AND name = ?"


def add_columns(database: apsw.Connection, sql: str) -> None:
    """Run a migration's file, inside its transaction. To add a column without a constraint, or to
    give an index a condition that all its rows fulfil, only the definition is changed."""
    added: dict[str, list[str]] = {}
    for table, column in _ADD_COLUMN.findall(sql):
        added.setdefault(table, []).append(column)
    limited: dict[str, str] = dict(_LIMIT_INDEX.findall(sql))
    if added or limited:
        _redefine(database, added, limited)
    database.execute(_LIMIT_INDEX.sub("", _ADD_COLUMN.sub("", sql))).fetchall()


def _redefine(
    database: apsw.Connection, added: dict[str, list[str]], limited: dict[str, str]
) -> None:
    version = single(database, "PRAGMA schema_version")
    database.execute("PRAGMA writable_schema = ON")
    try:
        for table, columns in added.items():
            found: Any = database.execute(_FIND, (table,)).get
            body, end, rest = found.rpartition(")")
            database.execute(_REPLACE, (", ".join((body, *columns)) + end + rest, table))
        for index, definition in limited.items():
            database.execute(_REPLACE_INDEX, (definition, index))
        database.execute(f"PRAGMA schema_version = {version + 1}")
    finally:
        # Also reads the schema again.
        database.execute("PRAGMA writable_schema = RESET")
