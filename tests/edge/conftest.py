"""A real server on a real port, with a gateway that says what it heard."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tests.edge.raw import all_gone
from tidewire.domain.ids import SessionId, UserId
from tidewire.edge.options import EdgeOptions
from tidewire.edge.server import EdgeServer
from tidewire.ports.transport import (
    Admission,
    HandshakeRefusal,
    SocketListener,
    SocketTransport,
    UpgradeRequest,
)
from tidewire.runtime.supervise import TaskSupervisor
from tidewire.wire.framing import frame_text


class Conversation:
    """Echoes text, and keeps what it was told."""

    def __init__(self, transport: SocketTransport) -> None:
        self.transport = transport
        self.texts: list[bytes] = []
        self.pongs = 0
        self.drains = 0
        self.is_lost = asyncio.Event()
        self.is_closed_by_peer = False
        self.heard = asyncio.Event()

    def text_received(self, payload: bytes | memoryview) -> int:
        self.texts.append(bytes(payload))
        self.transport.write(frame_text(bytes(payload)))
        # An array counts by its elements.
        return 1 + bytes(payload).count(b",") if payload[:1] == b"[" else 1

    def pong_received(self) -> None:
        self.pongs += 1
        self.heard.set()

    def drained(self) -> None:
        self.drains += 1
        self.heard.set()

    def overrun(self) -> None:
        self.transport.close(1013, "rate_limited")

    def lost(self, *, is_closed_by_peer: bool = False) -> None:
        assert not self.is_lost.is_set(), "told twice"
        self.is_closed_by_peer = is_closed_by_peer
        self.is_lost.set()


class EchoGateway:
    """Admits whoever has a token, unless a test says otherwise."""

    def __init__(self) -> None:
        self.requests: list[UpgradeRequest] = []
        self.conversations: list[Conversation] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.asked = asyncio.Event()
        self.is_broken = False

    async def authorise(self, request: UpgradeRequest) -> Admission | HandshakeRefusal:
        self.requests.append(request)
        self.asked.set()
        await self.gate.wait()
        if self.is_broken:
            raise RuntimeError("secret inside")
        if request.headers.get("authorization") != "Bearer good":
            return HandshakeRefusal(http_status=401, error="invalid_token", message="bad token")
        return Admission(
            user_id=UserId("user_ann"),
            session_id=SessionId("sess_1"),
            device_id="device",
            token_expires_at_ms=0,
            client_ip=request.client_ip,
            subprotocol="tidewire.v1" if "sec-websocket-protocol" in request.headers else None,
        )

    def connected(self, admission: Admission, transport: SocketTransport) -> SocketListener:
        conversation = Conversation(transport)
        self.conversations.append(conversation)
        return conversation


async def hello_app(scope: dict[str, object], receive: object, send: object) -> None:
    """The smallest thing that answers HTTP."""
    assert callable(send)
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"hello"})


@pytest.fixture
def gateway() -> EchoGateway:
    return EchoGateway()


@pytest.fixture
async def server(gateway: EchoGateway) -> AsyncIterator[EdgeServer]:
    async with edge_server(gateway, EdgeOptions(port=0)) as server:
        yield server


@asynccontextmanager
async def edge_server(gateway: EchoGateway, options: EdgeOptions) -> AsyncIterator[EdgeServer]:
    logging.getLogger("tidewire.edge.websocket").setLevel(logging.CRITICAL)
    tasks = TaskSupervisor()
    server = EdgeServer(hello_app, gateway=gateway, tasks=tasks, options=options)
    await server.start()
    yield server
    await server.stop_accepting()
    await all_gone(server)
    await server.stop()
    await tasks.close()
