"""Many rows in few steps: every row once, whatever their number."""

import apsw
import pytest

from tidewire.engines.sqlite.database import ROWS, execute_rows, for_rows

INSERT = for_rows("INSERT OR FAIL INTO things (name, number) VALUES {rows}", columns=2)


@pytest.fixture
def database() -> apsw.Connection:
    database = apsw.Connection(":memory:")
    database.execute("CREATE TABLE things (name TEXT PRIMARY KEY, number INTEGER) STRICT")
    return database


@pytest.mark.parametrize("count", [0, 1, 3, 4, 5, 15, 16, 17, 63, 64, 65, 148, 200])
def test_every_row_goes_in_once_and_in_order(database: apsw.Connection, count: int) -> None:
    rows = [(f"thing {number}", number) for number in range(count)]
    execute_rows(database, INSERT, rows)
    assert database.execute("SELECT name, number FROM things ORDER BY rowid").fetchall() == rows


def test_steps_are_few(database: apsw.Connection) -> None:
    statements: list[str] = []

    def trace(_cursor: apsw.Cursor, sql: str, _values: object) -> bool:
        statements.append(sql)
        return True

    database.set_exec_trace(trace)
    execute_rows(database, INSERT, [(str(number), number) for number in range(64 + 16 + 4 + 1)])
    assert statements == [INSERT[count] for count in ROWS]


def test_a_row_that_fails_raises(database: apsw.Connection) -> None:
    with pytest.raises(apsw.ConstraintError):
        execute_rows(database, INSERT, [("one", 1)] * 4)
