"""A Redis that a test may stop, kill and empty, and gateways without sockets on it."""

import asyncio
import secrets
import signal
import subprocess
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

from redis.asyncio import Redis

from tests.support import stack
from tests.support.ports import free_port
from tidewire.domain.accounts import Secret
from tidewire.domain.ids import ChatId, ConnectionId, SessionId, UserId
from tidewire.domain.news import ChatNews
from tidewire.domain.resync import ResyncReason
from tidewire.engines.redis.inbox import Inbox
from tidewire.engines.redis.options import RedisOptions
from tidewire.engines.redis.router import RedisRouter
from tidewire.ports.router import LocalRouter, Push, Route
from tidewire.runtime.clock import SystemClock
from tidewire.runtime.supervise import TaskSupervisor

PATIENCE_S: Final = 20
"""A busy machine is no fault."""


class OwnRedis:
    """A server of its own, for what would disturb other tests."""

    def __init__(self, directory: Path) -> None:
        # Whoever runs the stack has the program.
        stack.ensure("redis")
        self._directory = directory
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> Secret:
        return Secret(f"redis://127.0.0.1:{self.port}/0")

    async def start(self) -> None:
        place = ["--bind", "127.0.0.1", "--port", str(self.port), "--dir", str(self._directory)]
        self._process = subprocess.Popen(
            ["redis-server", *place, "--save", "", "--appendonly", "no"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
        )
        async with asyncio.timeout(PATIENCE_S):
            while True:
                try:
                    _, writer = await asyncio.open_connection("127.0.0.1", self.port)
                except OSError:
                    await asyncio.sleep(0.02)
                else:
                    writer.close()
                    await writer.wait_closed()
                    return

    def pause(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


class Local:
    """The connections of one process, as far as an inbox cares: it writes down what it is told."""

    def __init__(self) -> None:
        self.pushed: list[tuple[list[UserId], bytes, ConnectionId | None]] = []
        self.resynced: list[list[UserId] | None] = []
        self.reasons: list[ResyncReason] = []
        self.resynced_connections: list[ConnectionId] = []
        self.closed_connections: list[ConnectionId] = []
        self.revoked: list[SessionId] = []
        self.rosters: list[ChatId] = []
        self.news: list[ChatNews] = []
        self.forwards: list[bytes] = []
        self.unrouted: list[UserId] = []
        self.lost = 0
        self._changed = asyncio.Event()

    def push(self, push: Push) -> None:
        self.pushed.append((list(push.user_ids), push.framed, push.except_connection))
        self._changed.set()

    def resync(self, user_ids: Sequence[UserId] | None, reason: ResyncReason) -> None:
        self.resynced.append(None if user_ids is None else list(user_ids))
        self.reasons.append(reason)
        self._changed.set()

    def resync_connections(
        self, connection_ids: Sequence[ConnectionId], reason: ResyncReason
    ) -> None:
        self.resynced_connections += connection_ids
        self._changed.set()

    async def presence(self, user_ids: Sequence[UserId]) -> dict[UserId, int]:
        return {}

    async def settled(self) -> None:
        return

    def close_duplicate(self, connection_id: ConnectionId) -> None:
        self.closed_connections.append(connection_id)
        self._changed.set()

    def on_revoked(self, session_ids: Sequence[SessionId]) -> None:
        self.revoked += session_ids
        self._changed.set()

    def on_roster_changed(self, chat_id: ChatId) -> None:
        self.rosters.append(chat_id)
        self._changed.set()

    def on_news(self, news: ChatNews) -> None:
        self.news.append(news)
        self._changed.set()

    def on_forward(self, body: bytes) -> None:
        self.forwards.append(body)
        self._changed.set()

    def on_unrouted(self, user_ids: Sequence[UserId]) -> None:
        self.unrouted += user_ids
        self._changed.set()

    def on_lost(self) -> None:
        self.lost += 1
        self._changed.set()

    @property
    def bodies(self) -> list[bytes]:
        return [body for _, body, _ in self.pushed]

    @property
    def resyncs_count(self) -> int:
        return len(self.resynced) + len(self.resynced_connections)

    async def until(self, holds: Callable[[], bool], *, patience_s: float = PATIENCE_S) -> None:
        async with asyncio.timeout(patience_s):
            while not holds():
                self._changed.clear()
                await self._changed.wait()


_CONFORMS: type[LocalRouter] = Local


class Node:
    """A gateway: an inbox, and the connections it has taken in."""

    def __init__(self, name: str, options: RedisOptions, tasks: TaskSupervisor) -> None:
        self.gateway_id = f"gw_{name}"
        self.local = Local()
        self.inbox = Inbox(
            options,
            local=self.local,
            gateway_id=self.gateway_id,
            random_hex=secrets.token_hex,
            clock=SystemClock(),
            tasks=tasks,
            on_revoked=self.local.on_revoked,
            on_roster_changed=self.local.on_roster_changed,
            on_news=self.local.on_news,
            on_forward=self.local.on_forward,
            on_unrouted=self.local.on_unrouted,
            on_lost=self.local.on_lost,
        )

    async def connect(self, user: str, device: str = "phone") -> Route:
        route = route_of(self.gateway_id, user, device)
        await self.inbox.register(route)
        return route


def route_of(gateway_id: str, user: str, device: str = "phone") -> Route:
    return Route(ConnectionId(f"conn_{gateway_id}_{user}_{device}"), UserId(user), device)


class Net:
    """Gateways, a router, and a way to look at Redis itself."""

    def __init__(self, options: RedisOptions) -> None:
        assert options.url is not None
        self.options = options
        self.deaths: list[BaseException] = []
        self.tasks = TaskSupervisor(lambda _, error: self.deaths.append(error))
        self.router = RedisRouter(options, router_id=secrets.token_hex(4), tasks=self.tasks)
        self.redis: Redis = Redis.from_url(options.url.reveal())
        self.nodes: list[Node] = []

    def key(self, name: str) -> str:
        return self.options.key_prefix + name

    async def node(self, name: str) -> Node:
        node = Node(name, self.options, self.tasks)
        await node.inbox.start()
        self.nodes.append(node)
        return node

    async def stream_of(self, node: Node) -> str:
        incarnation: Any = await self.redis.hget(
            self.key(f"gateway:{node.gateway_id}"), "incarnation"
        )
        return self.key(f"stream:{node.gateway_id}:{incarnation.decode()}")


@asynccontextmanager
async def net_on(url: Secret, **changed: int) -> AsyncIterator[Net]:
    """With times short enough to wait for."""
    settings: dict[str, Any] = {
        "assert_ms": 200,
        "life_ms": 5_000,
        "drain_ms": 100,
        "retry_ms": 50,
        "key_prefix": f"test_{secrets.token_hex(4)}:",
    }
    net = Net(RedisOptions(url=url, **(settings | changed)))
    net.router.start()
    try:
        yield net
    finally:
        await net.router.stop()
        for node in net.nodes:
            await node.inbox.stop()
        await net.tasks.close()
        await net.redis.aclose()
    assert net.deaths == []
