"""The command line explains itself. Slow where the program has to be started."""

import importlib.metadata
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.e2e.commands import COLUMNS, PROGRAM, TIMEOUT_S, tidewire
from tidewire import __version__
from tidewire.runtime.cli import app

COMMANDS = [
    (),
    ("serve",),
    ("chat",),
    ("send",),
    ("edit",),
    ("delete",),
    ("react",),
    ("tail",),
    ("passwd",),
    ("config",),
    ("schema",),
    ("say",),
    ("users",),
    ("users", "add"),
    ("users", "list"),
    ("users", "show"),
    ("users", "passwd"),
    ("users", "disable"),
    ("users", "enable"),
    ("users", "sessions"),
    ("users", "delete"),
    ("users", "invite"),
    ("users", "delete"),
    ("users", "sessions"),
    ("keys",),
    ("keys", "list"),
    ("keys", "rotate"),
    ("keys", "drop"),
    ("passwd",),
    ("audit",),
    ("tokens",),
    ("tokens", "issue"),
    ("keys",),
    ("keys", "list"),
    ("keys", "rotate"),
    ("keys", "drop"),
    ("audit",),
    ("verify",),
    ("recover-counter",),
    ("recover-log",),
    ("recover-log",),
    ("backup",),
    ("restore",),
    ("compact",),
    ("bench",),
    ("bench", "ingest"),
    ("bench", "pairs"),
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
        (("nonsense",), "no such command 'nonsense'"),
        (("verify", "--nonsense", "x"), "no such option: --nonsense"),
        (("verify", "x", "--cluster"), "--cluster takes no DATA_DIR"),
        (("verify", "x", "--data-dir", "y"), "two data directories are named, x and y"),
        (("recover-counter",), "missing argument '[DATA_DIR] CHAT_ID'"),
        (("backup", "x", "y", "z"), "too many arguments: y"),
        (("serve", "--set", "server.port"), "'server.port' is not NAME=VALUE"),
        (("serve", "--port", "http"), "invalid value for '--port'"),
        (("bench", "ingest", "--seconds", "soon"), "invalid value for '--seconds'"),
    ],
)
def test_wrong_usage_is_told_like_every_other_error(
    arguments: tuple[str, ...], complaint: str
) -> None:
    done = CliRunner().invoke(app, arguments, prog_name="tidewire")
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.startswith("tidewire: error: ")
    assert complaint in done.stderr
    assert "--help" in done.stderr


def test_short_option_asks_for_help() -> None:
    runner = CliRunner(env={"COLUMNS": str(COLUMNS)})
    short = runner.invoke(app, ["users", "add", "-h"], prog_name="tidewire")
    long = runner.invoke(app, ["users", "add", "--help"], prog_name="tidewire")
    assert (short.exit_code, short.stdout) == (0, long.stdout)


def test_tool_is_listed_and_explains_itself() -> None:
    done = CliRunner().invoke(app, ["conformance", "--help"], prog_name="tidewire")
    assert done.exit_code == 0
    assert done.stdout.startswith("usage: tidewire conformance [-h]")
    assert "\n  conformance " in CliRunner().invoke(app, ["--help"]).stdout


@pytest.mark.parametrize(
    "arguments", [("bench",), ("bench", "--help"), ("bench", "pairs", "1"), ("conformance", "-h")]
)
def test_tool_that_is_not_installed_says_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...]
) -> None:
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda **_: ())
    done = CliRunner().invoke(app, arguments, prog_name="tidewire")
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr == (
        f"tidewire: error: 'tidewire {arguments[0]}' is not installed; "
        f"pip install tidewire-{arguments[0]}\n"
    )


# A shell asks the program for what may follow.
@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "completed"), [("tidewire us", "users"), ("tidewire bench catch", "catch-up")]
)
def test_completion_names_the_commands(words: str, completed: str) -> None:
    environment = {"_TIDEWIRE_COMPLETE": "complete_bash", "COMP_WORDS": words}
    environment |= {"COMP_CWORD": str(words.count(" ")), "PATH": ""}
    command = Path(sys.executable).with_name("tidewire")
    done = subprocess.run([command], capture_output=True, text=True, env=environment, check=False)
    assert done.stdout.split() == [completed], done.stderr


# While it is still being loaded, and later. A moment in which Python itself is being loaded is not
# ours: there its own traceback names none of our files.
@pytest.mark.slow
@pytest.mark.parametrize("after_s", [0.1, 0.2, 0.3, 1.5])
def test_interrupted_benchmark_shows_no_traceback(tmp_path: Path, after_s: float) -> None:
    process = subprocess.Popen(
        [*PROGRAM, "bench", "endurance", "--data-dir", tmp_path],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    time.sleep(after_s)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=TIMEOUT_S)
    assert "runtime/" not in err, err
    assert "tidewire_bench/" not in err, err
    assert out == ""
    assert process.returncode != 0
    assert not list(tmp_path.iterdir())


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
        "heavy = ('apsw', 'rich.table', 'asyncio', 'tidewire_bench', 'tidewire_conformance');"
        "print([name for name in heavy if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"
