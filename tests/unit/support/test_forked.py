import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import forked
from tests.support.forked import Forked

TIMEOUT_S = 60
HERE = [sys.executable, "-m", "tests.support.said"]
"""A program that says what it finds."""


def test_fork_has_its_own_arguments_environment_and_input() -> None:
    command = ["env", "--unset=HIDDEN", "COLOUR=blue", *HERE, "say", "one", "two"]
    given = {"HIDDEN": "x", "OTHER": "y"}
    done = forked.run(command, text="typed", timeout=TIMEOUT_S, env=given)
    assert done.returncode == 0
    assert done.stdout == "one two|blue|None|y|typed|__main__\n"
    assert done.stderr == ""


def test_fork_says_the_same_as_a_process_that_was_executed(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tidewire", "verify", str(tmp_path / "nothing")]
    plain = subprocess.run(command, capture_output=True, text=True, check=False, timeout=TIMEOUT_S)
    done = forked.run(command, timeout=TIMEOUT_S)
    assert (done.returncode, done.stdout, done.stderr) == (
        plain.returncode,
        plain.stdout,
        plain.stderr,
    )
    assert done.returncode != 0


def test_fork_ends_with_its_exit_code() -> None:
    assert forked.run([*HERE, "exit", "7"], timeout=TIMEOUT_S).returncode == 7


def test_fork_that_fails_says_where() -> None:
    done = forked.run([*HERE, "raise"], timeout=TIMEOUT_S)
    assert done.returncode == 1
    assert "Traceback" in done.stderr


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_fork_is_a_process_that_can_be_killed(number: signal.Signals) -> None:
    with Forked([*HERE, "wait"], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert int(process.stdout.readline()) == process.pid
        assert process.poll() is None
        process.send_signal(number)
        assert process.wait(TIMEOUT_S) == -number
    assert not Path(f"/proc/{process.pid}").exists()


def test_fork_is_interrupted_as_a_program_is() -> None:
    with Forked([*HERE, "wait"], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=TIMEOUT_S)
    assert b"KeyboardInterrupt" in err
    assert process.returncode == -signal.SIGINT


def test_fork_holds_no_file_of_anybody_else() -> None:
    with Forked([*HERE, "wait"], stdout=subprocess.PIPE, text=True) as other:
        done = forked.run([*HERE, "files"], timeout=TIMEOUT_S)
        other.kill()
    assert done.stdout == "0|1|2\n"


def test_fork_that_takes_too_long_is_killed() -> None:
    with pytest.raises(subprocess.TimeoutExpired):
        forked.run([*HERE, "wait"], timeout=0.2)
