"""Documents point to things that exist: files behind links, tests behind promises."""

import ast
import re
from pathlib import Path

import pytest

from tests.tidy.repository import ROOT, relative

DOCUMENTS = [
    path
    for path in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(ROOT.glob("docs/**/*.md")))
    if path.is_file()
]
CODE_BLOCK = re.compile(r"^ *(```|~~~).*?^ *\1", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(<?([^)\s>]+)>?(?:\s+\"[^\"]*\")?\)")
HAS_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*:")
TEST_REFERENCE = re.compile(r"([\w./-]+\.py)::(\w+(?:::\w+)*)")


def broken_links(document: Path, text: str) -> list[str]:
    """Relative links of a Markdown text that lead nowhere."""
    targets = LINK.findall(CODE_BLOCK.sub("", text))
    files = [target.partition("#")[0] for target in targets if not HAS_SCHEME.match(target)]
    return [file for file in files if file and not (document.parent / file).exists()]


def missing_tests(text: str) -> list[str]:
    """References `path::test_name` (or `path::TestClass::test_name`) without such a test."""
    return [
        f"{file}::{name}"
        for file, name in TEST_REFERENCE.findall(text)
        if not (ROOT / file).is_file() or not _defines(ROOT / file, name.split("::"))
    ]


def _defines(path: Path, names: list[str]) -> bool:
    body: list[ast.stmt] = ast.parse(path.read_text(encoding="utf-8")).body
    for name in names:
        found = [
            node
            for node in body
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
            and node.name == name
        ]
        if not found:
            return False
        body = found[0].body
    return True


@pytest.mark.parametrize("document", DOCUMENTS, ids=relative)
def test_relative_links_lead_to_files(document: Path) -> None:
    broken = broken_links(document, document.read_text(encoding="utf-8"))
    assert not broken, f"{relative(document)}: no such file: {', '.join(broken)}"


@pytest.mark.parametrize("document", DOCUMENTS, ids=relative)
def test_named_tests_exist(document: Path) -> None:
    missing = missing_tests(document.read_text(encoding="utf-8"))
    assert not missing, (
        f"{relative(document)} names tests that do not exist; correct the name, or write the "
        f"test: {', '.join(missing)}"
    )


def test_broken_links_finds_a_missing_file_only() -> None:
    text = "[a](tests/tidy/sizes.toml) [b](https://example.test/x) [c](#here) [d](gone.md#part)"
    fenced = "```\n[e](also-gone.md)\n```\n"
    assert broken_links(ROOT / "README.md", fenced + text) == ["gone.md"]


def test_missing_tests_finds_a_missing_test_only() -> None:
    here = "tests/tidy/test_docs_links.py"
    text = f"`{here}::test_named_tests_exist` `{here}::nowhere` `tests/no_file.py::test_x`"
    assert missing_tests(text) == [f"{here}::nowhere", "tests/no_file.py::test_x"]


def test_data_model_names_every_migration() -> None:
    migrations = (ROOT / "src/tidewire/engines/sqlite/migrations").glob("*.sql")
    text = (ROOT / "docs/data-model.md").read_text("utf-8")
    assert [path.name for path in sorted(migrations) if f"({_link_to(path)})" not in text] == []


def _link_to(path: Path) -> str:
    return f"../{relative(path)}"
