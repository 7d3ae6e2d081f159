"""Every code of the specification that is named in the repository has a line that explains it.

The codes of problems and documents stand in docs/specification.md, the duties of a client in
docs/conformance.md. The specification itself is no part of the repository, so nothing names its
pages in any other way.
"""

import re

from tests.tidy.repository import ROOT, relative, tracked_files

CODE = re.compile(r"\b(?:ADR-\d{3}|(?:P|D|M|K|R|S|A|N|O|T|H|CL|MS|MR|AK|RS|EH|TW)-\d{2})\b")
RANGE = re.compile(r"\b([A-Z])-(\d{2}) to \1-(\d{2})\b")
ANCHOR = re.compile(r'<a id="([a-z0-9-]+)"></a>([A-Z]+-\d+)')
DUTY = re.compile(r"^\| ([A-Z]{2}-\d{2}) \|", re.MULTILINE)
OTHER_NAMES = re.compile(r"\b(?:contract-facts|DESIGN)\b")
SUFFIXES = {".md", ".py", ".sql", ".toml"}


def explained() -> set[str]:
    text = (ROOT / "docs/specification.md").read_text(encoding="utf-8")
    anchors = ANCHOR.findall(text)
    assert [code.lower() for _, code in anchors] == [anchor for anchor, _ in anchors]
    duties = DUTY.findall((ROOT / "docs/conformance.md").read_text(encoding="utf-8"))
    return {code for _, code in anchors} | set(duties)


def named(text: str) -> set[str]:
    ranges = {
        f"{letter}-{number:02}"
        for letter, first, last in RANGE.findall(text)
        for number in range(int(first), int(last) + 1)
    }
    return set(CODE.findall(text)) | ranges


def test_every_code_is_explained() -> None:
    known = explained()
    missing = {
        (relative(path), code)
        for path in tracked_files()
        if path.suffix in SUFFIXES and path.name != "test_docs_specification.py"
        for code in named(path.read_text(encoding="utf-8")) - known
        # The page itself says how far the records go.
        if (relative(path), code) != ("docs/specification.md", "ADR-017")
    }
    assert not missing, sorted(missing)


def test_nothing_names_a_page_that_is_not_here() -> None:
    named_elsewhere = [
        relative(path)
        for path in tracked_files()
        if path.suffix in SUFFIXES
        and path.name != "test_docs_specification.py"
        and OTHER_NAMES.search(path.read_text(encoding="utf-8"))
    ]
    assert not named_elsewhere, named_elsewhere


def test_named_finds_codes_and_ranges() -> None:
    assert named("P-02, D-01 to D-03, ADR-004 and UTF-8") == {
        "P-02",
        "D-01",
        "D-02",
        "D-03",
        "ADR-004",
    }
