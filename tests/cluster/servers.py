"""A test module's own servers, which it may kill, pause and empty. Holds no test.

No other test uses them: they have a directory and ports that the tests' shared stack does not know.
"""

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from tests.cluster.running import Endpoints
from tests.support import stack
from tests.support.ports import free_port

PARTS: Final = ("dynamodb", "kafka", "redis")


class OwnServers:
    """All three servers. Each is started again at its port; what is on the disk is kept."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._ports = {part: free_port() for part in PARTS}
        self._environment = os.environ | {
            "STACK_DIR": str(directory),
            "JAVA_TOOL_OPTIONS": "-XX:TieredStopAtLevel=1",
            **{f"STACK_{part.upper()}_PORT": str(port) for part, port in self._ports.items()},
        }

    @property
    def endpoints(self) -> Endpoints:
        return Endpoints(*(self._ports[part] for part in PARTS))

    def up(self, *parts: str) -> None:
        self._control("up", *parts)

    async def start(self, part: str) -> None:
        await asyncio.to_thread(self.up, part)

    def kill(self, part: str) -> None:
        """kill -9. Redis loses all its data; the others have their data on the disk."""
        os.kill(self._pid(part), signal.SIGKILL)

    def pause(self, part: str) -> None:
        """Stop it from answering; requests to it wait."""
        os.kill(self._pid(part), signal.SIGSTOP)

    def go_on(self, part: str) -> None:
        os.kill(self._pid(part), signal.SIGCONT)

    async def empty_redis(self) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._ports["redis"])
        try:
            writer.write(b"FLUSHALL\r\n")
            assert await reader.readline() == b"+OK\r\n"
        finally:
            writer.close()
            await writer.wait_closed()

    def close(self) -> None:
        for part in PARTS:
            # A paused server would not react to the signal to end.
            if self._runs(part):
                self.go_on(part)
        self._control("down")
        shutil.rmtree(self._directory, ignore_errors=True)

    def _pid(self, part: str) -> int:
        assert self._runs(part), f"{part} does not run"
        pid: int = self._state(part)["pid"]
        return pid

    def _runs(self, part: str) -> bool:
        """Whether the very process that was started runs: its pid alone may be reused by now."""
        state = self._state(part)
        try:
            stat = Path(f"/proc/{state.get('pid')}/stat").read_text()
        except (FileNotFoundError, ProcessLookupError):
            return False
        return bool(stat.rpartition(")")[2].split()[19] == state["started"])

    def _state(self, part: str) -> dict[str, Any]:
        try:
            state: dict[str, Any] = json.loads((self._directory / f"{part}.json").read_text())
        except FileNotFoundError:
            return {}
        return state

    def _control(self, *arguments: str) -> None:
        done = subprocess.run(
            [sys.executable, str(stack.SCRIPT), *arguments],
            env=self._environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=stack.START_SECONDS_MAX,
            check=False,
        )
        if done.returncode:
            raise stack.StackMissing(done.stderr.strip())


@contextmanager
def own_servers() -> Iterator[OwnServers]:
    place = stack.MEMORY if stack.MEMORY.is_dir() else None
    servers = OwnServers(Path(tempfile.mkdtemp(prefix="tidewire-faults-", dir=place)))
    try:
        servers.up()
        yield servers
    finally:
        servers.close()
