"""Runs the processes of a cluster, each of which can be stopped, killed and paused. Holds no test.

Each cluster has tables, topics and keys of its own, so that many share one stack. A process can be
given other endpoints than the rest, those of a proxy that does not always forward.
"""

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

from tests.e2e.chatting import ROOMY, Address
from tests.e2e.commands import EVERY_OPTION, TIMEOUT_S
from tests.support import forked, stack
from tests.support.forked import Forked
from tests.support.ports import free_port
from tests.support.proxy import FaultyProxy

PREFIX: Final = "TIDEWIRE_"
START_S_MAX: Final = 90.0
STOP_S_MAX: Final = 20.0
POLL_S: Final = 0.02
LOG_LINES_SHOWN: Final = 60
MESSAGE_PARTITIONS: Final = 5
CHANGE_PARTITIONS: Final = 3
"""Few, on one broker; and odd, so that there are chats of which one of two workers reads the
messages and the other the changes of members."""

PATIENT: Final[Mapping[str, int | str]] = {
    # A machine that is busy with tests is no fault; both are below the planes' timeouts (P-12).
    "dynamodb.attempt_ms": 4_000,
    "dynamodb.budget_ms": 4_900,
    "log.format": "json",
}

Settings = Mapping[str, int | str]


@dataclass(frozen=True)
class Endpoints:
    """Where a process finds the servers that it shares with the others."""

    dynamodb_port: int
    kafka_port: int
    redis_port: int

    @classmethod
    def of_stack(cls) -> Self:
        return cls(stack.ensure("dynamodb"), stack.ensure("kafka"), stack.ensure("redis"))

    def settings(self) -> dict[str, int | str]:
        return {
            "dynamodb.endpoint_url": f"http://127.0.0.1:{self.dynamodb_port}",
            "kafka.bootstrap_servers": f"127.0.0.1:{self.kafka_port}",
            "redis.url": f"redis://127.0.0.1:{self.redis_port}/0",
        }


