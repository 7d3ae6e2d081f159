"""What tests of the web need: Node with the workspace's packages, and Chromium.

Missing programs are installed as the stack's are: from the distribution, if the run is CI's and may
do so; otherwise an error says what to install. `WEB=off` leaves those tests out, and the last lines
of a run say so.
"""

import fcntl
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
WEB: Final = ROOT / "web"
IS_OFF: Final = os.environ.get("WEB") == "off"
NODE_VERSION_MIN: Final = 20
INSTALL_SECONDS_MAX: Final = 600
INSTALLING: Final = Path(tempfile.gettempdir()) / "tidewire-installing"
"""Locked by the copy of the project that uses the package manager (deploy/stack does, too)."""
PACKAGES: Final = {
    # The name of the program, and the Debian packages that contain it. A browser without fonts
    # shows boxes.
    "node": ("nodejs", "npm"),
    "chromium": ("chromium", "fonts-dejavu-core", "fonts-inter", "fonts-noto-color-emoji"),
    "chromium-headless-shell": ("chromium-headless-shell",),
}


class WebMissing(Exception):
    """Something has to be installed first; the sentence says what."""


def left_out() -> list[str]:
    """What this run does not test, in words."""
    return ["WEB=off: the web chat, the widget and the JavaScript client"] if IS_OFF else []


@cache
def ensure_chromium() -> str:
    """The program's path."""
    return _ensure("chromium")


@cache
def ensure_headless_shell() -> str:
    """The path of the same Chromium without a window: only the engine. It starts in half of the
    time."""
    return _ensure("chromium-headless-shell")


@cache
def ensure_node() -> str:
    """Node's path. The workspace has its packages from here on."""
    node = _ensure("node")
    version = _run([node, "--version"], WEB).strip().removeprefix("v")
    if int(version.partition(".")[0]) < NODE_VERSION_MIN:
        raise WebMissing(
            f"Node {version} is too old; install Node {NODE_VERSION_MIN} or newer{_OR_LEAVE_OUT}"
        )
    ready, lock = WEB / "node_modules" / ".ready", WEB / "package-lock.json"
    with _alone(WEB / ".installing"):
        if not ready.exists() or ready.stat().st_mtime < lock.stat().st_mtime:
            _run(["npm", "ci", "--no-audit", "--no-fund"], WEB)
            ready.touch()
    return node


def run_node(*arguments: str, directory: Path = WEB) -> str:
    """Run a script of the workspace to its end; return what it printed."""
    return _run([ensure_node(), *arguments], directory)


_OR_LEAVE_OUT: Final = "\n(or leave these tests out with WEB=off)"


def _ensure(program: str) -> str:
    with _alone(INSTALLING):
        if shutil.which(program) is None:
            _install(program)
    found = shutil.which(program)
    assert found is not None, program
    return found


def _install(program: str) -> None:
    packages = PACKAGES[program]
    may_install = os.environ.get("CI") == "true" and os.geteuid() == 0
    if not may_install or shutil.which("apt-get") is None:
        raise WebMissing(
            f"{program} not found; install it first, on Debian: "
            f"apt-get install {' '.join(packages)}{_OR_LEAVE_OUT}"
        )
    os.environ["DEBIAN_FRONTEND"] = "noninteractive"
    apt_get = ["apt-get", "--quiet", "--option", f"DPkg::Lock::Timeout={INSTALL_SECONDS_MAX}"]
    _run([*apt_get, "update"], ROOT)
    _run([*apt_get, "install", "--yes", "--no-install-recommends", *packages], ROOT)


def _run(command: Sequence[str], directory: Path) -> str:
    done = subprocess.run(
        command,
        cwd=directory,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=INSTALL_SECONDS_MAX,
        check=False,
    )
    if done.returncode:
        raise WebMissing(f"{' '.join(command)} failed:\n{(done.stdout + done.stderr)[-4000:]}")
    return done.stdout


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Hold a file lock, because several test processes may install at the same time."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
