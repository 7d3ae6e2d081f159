"""The client's part of the web workspace, as the tests use it: what is built for a test."""

import fcntl
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from tests.support.web import WEB, ensure_node

CLIENT: Final = WEB / "client"
SECONDS_MAX: Final = 120


def run_node(script: Path, *arguments: str, **environment: str) -> str:
    """Run a script of the workspace to its end; what it has printed. Raises with its errors."""
    ended = subprocess.run(
        [ensure_node(), str(script), *arguments],
        cwd=CLIENT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS_MAX,
    )
    if ended.returncode:
        raise RuntimeError(f"{script.name} failed:\n{ended.stdout}{ended.stderr}")
    return ended.stdout


def made_once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], None]) -> Path:
    """A folder that all processes of a test run share; the first that wants it makes it."""
    root = factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        root = root.parent
    folder, done = root / name, root / f"{name}.done"
    with (root / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not done.exists():
            folder.mkdir()
            make(folder)
            done.touch()
    return folder


def build_drivers(directory: Path) -> None:
    """The drivers of the conformance kit: node.mjs and page.js."""
    run_node(CLIENT / "scripts/conformance.mjs", str(directory))