class Member(Address):
    """A process of a cluster. After a restart it listens where it did before."""

    def __init__(self, name: str, role: str, directory: Path, settings: Settings) -> None:
        self.name = name
        self.role = role
        self.settings = dict(settings)
        """For the next start."""
        self._directory = directory
        self._log_path = directory / f"{name}.log"
        self._process: subprocess.Popen[bytes] | None = None
        self._port = free_port()
        self._url = ""
        self._log_start = 0

    @property
    def url(self) -> str:
        assert self._url, f"{self.name} was never started"
        return self._url

    @property
    def process(self) -> subprocess.Popen[bytes]:
        assert self._process is not None, f"{self.name} does not run"
        return self._process

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    # Its life. Methods that block are for fixtures: there no event loop is running.

    def launch(self) -> None:
        """Start it, without waiting for anything."""
        assert not self.is_running, f"{self.name} runs already"
        self._log_start = self._log_path.stat().st_size if self._log_path.exists() else 0
        with self._log_path.open("ab") as log:
            self._process = Forked(
                [
                    *(*EVERY_OPTION, "serve", str(self._directory / self.name)),
                    *("--role", self.role, "--port", str(self._port)),
                ],
                env=environment(self.settings),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=log,
            )

    def await_ready(self) -> None:
        """Wait until the process itself says that it is ready."""
        deadline_s = time.monotonic() + START_S_MAX
        while not self._is_ready():
            assert self.is_running, f"{self.name} has ended:\n{self.tail()}"
            assert time.monotonic() < deadline_s, f"{self.name} is not ready:\n{self.tail()}"
            time.sleep(POLL_S)

    async def start(self) -> None:
        self.launch()
        await asyncio.to_thread(self.await_ready)

    def kill(self) -> None:
        """kill -9: nothing is left of the process but what it has written elsewhere."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    async def stop(self) -> int:
        """Send SIGTERM; return the exit code."""
        return await asyncio.to_thread(self.end)

    def end(self) -> int:
        process = self.process
        process.terminate()
        code = process.wait(STOP_S_MAX)
        self._process = None
        return code

    async def start_in_vain(self) -> tuple[int, str]:
        """Start a process that ends by itself and never serves; its exit code and its output."""
        self.launch()
        async with asyncio.timeout(START_S_MAX):
            while self.is_running:
                assert not await asyncio.to_thread(self._is_ready), f"{self.name} serves"
                await asyncio.sleep(POLL_S)
        code = self.process.wait()
        self._process = None
        with self._log_path.open() as log:
            log.seek(self._log_start)
            return code, log.read()

    async def restart(self) -> None:
        """Kill it, and start it again."""
        self.kill()
        await self.start()

    def pause(self) -> None:
        self.process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    # Looking at it.

    def lines(self) -> list[dict[str, Any]]:
        """Its log, of all its lives. A line that is not JSON is of a traceback, and a fault."""
        shown: list[dict[str, Any]] = []
        text = self._log_path.read_text() if self._log_path.exists() else ""
        for line in text.splitlines():
            is_json = line.startswith("{") and line.endswith("}")
            shown.append(json.loads(line) if is_json else {"level": "error", "event": line})
        return shown

    def complaints(self) -> list[dict[str, Any]]:
        """The errors that it has logged."""
        return [line for line in self.lines() if line.get("level") in ("error", "critical")]

    def tail(self) -> str:
        text = self._log_path.read_text() if self._log_path.exists() else ""
        return "\n".join(text.splitlines()[-LOG_LINES_SHOWN:])

    def _is_ready(self) -> bool:
        url = self._announced()
        if not url:
            return False
        self._url, self._port = url, int(url.rpartition(":")[2])
        return _status(f"{url}/readyz") == 200

    def _announced(self) -> str:
        with self._log_path.open() as log:
            log.seek(self._log_start)
            for line in log:
                if '"address"' in line and line.endswith("}\n"):
                    return str(json.loads(line)["address"])
        return ""


class Cluster:
    """Tables, topics and keys of its own, and the processes on them."""

    def __init__(
        self, directory: Path, endpoints: Endpoints | None = None, **settings: Any
    ) -> None:
        """Settings apply to every process, and are named with `__` for the dot."""
        self.directory = directory
        self.endpoints = endpoints or Endpoints.of_stack()
        self.members: list[Member] = []
        name = f"cl{uuid.uuid4().hex[:10]}"
        self.table_prefix = f"{name}_"
        self.topic_prefix = f"{name}."
        self._settings: dict[str, int | str] = {
            **ROOMY,
            **PATIENT,
            "dynamodb.table_prefix": self.table_prefix,
            "dynamodb.region": "local",
            "dynamodb.access_key": "local",
            "dynamodb.secret_key": "local",
            "kafka.topic_prefix": self.topic_prefix,
            "kafka.message_partitions": MESSAGE_PARTITIONS,
            "kafka.change_partitions": CHANGE_PARTITIONS,
            "kafka.dead_letter_partitions": 1,
            "kafka.replication_factor": 1,
            "kafka.insync_replicas_min": 1,
            "redis.key_prefix": f"{name}:",
            "cluster.token_key_file": str(directory / "token.key"),
            **_named(settings),
        }

    def prepare(self) -> None:
        """Make tables and topics."""
        done = self.command("cluster", "init")
        assert done.returncode == 0, done.stderr

    def add(self, role: str, endpoints: Endpoints | None = None, **settings: Any) -> Member:
        """Add one more process, which is not started yet."""
        number = 1 + sum(one.role == role for one in self.members)
        own = {
            **self._settings,
            **(endpoints or self.endpoints).settings(),
            **_named(settings),
        }
        member = Member(f"{role}-{number}", role, self.directory, own)
        self.members.append(member)
        return member

    def launch(self, *members: Member) -> None:
        """Start processes, all at once, and wait until they are ready and share the event log."""
        for member in members:
            member.launch()
        for member in members:
            member.await_ready()
        asyncio.run(self.shared())

    async def shared(self) -> None:
        """Wait until each process that reads the event log has partitions, and none is unread."""
        readers = [one for one in self.members if one.role != "gateway" and one.is_running]
        async with asyncio.timeout(START_S_MAX):
            while readers:
                parts = [await metric_of(one, "kafka_partitions") for one in readers]
                if min(parts) > 0 and sum(parts) == self._partitions:
                    return
                await asyncio.sleep(POLL_S)

    @property
    def _partitions(self) -> int:
        return MESSAGE_PARTITIONS + 2 * CHANGE_PARTITIONS

    @property
    def gateways(self) -> list[Member]:
        return [one for one in self.members if one.role != "fanout"]

    @property
    def workers(self) -> list[Member]:
        return [one for one in self.members if one.role == "fanout"]

    def command(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run an operator's command, which bypasses all proxies."""
        return forked.run(
            [*EVERY_OPTION, *arguments],
            env=environment({**self._settings, **self.endpoints.settings()}),
            timeout=TIMEOUT_S,
        )

    def verify(self) -> dict[str, Any]:
        """Run `tidewire verify --cluster`, which must find nothing wrong; return its report."""
        done = self.command("verify", "--cluster", "--json")
        assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
        report: dict[str, Any] = json.loads(done.stdout)
        assert report["ok"], report
        return report

    async def metric(self, name: str, **labels: str) -> float:
        """A metric, added up over all running processes."""
        values = await asyncio.gather(
            *(metric_of(one, name, **labels) for one in self.members if one.is_running)
        )
        return sum(values)

    def complaints(self) -> list[tuple[str, dict[str, Any]]]:
        return [(one.name, line) for one in self.members for line in one.complaints()]

    def logs(self) -> Iterator[tuple[str, str]]:
        for member in self.members:
            yield f"log of {member.name}", member.tail()

    def close(self) -> None:
        """Kill all processes, also paused ones, and delete the directory."""
        for member in self.members:
            member.kill()
        shutil.rmtree(self.directory, ignore_errors=True)


