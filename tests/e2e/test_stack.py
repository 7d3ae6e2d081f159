"""`make stack` on a machine where something is missing or wrong: it says what, and what to do."""

import fcntl
import json
import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import stack
from tests.support.stack import SCRIPT


def run_stack(*arguments: str, **environment: str) -> tuple[int, str]:
    inherited = {name: value for name, value in os.environ.items() if name not in ("CI", "PATH")}
    done = subprocess.run(
        [sys.executable, str(SCRIPT), *arguments],
        env=inherited | environment,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert "Traceback" not in done.stderr
    return done.returncode, done.stderr


@pytest.mark.parametrize(
    ("part", "program", "package"),
    [
        ("dynamodb", "javac", "openjdk-17-jdk-headless"),
        ("kafka", "java", "openjdk-17-jdk-headless"),
        ("redis", "redis-server", "redis-server"),
    ],
)
def test_stack_says_what_is_missing_and_how_to_get_it(
    tmp_path: Path, part: str, program: str, package: str
) -> None:
    code, told = run_stack(
        "up", part, PATH="", STACK_DIR=str(tmp_path / "stack"), STACK_CACHE=str(tmp_path / "cache")
    )
    assert code == 1
    assert program in told
    assert f"apt-get install {'maven ' if part != 'redis' else ''}{package}" in told


def test_stack_starts_nothing_from_jars_that_were_changed(tmp_path: Path) -> None:
    fingerprint = runpy.run_path(str(SCRIPT))["_fingerprint"]("dynamodb")
    jars = tmp_path / "cache" / f"dynamodb-{fingerprint}"
    jars.mkdir(parents=True)
    (jars / "DynamoDBLocal-2.6.1.jar").write_bytes(b"something else")
    code, told = run_stack(
        "up",
        "dynamodb",
        PATH=os.environ["PATH"],
        STACK_DIR=str(tmp_path / "stack"),
        STACK_CACHE=str(tmp_path / "cache"),
    )
    assert code == 1
    assert "dynamodb.sha256" in told
    assert "delete that directory" in told


def test_stack_does_not_stop_a_process_that_only_has_the_number(tmp_path: Path) -> None:
    """A process id is given out again: the time of its start must fit as well."""
    (tmp_path / "redis.json").write_text(f'{{"port": 1, "pid": {os.getpid()}, "started": "1"}}')
    code, _ = run_stack("down", "redis", PATH="", STACK_DIR=str(tmp_path))
    assert code == 0
    assert not (tmp_path / "redis.json").exists()


@pytest.mark.slow
@pytest.mark.skipif(stack.IS_OFF, reason="STACK=off")
@pytest.mark.timeout(stack.START_SECONDS_MAX)
def test_stack_comes_back_on_its_ports(tmp_path: Path) -> None:
    """Settings that a shell has taken over go on being true after a stop and a start."""
    # On a new machine this is what installs Redis, if no other test has done so yet.
    stack.ensure("redis")
    place = {"PATH": os.environ["PATH"], "STACK_DIR": str(tmp_path), "STACK_CACHE": str(tmp_path)}
    seen = []
    for _ in range(2):
        assert run_stack("up", "redis", **place) == (0, "")
        seen.append(json.loads((tmp_path / "redis.json").read_text())["port"])
        assert run_stack("down", "redis", **place)[0] == 0
    assert seen[0] == seen[1]


@pytest.mark.slow
def test_stack_waits_while_another_copy_of_the_project_fetches_jars(tmp_path: Path) -> None:
    """The cache of jars is one for all copies; two Mavens at once damage their work."""
    cache = tmp_path / "cache"
    cache.mkdir()
    with (cache / "jars.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        waiting = subprocess.Popen(
            [sys.executable, str(SCRIPT), "up", "dynamodb"],
            env={"PATH": "", "STACK_DIR": str(tmp_path / "stack"), "STACK_CACHE": str(cache)},
            stderr=subprocess.PIPE,
            text=True,
        )
        with pytest.raises(subprocess.TimeoutExpired):
            waiting.wait(1)
    _, told = waiting.communicate(timeout=30)
    assert "not found; install it first" in told
