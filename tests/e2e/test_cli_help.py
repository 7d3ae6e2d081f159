"""The command line explains itself. Slow where the program has to be started."""

import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.e2e.commands import COLUMNS, tidewire
from tidewire import __version__
from tidewire.runtime.cli import app

COMMANDS = [
    (),
    ("serve",),
    ("chat",),
    ("send",),
    ("tail",),
    ("config",),
    ("say",),
    ("users",),
    ("users", "add"),
    ("users", "list"),
    ("users", "passwd"),
    ("users", "disable"),
    ("users", "enable"),
    ("users", "invite"),
    ("tokens",),
    ("tokens", "issue"),
    ("verify",),
    ("recover-counter",),
    ("backup",),
    ("restore",),
    ("bench",),
    ("bench", "ingest"),
]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_help_fits_the_terminal_and_is_not_cut(command: tuple[str, ...]) -> None:
    done = CliRunner(env={"COLUMNS": str(COLUMNS)}).invoke(
        app, [*command, "--help"], prog_name="tidewire"
    )
    assert done.exit_code == 0
    assert done.stdout.startswith(f"Usage: tidewire {' '.join(command)}".rstrip())
    assert max(map(len, done.stdout.splitlines())) <= COLUMNS
    assert "..." not in done.stdout.replace("[ARGS]...", "")


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("nonsense",), "No such command 'nonsense'"),
        (("verify",), "Missing argument 'DATA_DIR'"),
        (("verify", "--nonsense", "x"), "No such option: --nonsense"),
        (("recover-counter", "x"), "Missing argument 'CHAT_ID'"),
        (("serve", "--set", "server.port"), "'server.port' is not NAME=VALUE"),
        (("serve", "--port", "http"), "Invalid value for '--port'"),
        (("bench", "ingest", "--seconds", "soon"), "Invalid value for '--seconds'"),
    ],
)
def test_wrong_usage_is_told(arguments: tuple[str, ...], complaint: str) -> None:
    done = CliRunner().invoke(app, arguments, prog_name="tidewire")
    assert (done.exit_code, done.stdout) == (2, "")
    assert complaint in done.stderr


@pytest.mark.slow
def test_every_command_is_listed() -> None:
    done = tidewire("--help")
    assert (done.exit_code, done.err) == (0, "")
    for (name,) in (command for command in COMMANDS if len(command) == 1):
        assert f"\n  {name} " in done.out


@pytest.mark.slow
def test_installed_command_is_the_same_program() -> None:
    command = Path(sys.executable).with_name("tidewire")
    done = subprocess.run([command, "--version"], capture_output=True, text=True, check=True)
    assert done.stdout == f"tidewire {__version__}\n"


@pytest.mark.slow
def test_help_imports_nothing_heavy() -> None:
    """Neither the database nor the table printer is needed to say what the program can do."""
    program = (
        "import sys; from typer.testing import CliRunner; from tidewire.runtime.cli import app;"
        "assert CliRunner().invoke(app, ['--help']).exit_code == 0;"
        "print([heavy for heavy in ('apsw', 'rich.table', 'asyncio') if heavy in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"
