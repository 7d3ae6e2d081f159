"""A server built by `build_server`, on a store that a test can break. Holds no test."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.e2e.chatting import ROOMY, Address, eventually
from tests.support.every_option import every_option
from tests.support.memory import MemoryStorage
from tidewire.domain.accounts import Secret
from tidewire.ports.event_log import CommitListener
from tidewire.ports.storage import Storage
from tidewire.runtime import lifecycle
from tidewire.runtime.bootstrap import Server, build_server
from tidewire.runtime.clock import SystemClock
from tidewire.runtime.config import Config, load
from tidewire.runtime.supervise import TaskSupervisor
from tidewire.runtime.token_keys import KeyFile

KEY = Secret("k" * 48)


class HandClock(SystemClock):
    """Lengths are what the test says: how busy the machine is does not matter."""

    now_ms = 1_000_000

    def monotonic_ms(self) -> int:
        return HandClock.now_ms


class Surprise(Exception):
    """What no code expects."""


class WiredSite(Address):
    """One running server, its store, and what its supervisor has seen."""

    def __init__(self, server: Server, deaths: list[str]) -> None:
        self.server = server
        self.deaths = deaths
        """Services that have died: a real process would have ended."""

    @property
    def url(self) -> str:
        return self.server.edge.url

    @property
    def failures(self) -> dict[str, int]:
        return self.server.tasks.failures_by_kind

    def break_store(self, *methods: str) -> None:
        """Make these methods of the store raise what no code expects, until `mend_store`."""

        def broken_nowait(*_: object, **__: object) -> Any:
            raise Surprise("a byte was flipped")

        async def broken(*_: object, **__: object) -> Any:
            broken_nowait()

        for method in methods:
            is_awaited = not method.endswith("_nowait")
            setattr(self.server.planes.store, method, broken if is_awaited else broken_nowait)

    def mend_store(self, *methods: str) -> None:
        for method in methods:
            delattr(self.server.planes.store, method)

    async def failed(self, kind: str, count: int = 1) -> None:
        """Wait until so many requests of this kind have failed."""
        await eventually(lambda: self.failures.get(kind, 0) >= count, f"{kind} failed")

    async def died(self) -> str:
        """Wait until a service has died; its name."""
        await eventually(lambda: bool(self.deaths), "a service died")
        return self.deaths[0]


@asynccontextmanager
async def wired(
    data_dir: Path, key: Secret | KeyFile = KEY, /, **settings: int | str
) -> AsyncIterator[WiredSite]:
    """A server in memory, with room for a crowd; settings are named with `__` for the dot."""

    async def open_memory(config: Config, listener: CommitListener) -> Storage:
        return MemoryStorage(listener)

    named = {**ROOMY, **{name.replace("__", "."): value for name, value in settings.items()}}
    flags = {"server.port": "0", **{name: str(value) for name, value in named.items()}}
    with every_option():
        config = load(data_dir=data_dir, flags=flags, environ={}).config
    deaths: list[str] = []
    tasks = TaskSupervisor(lambda name, _: deaths.append(name))
    server = await build_server(config, key=key, tasks=tasks, open_store=open_memory)
    await lifecycle.start(server)
    try:
        yield WiredSite(server, deaths)
    finally:
        await lifecycle.stop(server)