@contextmanager
def running(
    directory: Path, *, gateways: int = 2, workers: int = 2, **settings: Any
) -> Iterator[Cluster]:
    """A cluster of so many ready processes; all of them are killed at the end."""
    cluster = Cluster(directory, **settings)
    try:
        cluster.prepare()
        cluster.launch(
            *(cluster.add("gateway") for _ in range(gateways)),
            *(cluster.add("fanout") for _ in range(workers)),
        )
        yield cluster
    finally:
        cluster.close()


class Balancer(FaultyProxy, Address):
    """A load balancer: each connection goes to the next gateway that accepts it."""

    def __init__(self, *gateways: Member) -> None:
        super().__init__(0)
        self.gateways = list(gateways)
        self._turn = 0

    async def _upstream(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        for _ in self.gateways:
            self._turn += 1
            gateway = self.gateways[self._turn % len(self.gateways)]
            try:
                return await asyncio.open_connection("127.0.0.1", gateway.port)
            except OSError:
                continue
        raise ConnectionRefusedError


def environment(settings: Settings) -> dict[str, str]:
    """Our own environment variables with these settings, and with no other settings of a server."""
    ours = {name: value for name, value in os.environ.items() if not name.startswith(PREFIX)}
    # Without cached bytecode each process would compile the vendors' libraries anew.
    ours.pop("PYTHONDONTWRITEBYTECODE", None)
    ours["PYTHONPYCACHEPREFIX"] = str(Path(sys.prefix) / "pycache")
    return ours | {
        PREFIX + name.replace(".", "_").upper(): str(value) for name, value in settings.items()
    }


async def metric_of(address: Address, name: str, **labels: str) -> float:
    """All samples of a metric with these labels, added up."""
    page = (await address.call("GET", "/metrics")).text
    wanted = [f'{label}="{value}"' for label, value in labels.items()]
    return sum(
        float(line.rpartition(" ")[2])
        for line in page.splitlines()
        if line.startswith((f"{name} ", f"{name}{{")) and all(one in line for one in wanted)
    )


def _named(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {name.replace("__", "."): value for name, value in settings.items()}


def _status(url: str) -> int:
    try:
        with urllib.request.urlopen(url, timeout=TIMEOUT_S) as response:
            status: int = response.status
            return status
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return 0
