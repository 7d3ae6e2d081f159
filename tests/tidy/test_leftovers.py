"""Nothing is left behind: no open ends without an issue, no trace of somebody's machine.

The patterns are written so that they do not match themselves.
"""

import re

import pytest

from tests.tidy.repository import relative, tracked_files

OPEN_END = re.compile(r"\b(TOD[O]|FIXM[E]|XX[X])\b(?!\(#\d+\))")
EVERYWHERE = {
    "a mark of a merge that was not finished": re.compile(r"^(<{7}|={7}|>{7})( |$)"),
    "a path of one machine; write it relative to the repository": re.compile(
        r"(?<![\w.~$}/-])/(work|root|home/[a-z]\w*|Users/[A-Za-z]\w*)(?![\w-])"
    ),
    "a package host; the installer's own settings say where packages come from": re.compile(
        r"py[p]i\.org|python[h]osted|np[m]js\.|regis[t]ry\.yarnpkg|/sim[p]le/"
    ),
}


def leftovers(name: str, text: str) -> list[str]:
    """Faults of one file, each as `name:line: what, remedy`."""
    found = []
    is_code = name.startswith(("src/", "tests/"))
    for number, line in enumerate(text.splitlines(), start=1):
        if is_code and (match := OPEN_END.search(line)):
            found.append(f"{name}:{number}: open end; do it, or write {match[1]}(#issue)")
        for fault, pattern in EVERYWHERE.items():
            if pattern.search(line):
                found.append(f"{name}:{number}: {fault}")
    return found


def test_no_leftovers() -> None:
    found = []
    for path in tracked_files():
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue  # Not text: nothing to read in it.
        found += leftovers(relative(path), text)
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    "line",
    [
        "# TO" + "DO: later",
        "# FIX" + "ME",
        "<<<<" + "<<< HEAD",
        "cd /wo" + "rk/main",
        "see /ro" + "ot/.config",
        "'/ho" + "me/anna/tidewire'",
        "index = https://py" + "pi.org",
    ],
)
def test_leftovers_finds_each_kind(line: str) -> None:
    assert len(leftovers("src/tidewire/x.py", line)) == 1


@pytest.mark.parametrize(
    "line",
    ["# TO" + "DO(#12): later", "src/tidewire/root/work.py", "GET /homepage", "~/home", "/workers"],
)
def test_leftovers_passes_what_is_allowed(line: str) -> None:
    assert leftovers("src/tidewire/x.py", line) == []
