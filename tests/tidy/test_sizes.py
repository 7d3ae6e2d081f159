"""Files and functions stay short enough to be read in one go.

Exceptions stand in sizes.toml with a reason. That list may only shrink: an exception that is no
longer needed fails, and so does one that has grown.
"""

import ast
import tomllib
from collections.abc import Iterator

from tests.tidy.repository import ROOT, python_files, relative

FILE_LINES_MAX = 600
FUNCTION_LINES_MAX = 70


def sizes(name: str, source: str) -> Iterator[tuple[str, int, int]]:
    """Name, lines and limit of a file and of every function in it."""
    yield name, len(source.splitlines()), FILE_LINES_MAX
    for qualified_name, lines in _functions(ast.parse(source), ""):
        yield f"{name}::{qualified_name}", lines, FUNCTION_LINES_MAX


def _functions(node: ast.AST, prefix: str) -> Iterator[tuple[str, int]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            yield prefix + child.name, _body_lines(child)
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield from _functions(child, f"{prefix}{child.name}.")
        else:
            yield from _functions(child, prefix)


def _body_lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines of the body. A docstring is free: in a port it is the contract."""
    has_docstring = ast.get_docstring(function, clean=False) is not None
    body = function.body[1:] if has_docstring else function.body
    if not body:
        return 0
    return (body[-1].end_lineno or body[-1].lineno) - body[0].lineno + 1


def faults(measured: list[tuple[str, int, int]], exceptions: dict[str, int]) -> list[str]:
    """What is too long without leave, and which leaves are no longer needed."""
    found = []
    for name, lines, limit in measured:
        granted = exceptions.get(name, limit)
        if lines > granted:
            found.append(f"{name}: {lines} lines, at most {granted}; split it by what it is about")
        elif name in exceptions and lines <= limit:
            found.append(f"{name}: {lines} lines, fits now; take it out of sizes.toml")
    gone = exceptions.keys() - {name for name, _, _ in measured}
    found += [f"{name}: does not exist; take it out of sizes.toml" for name in sorted(gone)]
    return found


def test_files_and_functions_are_within_their_limits() -> None:
    listed = tomllib.loads((ROOT / "tests/tidy/sizes.toml").read_text(encoding="utf-8"))
    exceptions = listed.get("exception", [])
    assert all(exception["reason"].strip() for exception in exceptions), "each needs a reason"
    measured = [
        size
        for path in python_files()
        for size in sizes(relative(path), path.read_text(encoding="utf-8"))
    ]
    found = faults(measured, {exception["name"]: exception["lines"] for exception in exceptions})
    assert not found, "\n".join(found)


def test_sizes_counts_bodies_without_docstrings() -> None:
    docstring = '"""One.\n\n        Two."""'
    source = f"class A:\n    def f(self):\n        {docstring}\n        x = 1\n        return x\n"
    assert list(sizes("a.py", source)) == [
        ("a.py", 7, FILE_LINES_MAX),
        ("a.py::A.f", 2, FUNCTION_LINES_MAX),
    ]


def test_faults_names_what_is_too_long_and_what_is_listed_in_vain() -> None:
    long_file = ("long.py", FILE_LINES_MAX + 1, FILE_LINES_MAX)
    short_file = ("short.py", 10, FILE_LINES_MAX)
    assert faults([long_file], {}) != []
    assert faults([long_file], {"long.py": FILE_LINES_MAX + 1}) == []
    assert faults([long_file], {"long.py": FILE_LINES_MAX}) != []
    assert faults([short_file], {}) == []
    assert faults([short_file], {"short.py": FILE_LINES_MAX + 1}) != []
    assert faults([], {"gone.py": FILE_LINES_MAX + 1}) != []
