"""The server under load: where it is, who may log in, and what its process has used so far."""

import asyncio
import os
import re
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from tidewire.domain.errors import TidewireError

START_S_MAX: Final = 60.0
STOP_S_MAX: Final = 15.0
PORTS_PER_ADDRESS: Final = 20_000
"""Connections from one source address to one port: the kernel has some 28 000 ports for them."""
SYNCED: Final = "synced"
"""The message is on stable storage when its ack is sent."""
UNKNOWN: Final = "as set there"
"""It cannot be seen from outside how a server stores that was not started by this tool."""
_SPARE_FILES: Final = 200
_ADDRESS: Final = re.compile(rb"http://127\.0\.0\.1:([0-9]{2,5})")
_TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")


class LoadImpossible(TidewireError):
    """The load cannot be put on; the message says what is missing."""


@dataclass(frozen=True, slots=True)
class Person:
    """A user who can log in, with one device."""

    user_id: str
    token: str
    device_id: str
    username: str = ""
    password: str = ""
    """Set only for a user who was registered over REST, like the next field."""
    refresh_token: str = ""


@dataclass(frozen=True, slots=True)
class Launch:
    """How our own server is started."""

    data_dir: Path
    environment: Mapping[str, str]
    """The whole environment: nothing of ours is inherited, as an unknown setting would stop it."""
    command: Sequence[str] = (sys.executable, "-m", "tidewire", "serve")


class Process:
    """A server's process, ours or the sketch's, and its children, as /proc shows them.

    Each number is the sum over all of them: the parent of a server of several processes does no
    work, so that alone it shows nothing.
    """

    def __init__(self, pid: int) -> None:
        self.pid = pid

    def cpu_s(self) -> float:
        """Processor time of all threads since they began."""
        return sum(map(_cpu_s, self._all()))

    def rss_bytes(self) -> int:
        """Pages that processes share count for each."""
        return sum(map(_rss_bytes, self._all()))

    def highest_rss_bytes(self) -> int:
        """The highest of each process, also if they had it at different times."""
        return sum(_status(pid, "VmHWM") * 1024 for pid in self._all())

    def threads(self) -> int:
        return sum(_status(pid, "Threads") for pid in self._all())

    def files(self) -> int:
        """How many are open, sockets included. One that processes share counts for each."""
        return sum(len(list(Path(f"/proc/{pid}/fd").iterdir())) for pid in self._all())

    def _all(self) -> list[int]:
        children = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text()
        return [self.pid, *map(int, children.split())]


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_S


def _rss_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE_BYTES


def _status(pid: int, name: str) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    found = re.search(rf"^{name}:\s+([0-9]+)", status, re.MULTILINE)
    assert found is not None
    return int(found[1])


@dataclass(slots=True)
class OwnServer:
    """A server that this run starts and ends."""

    launch: Launch
    port: int = 0
    _process: subprocess.Popen[bytes] | None = field(default=None, init=False)

    @property
    def process(self) -> Process:
        assert self._process is not None, "not started"
        return Process(self._process.pid)

    async def start(self) -> "Target":
        """Start it, on the port it had if it was running before. Raises LoadImpossible."""
        log = self.launch.data_dir.with_suffix(".log")
        process = self._process = self._spawn(log)
        end_s = time.perf_counter() + START_S_MAX
        while not self._is_reachable(log):
            if process.poll() is not None or time.perf_counter() > end_s:
                self.kill()
                said = log.read_text(errors="replace")[-2_000:].strip()
                raise LoadImpossible(f"the server did not start; it said: {said}")
            await asyncio.sleep(0.01)
        return Target(f"http://127.0.0.1:{self.port}", self)

    def _spawn(self, log: Path) -> subprocess.Popen[bytes]:
        command = [*self.launch.command, str(self.launch.data_dir), "--port", str(self.port)]
        with log.open("wb") as output:
            return subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=dict(self.launch.environment),
            )

    def _is_reachable(self, log: Path) -> bool:
        if self.port == 0:
            found = _ADDRESS.search(log.read_bytes())
            if found is None:
                return False
            self.port = int(found[1])
        with socket.socket() as probe:
            probe.settimeout(1.0)
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def kill(self) -> None:
        """kill -9: all its connections are gone at the same instant."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    async def end(self) -> int | None:
        """Ask it to end. Returns its exit code; None if it had to be killed or was not started."""
        process = self._process
        if process is None:
            return None
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            try:
                await asyncio.to_thread(process.wait, STOP_S_MAX)
            except subprocess.TimeoutExpired:
                self.kill()
                return None
        return process.returncode


@dataclass(frozen=True, slots=True)
class Target:
    """A server under load. `own` is None if others started it; then its process is not seen."""

    url: str
    own: OwnServer | None = None

    @property
    def socket_url(self) -> str:
        parts = urlsplit(self.url)
        scheme = "wss" if parts.scheme in ("https", "wss") else "ws"
        return f"{scheme}://{parts.netloc}/v1/ws"

    @property
    def is_local(self) -> bool:
        return urlsplit(self.url).hostname == "127.0.0.1"

    @property
    def durability(self) -> str:
        """Our own server is started with full synchronous commits; see `run.LIMITS`."""
        return UNKNOWN if self.own is None else SYNCED

    def cpu_s(self) -> float | None:
        return None if self.own is None else self.own.process.cpu_s()

    def rss_bytes(self) -> int | None:
        return None if self.own is None else self.own.process.rss_bytes()

    def source_address(self, number: int) -> tuple[str, int] | None:
        """Where the connection with this number comes from; None lets the kernel choose."""
        block = number // PORTS_PER_ADDRESS
        if not self.is_local or block == 0:
            return None
        return f"127.0.{block // 250}.{block % 250 + 1}", 0


@contextmanager
def fresh_directory(parent: Path) -> Iterator[Path]:
    """A directory on the disk to measure, deleted afterwards."""
    parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="tidewire-bench-", dir=parent.absolute()) as directory:
        yield Path(directory)


def raise_file_limit(connections: int) -> int:
    """Raise the limit of open files, for this process and the servers it starts, to the hard limit.

    Raises LoadImpossible if they are too few.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    if hard != resource.RLIM_INFINITY and connections + _SPARE_FILES > hard:
        raise LoadImpossible(
            f"{connections} connections need {connections + _SPARE_FILES} open files, but at most "
            f"{hard} are allowed here; raise the hard limit (ulimit -Hn)"
        )
    return hard
