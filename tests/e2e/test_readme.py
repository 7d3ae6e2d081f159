"""The README's commands work as printed: each is run, and what it shows must come out.

A `console` block is a list of commands (`$ ...`) with lines of their output. A line that ends in
`...` stands for every line that begins like it, so dots alone stand for anything.
"""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.tidy.repository import ROOT

BLOCK = re.compile(r"^```console\n(.*?)^```", re.MULTILINE | re.DOTALL)


def commands(text: str) -> list[tuple[str, list[str]]]:
    """Each command of the console blocks with the lines that it has to print, in order."""
    found: list[tuple[str, list[str]]] = []
    for block in BLOCK.findall(text):
        for line in block.splitlines():
            if line.startswith("$ "):
                found.append((line.removeprefix("$ "), []))
            elif line.strip():
                found[-1][1].append(line.strip())
    return found


def missing(expected: list[str], printed: str) -> list[str]:
    """The expected lines that do not come in this order."""
    lines = iter([line.strip() for line in printed.splitlines()])
    return [wanted for wanted in expected if not any(_is_like(wanted, line) for line in lines)]


def _is_like(wanted: str, line: str) -> bool:
    if wanted.endswith("..."):
        return line.startswith(wanted.removesuffix("..."))
    return line == wanted


def run(command: str, directory: Path) -> str:
    """Run a command of the README in another directory, with this environment's programs."""
    program, *arguments = command.replace("docs/", f"{ROOT}/docs/").split()
    assert program.startswith(".venv/bin/"), f"not a command that this test can run: {command}"
    path = Path(sys.executable).parent / program.removeprefix(".venv/bin/")
    done = subprocess.run(
        [path, *arguments], cwd=directory, capture_output=True, text=True, timeout=30, check=False
    )
    assert done.returncode == 0, f"{command} ended with {done.returncode}: {done.stderr}"
    return done.stdout


# Real programs, one after the other.
@pytest.mark.slow
def test_readme_commands_work_as_printed(tmp_path: Path) -> None:
    listed = commands((ROOT / "README.md").read_text(encoding="utf-8"))
    assert listed
    for command, expected in listed:
        printed = run(command, tmp_path)
        assert not missing(expected, printed), f"$ {command}\n{printed}"


# Two runs of a real program.
@pytest.mark.slow
def test_example_goes_on_where_it_was_when_run_again(tmp_path: Path) -> None:
    command = ".venv/bin/python docs/examples/first_message.py demo"
    assert "stored as number 1, seen before: False" in run(command, tmp_path)
    assert "stored as number 2, seen before: False" in run(command, tmp_path)


def test_missing_finds_what_does_not_come_in_order() -> None:
    printed = "one\n  two 7 s\nthree\n"
    assert missing(["one", "two ...", "three"], printed) == []
    assert missing(["two ...", "one"], printed) == ["one"]
    assert missing(["four"], printed) == ["four"]
