"""Many rows in few steps.

Every step of SQLite lets go of the interpreter's lock, and the thread that made it has to win the
lock back from the event loop: under load that costs more than the row. So a statement takes up to
64 rows at once, and is prepared for a few sizes only.
"""

from collections.abc import Sequence
from itertools import chain
from typing import Final

import apsw

ROWS: Final = (64, 16, 4, 1)

Statements = dict[int, str]
"""The same statement by how many rows it takes."""


def for_rows(statement: str, *, columns: int) -> Statements:
    """A statement with `{rows}` where its VALUES belong.

    Make it OR FAIL: whoever calls undoes everything if a row fails, and SQLite is spared the copy
    of every page that it would need to undo one statement alone.
    """
    row = f"({', '.join('?' * columns)})"
    return {count: statement.format(rows=", ".join([row] * count)) for count in ROWS}


def execute_rows(
    database: apsw.Connection, statements: Statements, rows: Sequence[tuple[str | int, ...]]
) -> None:
    start = 0
    for count, statement in statements.items():
        while len(rows) - start >= count:
            some = rows[start : start + count]
            database.execute(statement, tuple(chain.from_iterable(some)))
            start += count
