"""PURE modules compute and do nothing else: no I/O, no clock, no randomness, no waiting.

Time comes in as an argument and effects go out as values; that is what lets a simulator run them.
"""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.tidy.repository import ROOT, pure_modules, pure_patterns, relative

# What to do instead of importing the module.
FORBIDDEN_IMPORTS = {
    "asyncio": "leave waiting to the shell around the module",
    "concurrent": "leave threads to the shell around the module",
    "logging": "return a value, the shell logs it",
    "multiprocessing": "leave processes to the shell around the module",
    "os": "take what you need as an argument",
    "pathlib": "leave files to the shell around the module",
    "random": "take a random.Random; import random under TYPE_CHECKING only",
    "secrets": "take an IdSource",
    "select": "leave waiting to the shell around the module",
    "selectors": "leave waiting to the shell around the module",
    "shutil": "leave files to the shell around the module",
    "signal": "leave signals to the shell around the module",
    "socket": "return an effect, the shell sends it",
    "sqlite3": "take a port",
    "ssl": "return an effect, the shell sends it",
    "subprocess": "leave processes to the shell around the module",
    "sys": "take what you need as an argument",
    "tempfile": "leave files to the shell around the module",
    "threading": "leave threads to the shell around the module",
    "time": "take now_ms as an argument",
    "uuid": "take an IdSource",
}
ALLOWED_FOR_TYPING = {"random"}
ALLOWED_VENDORS = {"msgspec", "tests", "tidewire", "tidewire_bench"}
FORBIDDEN_CALLS = {
    "id": "an address differs from run to run",
    "input": "take an argument",
    "open": "leave files to the shell around the module",
    "print": "return a value",
}
CLOCK_METHODS = {"now", "utcnow", "today"}
ASYNC_NODES = (ast.AsyncFunctionDef, ast.AsyncFor, ast.AsyncWith, ast.Await)


def impurities(source: str) -> list[str]:
    """What keeps the module from being PURE, each fault as `line: what, remedy`."""
    tree = ast.parse(source)
    typing_only = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING")
        for statement in node.body
        for inner in ast.walk(statement)
    }
    return [
        f"{getattr(node, 'lineno', '?')}: {fault}"
        for node in ast.walk(tree)
        for fault in _faults_of(node, is_typing_only=id(node) in typing_only)
    ]


def _faults_of(node: ast.AST, *, is_typing_only: bool) -> Iterator[str]:
    if isinstance(node, ASYNC_NODES) or (isinstance(node, ast.comprehension) and node.is_async):
        yield "async code; return an effect, the shell awaits it"
    for name in _imported_roots(node):
        if name in FORBIDDEN_IMPORTS:
            if not (is_typing_only and name in ALLOWED_FOR_TYPING):
                yield f"imports {name}; {FORBIDDEN_IMPORTS[name]}"
        elif name not in sys.stdlib_module_names | ALLOWED_VENDORS:
            yield f"imports {name}; only the standard library and msgspec are allowed"
    if isinstance(node, ast.Call):
        called = ast.unparse(node.func)
        owner, _, method = called.rpartition(".")
        if called in FORBIDDEN_CALLS:
            yield f"calls {called}(); {FORBIDDEN_CALLS[called]}"
        if method in CLOCK_METHODS and owner.rpartition(".")[2] in {"datetime", "date"}:
            yield f"calls {called}(); take now_ms as an argument"


def _imported_roots(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name.partition(".")[0] for alias in node.names]
    if isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
        return [node.module.partition(".")[0]]
    return []


@pytest.mark.parametrize("pattern", pure_patterns())
def test_pure_list_names_only_what_exists(pattern: str) -> None:
    assert list(ROOT.glob(pattern)), (
        f"pyproject.toml lists {pattern} as PURE ([tool.coverage.report] include), but no such "
        "file exists: write it, or take the line out"
    )


@pytest.mark.parametrize("path", pure_modules(), ids=relative)
def test_pure_module_is_pure(path: Path) -> None:
    faults = impurities(path.read_text(encoding="utf-8"))
    assert not faults, "\n".join(f"{relative(path)}:{fault}" for fault in faults)


@pytest.mark.parametrize(
    "source",
    [
        "async def f(): ...",
        "def f():\n    return [x async for x in y]",
        "import asyncio",
        "import time as t",
        "from time import monotonic",
        "import os.path",
        "def f():\n    import socket",
        "import random",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import asyncio",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    pass\nelse:\n    import random",
        "import apsw",
        "import datetime\nAT = datetime.datetime.now(datetime.UTC)",
        "from datetime import date\nON = date.today()",
        "open('x')",
        "print('x')",
    ],
)
def test_impurities_finds_each_kind(source: str) -> None:
    assert impurities(source)


@pytest.mark.parametrize(
    "source",
    [
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import random",
        "import datetime\nAT = datetime.datetime.fromtimestamp(0, datetime.UTC).isoformat()",
        "import enum\nimport msgspec\nfrom tidewire.domain import ids",
        "def f(now_ms: int) -> int:\n    return now_ms + 1",
    ],
)
def test_impurities_passes_what_is_allowed(source: str) -> None:
    assert impurities(source) == []
