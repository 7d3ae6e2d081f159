"""What a process that serves nobody still answers."""

import asyncio
import json
from collections.abc import AsyncIterator

import pytest

from tests.edge.raw import RawPeer
from tidewire.domain.accounts import Secret
from tidewire.domain.errors import Unavailable
from tidewire.edge.options import EdgeOptions
from tidewire.edge.peers import Insiders, TrustedProxies
from tidewire.edge.probes import NoGateway, Probes
from tidewire.edge.server import EdgeServer
from tidewire.runtime.supervise import TaskSupervisor


class Worker:
    is_ready = False

    async def check(self) -> None:
        if not self.is_ready:
            raise Unavailable("not yet")


@pytest.fixture
def worker() -> Worker:
    return Worker()


@pytest.fixture
async def server(worker: Worker) -> AsyncIterator[EdgeServer]:
    tasks = TaskSupervisor()
    probes = Probes(
        check_ready=worker.check,
        metrics=lambda: b"records 7\n",
        insiders=Insiders(TrustedProxies(()), Secret("a-token-for-probes")),
    )
    server = EdgeServer(probes, gateway=NoGateway(), tasks=tasks, options=EdgeOptions(port=0))
    await server.start()
    yield server
    await server.stop_accepting()
    await server.stop()
    await tasks.close()


async def get(server: EdgeServer, path: str, more: str = "") -> tuple[bytes, bytes]:
    async with asyncio.timeout(10):
        peer = await RawPeer.connect(server.port)
        peer.send(f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{more}\r\n".encode())
        head, _, body = (await peer.reader.read()).partition(b"\r\n\r\n")
        await peer.end()
    return head.split(b" ")[1], body


async def test_probes_tell_health_readiness_and_metrics(server: EdgeServer, worker: Worker) -> None:
    assert await get(server, "/healthz") == (b"200", b'{"status":"ok"}')
    assert await get(server, "/readyz") == (b"503", b'{"status":"not ready"}')
    worker.is_ready = True
    assert await get(server, "/readyz") == (b"200", b'{"status":"ready"}')
    assert await get(server, "/metrics") == (b"200", b"records 7\n")


async def test_readiness_and_metrics_are_for_insiders(server: EdgeServer, worker: Worker) -> None:
    worker.is_ready = True
    forwarded = "X-Forwarded-For: 192.0.2.1\r\n"
    assert (await get(server, "/readyz", forwarded))[0] == b"404"
    assert (await get(server, "/metrics", forwarded))[0] == b"404"
    assert (await get(server, "/healthz", forwarded))[0] == b"200"
    token = forwarded + "Authorization: Bearer a-token-for-probes\r\n"
    assert (await get(server, "/readyz", token))[0] == b"200"
    assert (await get(server, "/metrics", token))[0] == b"200"


async def test_everything_else_is_told_to_go_to_a_gateway(server: EdgeServer) -> None:
    status, body = await get(server, "/api/v1/chats")
    assert status == b"404"
    assert "gateway" in json.loads(body)["message"]
    peer = await RawPeer.connect(server.port)
    head = await peer.upgrade()
    assert head.startswith(b"HTTP/1.1 404 ")
    assert "gateway" in json.loads(await peer.reader.read())["message"]
    await peer.end()
