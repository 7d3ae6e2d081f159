"""The real servers that some tests need: started by the first test that asks for one, stopped at
the end.

A run without them fails with a sentence that says what to install. `STACK=off` leaves those tests
out. The last lines of a run say what was left out.
"""

import json
import os
import shutil
import subprocess
import sys
import zlib
from functools import cache
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[2]
SCRIPT: Final = ROOT / "deploy" / "stack" / "stack.py"
START_SECONDS_MAX: Final = 900
"""Long: on a machine that has never run the stack, packages and jars are downloaded first."""

IS_OFF: Final = os.environ.get("STACK") == "off"
_FAULTS: Final = os.environ.get("CLUSTER_FAULTS", "off")
"""`on`, `off`, or `later`: another run after this one has these tests."""
HAS_FAULTS: Final = _FAULTS == "on"


def left_out() -> list[str]:
    """What this run does not test, in words."""
    if IS_OFF:
        return ["STACK=off: the cluster and its engines (DynamoDB, Kafka, Redis)"]
    if _FAULTS == "off":
        return ["a cluster whose servers fail under load (make test-faults)"]
    return []


STARTED_VARIABLE: Final = "STACK_STARTED_NOTE"
"""Names a file in which the test processes of a run note what they have started."""


MEMORY: Final = Path("/dev/shm")
_RUN: Final = os.environ.get("STACK_RUN", "")
"""Tells two runs of one copy of the repository apart: each stops what it has started."""
OWN_DIRECTORY: Final = MEMORY / f"tidewire-tests-{zlib.crc32(str(ROOT).encode()):08x}{_RUN}"
"""In memory: tests write much and keep nothing. One for each copy of the repository, and run."""


class StackMissing(Exception):
    """The servers do not run and cannot be started; the sentence says what to do."""


def control(*arguments: str) -> dict[str, Any]:
    """Run a command of the script; return the servers that run after it, by part."""
    done = subprocess.run(
        [sys.executable, str(SCRIPT), *arguments],
        env=os.environ | _place(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=START_SECONDS_MAX,
        check=False,
    )
    if done.returncode:
        raise StackMissing(f"{done.stderr.strip()}\n(or leave these tests out with STACK=off)")
    running: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return running


def _place() -> dict[str, str]:
    """The environment of the stack of `make stack` if that runs, or of the tests' own stack."""
    if "STACK_DIR" in os.environ or any((ROOT / ".stack").glob("*.json")) or not MEMORY.is_dir():
        return {}
    # For a server that lives for two minutes the optimizing compiler costs more than it saves.
    return {"STACK_DIR": str(OWN_DIRECTORY), "JAVA_TOOL_OPTIONS": "-XX:TieredStopAtLevel=1"}


def stop(*parts: str) -> None:
    """Stop the servers that the tests have started, and delete their data."""
    if not control("down", *parts):
        shutil.rmtree(OWN_DIRECTORY, ignore_errors=True)


@cache
def ensure(part: str) -> int:
    """The port of a server, started if needed. The script's lock lets one process start it."""
    running = control("status")
    if part not in running:
        note = os.environ.get(STARTED_VARIABLE)
        if note:
            with Path(note).open("a") as file:
                file.write(part + "\n")
        running = control("up", part)
    port: int = running[part]["port"]
    return port
