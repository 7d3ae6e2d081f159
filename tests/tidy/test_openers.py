"""The server's database is opened in two places only, and both look at its log first.

SQLite takes a damaged log for one with a torn end and overwrites it, so a program that opens the
file on its own could destroy what was stored for good.
"""

import ast
from pathlib import Path

import pytest

from tests.tidy.repository import ROOT, python_files, relative

LOOKS_FIRST = {
    "src/tidewire/engines/sqlite/database.py::connect",
    "src/tidewire/engines/sqlite/inspect.py::open_for_reading",
}
"""Functions that open the server's database; each has to call `look_first` before."""

OTHER_FILES = {
    "src/tidewire/engines/sqlite/copying.py::_copy_pages": "a new file, under a name of its own",
    "src/tidewire/engines/sqlite/migrate.py::_definitions": "a database in memory",
    "src/tidewire/client/schema.py": "the client's own store",
}


def openings(source: str) -> list[tuple[str, int]]:
    """Each call that opens a database: the outermost function around it, and the line."""
    tree = ast.parse(source)
    found = []
    for node in tree.body:
        name = getattr(node, "name", "")
        found += [
            (name, call.lineno)
            for call in ast.walk(node)
            if isinstance(call, ast.Call)
            and ast.unparse(call.func).rpartition(".")[2] == "Connection"
            and ast.unparse(call.func).rpartition(".")[0] in {"apsw", "sqlite3"}
        ]
        found += [
            (name, call.lineno)
            for call in ast.walk(node)
            if isinstance(call, ast.Call) and ast.unparse(call.func) == "sqlite3.connect"
        ]
    return found


@pytest.mark.parametrize(
    "path", [path for path in python_files() if relative(path).startswith("src/")], ids=relative
)
def test_database_is_opened_where_the_log_is_looked_at_first(path: Path) -> None:
    name = relative(path)
    for function, line in openings(path.read_text(encoding="utf-8")):
        place = f"{name}::{function}"
        assert place in LOOKS_FIRST | OTHER_FILES.keys() or name in OTHER_FILES, (
            f"{name}:{line} opens a database by itself; use connect or open_for_reading of "
            "engines/sqlite, which look at the log before SQLite does"
        )


@pytest.mark.parametrize("place", sorted(LOOKS_FIRST))
def test_opener_looks_before_it_opens(place: str) -> None:
    file, _, name = place.partition("::")
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    [function] = [node for node in tree.body if getattr(node, "name", "") == name]
    calls = [
        ast.unparse(call.func)
        for call in sorted(
            (node for node in ast.walk(function) if isinstance(node, ast.Call)),
            key=lambda call: (call.lineno, call.col_offset),
        )
    ]
    assert calls[0] == "look_first", f"{place} has to call look_first(path) before anything else"
    assert "apsw.Connection" in calls


def test_openings_are_found() -> None:
    assert openings("def f():\n    return g(apsw.Connection('x'))") == [("f", 2)]
    assert openings("class C:\n    def f(self):\n        sqlite3.connect('x')") == [("C", 3)]
    assert openings("def f(c: apsw.Connection) -> None:\n    Connection(c)") == []
