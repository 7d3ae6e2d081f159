"""Runs `tidewire serve` as a process of its own, on a free port. Holds no test."""

import json
import signal
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from tests.e2e.commands import PROGRAM, TIMEOUT_S
from tests.support.forked import Forked


class ServerProcess:
    """A server that has said where it listens."""

    def __init__(self, data_dir: Path, process: subprocess.Popen[str]) -> None:
        self.data_dir = data_dir
        self.process = process
        assert process.stdout is not None
        said = process.stdout.readline()
        self.url: str = json.loads(said)["address"] if said else ""

    @property
    def is_up(self) -> bool:
        return self.url.startswith("http")

    def get(self, path: str) -> tuple[int, str]:
        """Status and body, whatever the status."""
        try:
            with urllib.request.urlopen(self.url + path, timeout=TIMEOUT_S) as response:
                return response.status, response.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def end(self, number: signal.Signals = signal.SIGTERM) -> tuple[int, str]:
        """Ask it to end; exit code and stderr."""
        self.process.send_signal(number)
        return self.wait()

    def wait(self) -> tuple[int, str]:
        """Its end, which somebody has asked for already."""
        _, err = self.process.communicate(timeout=TIMEOUT_S)
        return self.process.returncode, err

    @staticmethod
    def lines(err: str) -> list[dict[str, Any]]:
        """The log."""
        return [json.loads(line) for line in err.splitlines()]

    def parts(self) -> dict[str, int]:
        """The processes of a server that has several, by name: `store`, `gw-1`, …"""
        return parts_of(self.process.pid)

    def pids(self) -> list[int]:
        """All its processes."""
        return [self.process.pid, *self.parts().values()]


def parts_of(pid: int) -> dict[str, int]:
    """Those that a server's parent has started and named."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()
    found = {}
    for child in children:
        # One that has ended meanwhile has no file, or one that cannot be read; one that has just
        # begun bears its parent's name.
        with suppress(FileNotFoundError, ProcessLookupError):
            name = Path(f"/proc/{child}/comm").read_text(encoding="ascii").strip()
            if name.startswith("tidewire-"):
                found[name.removeprefix("tidewire-")] = int(child)
    return found


@contextmanager
def serving(
    data_dir: Path, *arguments: str | Path, program: Sequence[str] = PROGRAM
) -> Iterator[ServerProcess]:
    """A server on this data directory; it is killed at the end if it still runs."""
    process = Forked(
        [*program, "serve", str(data_dir), "--port", "0", *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield ServerProcess(data_dir, process)
    finally:
        process.kill()
        process.wait()
        for stream in (process.stdout, process.stderr):
            assert stream is not None
            stream.close()
