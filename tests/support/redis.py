"""A Redis that a test may stop, kill and empty, and gateways without sockets that use it."""

import asyncio
import secrets
import signal
import subprocess
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

from redis.asyncio import Redis
from redis.asyncio.cluster import RedisCluster
from redis.crc import key_slot

from tests.support import stack
from tests.support.ports import free_port
from tidewire.domain.accounts import Secret
from tidewire.domain.ids import ChatId, ConnectionId, SessionId, UserId
from tidewire.domain.news import ChatNews
from tidewire.domain.resync import ResyncReason
from tidewire.engines.redis.entries import appending_words
from tidewire.engines.redis.inbox import Inbox
from tidewire.engines.redis.keys import Keys
from tidewire.engines.redis.link import script
from tidewire.engines.redis.options import RedisOptions
from tidewire.engines.redis.router import RedisRouter
from tidewire.ports.router import LocalRouter, Push, Route
from tidewire.runtime.clock import SystemClock
from tidewire.runtime.supervise import TaskSupervisor

PATIENCE_S: Final = 20
"""Long, because a busy machine is no fault."""
SLOTS: Final = 16_384


class OwnRedis:
    """A server for one test only, which may do what would disturb other tests."""

    def __init__(self, directory: Path, *, is_clustered: bool = False) -> None:
        # If the stack runs, the program is installed.
        stack.ensure("redis")
        self._directory = directory
        self.port = free_port()
        self.bus_port = free_port()
        self._more: list[str] = []
        if is_clustered:
            # A server that is gone is noticed within a second, and the others serve their slots.
            self._more = ["--cluster-enabled", "yes", "--cluster-port", str(self.bus_port)]
            self._more += ["--cluster-node-timeout", "1000"]
            self._more += ["--cluster-require-full-coverage", "no"]
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> Secret:
        return Secret(f"redis://127.0.0.1:{self.port}/0")

    async def start(self) -> None:
        place = ["--bind", "127.0.0.1", "--port", str(self.port), "--dir", str(self._directory)]
        self._process = subprocess.Popen(
            ["redis-server", *place, "--save", "", "--appendonly", "no", *self._more],
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

    async def ask(self, *words: str | int) -> Any:
        """The server's answer to one command."""
        client: Any = Redis.from_url(self.url.reveal())
        # Raw answers: the vendor's client would parse answers of clusters.
        client.response_callbacks.clear()
        async with client:
            return await client.execute_command(*words)

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


class OwnCluster:
    """A Redis Cluster of three servers, each with a third of the slots and no replica."""

    def __init__(self, directory: Path) -> None:
        self.servers = []
        for name in ("first", "second", "third"):
            (directory / name).mkdir()
            self.servers.append(OwnRedis(directory / name, is_clustered=True))

    @property
    def url(self) -> Secret:
        return self.servers[0].url

    async def start(self) -> None:
        for server in self.servers:
            await server.start()
        first = self.servers[0]
        size = SLOTS // len(self.servers) + 1
        for number, server in enumerate(self.servers):
            last = min((number + 1) * size, SLOTS) - 1
            await server.ask("CLUSTER", "SET-CONFIG-EPOCH", number + 1)
            await server.ask("CLUSTER", "ADDSLOTSRANGE", number * size, last)
            if server is not first:
                place = "127.0.0.1", first.port, first.bus_port
                await server.ask("CLUSTER", "MEET", *place)
        await self.is_whole()

    async def is_whole(self) -> None:
        """Wait until every server knows all others."""
        async with asyncio.timeout(PATIENCE_S):
            for server in self.servers:
                while True:
                    told: Any = await server.ask("CLUSTER", "INFO")
                    if b"cluster_state:ok" in told and b"slots_ok:16384" in told:
                        break
                    await asyncio.sleep(0.05)

    def server_of(self, key: str) -> OwnRedis:
        return self.servers[key_slot(key.encode()) // (SLOTS // len(self.servers) + 1)]

    def kill(self) -> None:
        for server in self.servers:
            server.kill()


class Local:
    """The connections of one process, as an inbox sees them: records what the inbox passes on."""

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
    """A gateway: an inbox, and the connections registered with it."""

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
        self.redis: Any = None
        self.keys = Keys(options.key_prefix, is_tagged=False)
        self.nodes: list[Node] = []

    async def open(self) -> None:
        url = (self.options.url or Secret("")).reveal()
        self.redis = Redis.from_url(url)
        if (await self.redis.info("cluster"))["cluster_enabled"]:
            await self.redis.aclose()
            self.redis = RedisCluster.from_url(url, require_full_coverage=False)
            await self.redis.initialize()
            self.keys = self.keys._replace(is_tagged=True)

    async def close(self) -> None:
        await self.redis.aclose()
        if isinstance(self.redis, RedisCluster):
            # `aclose` leaves this open when the cluster has lost a server.
            await self.redis.nodes_manager.aclose()

    def own_key(self, node: Node) -> str:
        return self.keys.gateway(node.gateway_id)

    async def forget(self, *names: str) -> None:
        """Delete keys, as an eviction would."""
        for name in names:
            await self.redis.delete(name)

    async def names(self, form: str) -> list[bytes]:
        """Keys of this test that match a pattern."""
        pattern = self.options.key_prefix + form
        if not isinstance(self.redis, RedisCluster):
            found: list[bytes] = await self.redis.keys(pattern)
            return found
        answers: list[Any] = [
            await self.redis.keys(pattern, target_nodes=node) for node in self.redis.get_primaries()
        ]
        return [name for names in answers for name in names]

    async def append(self, gateway_id: str, *entry: str | bytes, trimming: bool = False) -> int:
        """Append an entry as a router would; with `trimming` drop it before it can be read."""
        source = script("append").source
        if trimming:
            # In the same script, so atomically.
            own = self.keys.gateway(gateway_id)
            incarnation = (await self.redis.hget(own, "incarnation")).decode()
            dropping = f"redis.call('DEL', '{self.keys.stream(gateway_id, incarnation)}')"
            source = source.replace("return answer", f"{dropping} return answer")
        names = self.keys.appending(gateway_id, "another")
        words = *appending_words(self.keys, 0, self.options), 1, *entry
        [count] = await self.redis.eval(source, len(names), *names, *words)
        assert isinstance(count, int)
        return count

    async def node(self, name: str) -> Node:
        node = Node(name, self.options, self.tasks)
        await node.inbox.start()
        self.nodes.append(node)
        return node

    async def incarnation_of(self, node: Node) -> str:
        incarnation: bytes = await self.redis.hget(self.own_key(node), "incarnation")
        return incarnation.decode()


@asynccontextmanager
async def net_on(url: Secret, **changed: int) -> AsyncIterator[Net]:
    """A net with times short enough to wait for."""
    settings: dict[str, Any] = {
        "assert_ms": 200,
        "life_ms": 5_000,
        "drain_ms": 100,
        "retry_ms": 50,
        "key_prefix": f"test_{secrets.token_hex(4)}:",
    }
    net = Net(RedisOptions(url=url, **(settings | changed)))
    await net.open()
    net.router.start()
    try:
        yield net
    finally:
        await net.router.stop()
        for node in net.nodes:
            await node.inbox.stop()
        await net.tasks.close()
        await net.close()
    assert net.deaths == []
