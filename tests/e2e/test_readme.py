"""The commands of the README and of the tour work as printed: each is run, and has to show this.

A `console` block is a list of commands (`$ ...`, going on in lines that are indented) with lines of
their output, in which `...` stands for anything. One shell runs them all, in order, in a directory
that looks like a clone and beside a server whose data is in `./data`, as the README has it.
"""

import os
import re
import shutil
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.e2e import curl
from tests.e2e.commands import TIMEOUT_S
from tests.e2e.ptys import Terminal, on_a_terminal
from tests.e2e.serving import serving
from tests.tidy.repository import ROOT

BLOCK = re.compile(r"^```console\n(.*?)^```", re.MULTILINE | re.DOTALL)
LISTING = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
ADDRESS = "127.0.0.1:8080"


def readme() -> str:
    """The README, and the tour that goes on where it ends."""
    return "\n".join(
        (ROOT / name).read_text(encoding="utf-8") for name in ("README.md", "docs/tour.md")
    )


def commands(text: str) -> list[tuple[str, list[str]]]:
    """Each command of the console blocks with the lines that it has to print, in order."""
    found: list[tuple[str, list[str]]] = []
    for block in BLOCK.findall(text):
        for line in block.splitlines():
            if line.startswith("$ "):
                found.append((line.removeprefix("$ "), []))
            elif line.startswith("    "):
                command, expected = found[-1]
                found[-1] = f"{command}\n{line}", expected
            elif line.strip():
                found[-1][1].append(line.strip())
    return found


def missing(expected: list[str], printed: str) -> list[str]:
    """The expected lines that do not come in this order."""
    lines = iter([line.strip() for line in printed.splitlines()])
    return [wanted for wanted in expected if not any(_is_like(wanted, line) for line in lines)]


def _is_like(wanted: str, line: str) -> bool:
    return re.fullmatch(".*".join(map(re.escape, wanted.split("..."))), line) is not None


def clone(directory: Path) -> Path:
    """A directory in which the README's paths lead to this environment and these documents."""
    (directory / ".venv").symlink_to(Path(sys.executable).parent.parent)
    (directory / "docs").symlink_to(ROOT / "docs")
    (directory / "examples").symlink_to(ROOT / "examples")
    programs = directory / "programs"
    programs.mkdir()
    if shutil.which("curl") is None:
        curl.install(programs)
    return directory


def run(listed: list[str], directory: Path, url: str = f"http://{ADDRESS}") -> list[str]:
    """Run commands in one shell; what each of them printed. `url` takes the place of the default
    of the commands that have one."""
    mark = "-- the end of a command --"
    script = "\n".join(
        [
            "set -eu",
            "PATH=$PWD/programs:$PATH",
            *(f"{command}\necho; echo '{mark}'" for command in listed),
        ]
    )
    done = subprocess.run(
        ["/bin/sh", "-c", script],
        cwd=directory,
        env={**os.environ, "XDG_DATA_HOME": str(directory / "home"), "TIDEWIRE_URL": url},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    printed = done.stdout.split(mark)
    failed = listed[min(len(printed), len(listed)) - 1]
    assert done.returncode == 0, f"$ {failed}\nended with {done.returncode}: {done.stderr}"
    return printed[:-1]


# A real server and real programs, one after the other.
@pytest.mark.slow
@pytest.mark.timeout(240)
def test_readme_commands_work_as_printed(tmp_path: Path) -> None:
    listed = commands(readme())
    assert listed
    with serving(clone(tmp_path) / "data") as server:
        address = server.url.removeprefix("http://")
        wanted = [command.replace(ADDRESS, address) for command, _ in listed]
        printed = run(wanted, tmp_path, server.url)
    for (command, expected), lines in zip(listed, printed, strict=True):
        assert not missing(expected, lines), f"$ {command}\n{lines}"


def test_readme_shows_the_example_that_it_runs() -> None:
    (listing,) = LISTING.findall(readme())
    example = (ROOT / "docs/examples/live_message.py").read_text(encoding="utf-8")
    assert listing in example


# The conversation between two terminals: a table of who presses what, and what is seen then.

CHAT = re.compile(r"^```\n(\S+/tidewire chat --user (\w+))\n```", re.MULTILINE)
STEP = re.compile(r"^\| (\w+)'s \| (.*?) ?\| (.*?) ?\|$", re.MULTILINE)
CODE = re.compile(r"`([^`]+)`")
PASSWORD = "correct horse"


# A real server, and two real terminals.
@pytest.mark.slow
@pytest.mark.timeout(240)
def test_readme_conversation_between_two_terminals_goes_as_written(tmp_path: Path) -> None:
    text = readme()
    before = [command for command, _ in commands(text[: CHAT.search(text).start()])]  # type: ignore[union-attr]
    steps = STEP.findall(text)
    assert len(steps) >= 4
    with serving(clone(tmp_path) / "data") as server, ExitStack() as stack:
        run(before, tmp_path)
        terminals: dict[str, Terminal] = {}
        for command, user in CHAT.findall(text):
            command = f"{command} --url {server.url}"
            at = terminals[user] = stack.enter_context(on_a_terminal(command, tmp_path))
            at.see(f"Password for {user}: ")
            at.press(PASSWORD)
            at.press("Enter")
            at.see("connected")
            at.see("Hello Bob")
        for who, keys, seen in steps:
            at = terminals[who.lower()]
            for key in CODE.findall(keys):
                at.press(key)
            for expected in CODE.findall(seen):
                at.see(expected)
        for at in terminals.values():
            assert at.process.wait(TIMEOUT_S) == 0


# Two runs of a real program.
@pytest.mark.slow
def test_example_goes_on_where_it_was_when_run_again(tmp_path: Path) -> None:
    command = ".venv/bin/python docs/examples/first_message.py demo"
    first, second = run([command, command], clone(tmp_path))
    assert "stored as number 1, seen before: False" in first
    assert "stored as number 2, seen before: False" in second


def test_missing_finds_what_does_not_come_in_order() -> None:
    printed = "one\n  two 7 s\nthree\n"
    assert missing(["one", "two ...", "three"], printed) == []
    assert missing(["two ...", "one"], printed) == ["one"]
    assert missing(["four"], printed) == ["four"]
    assert missing(['{"a":...,"b":2}'], '{"a":1,"b":2}') == []
    assert missing(['{"a":...,"b":2}'], '{"a":1,"b":3}') == ['{"a":...,"b":2}']


def test_commands_go_on_in_indented_lines() -> None:
    text = "```console\n$ echo \\\n    one\none\n```\n"
    assert commands(text) == [("echo \\\n    one", ["one"])]
