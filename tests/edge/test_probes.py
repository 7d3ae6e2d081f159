"""What a process that serves nobody still answers."""

import asyncio
import json
from collections.abc import AsyncIterator

import pytest

from tests.edge.raw import RawPeer
from tidewire.domain.errors import Unavailable
from tidewire.edge.options import EdgeOptions
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
    probes = Probes(check_ready=worker.check, metrics=lambda: b"records 7\n")
    server = EdgeServer(probes, gateway=NoGateway(), tasks=tasks, options=EdgeOptions(port=0))
    await server.start()
    yield server
    await server.stop_accepting()
    await server.stop()
    await tasks.close()


async def get(server: EdgeServer, path: str) -> tuple[bytes, bytes]:
    async with asyncio.timeout(10):
        peer = await RawPeer.connect(server.port)
        peer.send(f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
        head, _, body = (await peer.reader.read()).partition(b"\r\n\r\n")
        await peer.end()
    return head.split(b" ")[1], body


async def test_probes_tell_health_readiness_and_metrics(server: EdgeServer, worker: Worker) -> None:
    assert await get(server, "/healthz") == (b"200", b'{"status":"ok"}')
    assert await get(server, "/readyz") == (b"503", b'{"status":"not ready"}')
    worker.is_ready = True
    assert await get(server, "/readyz") == (b"200", b'{"status":"ready"}')
    assert await get(server, "/metrics") == (b"200", b"records 7\n")


async def test_everything_else_is_told_to_go_to_a_gateway(server: EdgeServer) -> None:
    status, body = await get(server, "/api/v1/chats")
    assert status == b"404"
    assert "gateway" in json.loads(body)["message"]
    peer = await RawPeer.connect(server.port)
    head = await peer.upgrade()
    assert head.startswith(b"HTTP/1.1 404 ")
    assert "gateway" in json.loads(await peer.reader.read())["message"]
    await peer.end()
