"""The server that the kit plays: who offers arrays is sent arrays, and no other client is."""

import asyncio
import json

import pytest

from tests.edge.raw import TEXT, RawPeer, frame
from tidewire_conformance.connection import UNREADABLE
from tidewire_conformance.server import PlayedServer

HEARTBEAT = {"type": "heartbeat", "payload": {}}


async def introduced(server: PlayedServer, more: str) -> tuple[RawPeer, list[str]]:
    """A client that offers this, and what it is told to be on."""
    peer = await RawPeer.upgraded(server._listener.port, more)
    established = json.loads((await peer.receive())[1])
    assert json.loads((await peer.receive())[1])["type"] == "chat_digest"
    return peer, established["payload"].get("features", [])


@pytest.mark.parametrize(
    ("more", "is_on"),
    [
        ("", False),
        ("X-Tidewire-Features: of-next-year\r\n", False),
        ("X-Tidewire-Features: of-next-year, batch\r\n", True),
        ("Sec-WebSocket-Protocol: tidewire.v1, with.batch\r\n", True),
    ],
)
async def test_arrays_go_to_those_who_offer_them(more: str, *, is_on: bool) -> None:
    server = PlayedServer()
    await server.open()
    try:
        async with asyncio.timeout(10):
            chat = server.truth.new_chat()
            peer, features = await introduced(server, more)
            assert features == (["batch"] if is_on else [])
            server.say_many(chat, 3)
            said = json.loads((await peer.receive())[1])
            assert (len(said) if isinstance(said, list) else said["type"]) == (
                3 if is_on else "message"
            )
            peer.send(frame(TEXT, json.dumps([HEARTBEAT, HEARTBEAT]).encode()))
            peer.send(frame(TEXT, json.dumps([]).encode()))
            assert await server.until(lambda: bool(server.of(UNREADABLE)), 10)
            assert await server.until(lambda: len(server.heard) == (3 if is_on else 2), 10), (
                server.heard
            )
            assert len(server.of("heartbeat")) == (2 if is_on else 0)
            await peer.end()
    finally:
        await server.close()
