"""What a WebSocket may cost: every frame counts, whatever it is, and pongs wait for a reader."""

import asyncio
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.edge.conftest import EchoGateway, hello_app
from tests.edge.raw import CLOSE, CONTINUATION, PING, PONG, TEXT, RawPeer, all_gone, frame
from tidewire.edge.options import EdgeOptions
from tidewire.edge.server import EdgeServer
from tidewire.edge.websocket import FRAGMENTS_MAX
from tidewire.runtime.supervise import TaskSupervisor

PATIENCE_S = 30.0


@asynccontextmanager
async def serving(gateway: EchoGateway, **named: Any) -> AsyncIterator[EdgeServer]:
    tasks = TaskSupervisor()
    options = EdgeOptions(port=0, **named)
    server = EdgeServer(hello_app, gateway=gateway, tasks=tasks, options=options)
    await server.start()
    try:
        yield server
    finally:
        await server.stop_accepting()
        await all_gone(server)
        await server.stop()
        await tasks.close()


async def last_words(peer: RawPeer) -> int:
    """The close code that comes, whatever comes before it."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            opcode, payload = await peer.receive()
            if opcode == CLOSE:
                (code,) = struct.unpack("!H", payload[:2])
                return int(code)


FRAMES: dict[str, Callable[[], bytes]] = {
    "pings": lambda: frame(PING, b""),
    "pongs": lambda: frame(PONG, b""),
    "texts": lambda: frame(TEXT, b"x"),
    "arrays": lambda: frame(TEXT, b"[" + b",".join([b"0"] * 100) + b"]"),
    "fragments": lambda: frame(TEXT, b"", fin=False) + frame(CONTINUATION, b""),
}


@pytest.mark.parametrize("kind", FRAMES)
async def test_peer_that_sends_two_bursts_at_once_is_closed(kind: str) -> None:
    gateway = EchoGateway()
    async with serving(gateway, inbound_burst_bytes=200_000) as server:
        peer = await RawPeer.upgraded(server.port)
        one = FRAMES[kind]()
        peer.send(one * (1_000_000 // max(1_024, len(one))))
        assert await last_words(peer) == 1013
        await gateway.conversations[0].is_lost.wait()
        peer.writer.transport.abort()


async def test_frames_of_an_array_cost_what_they_cost_alone() -> None:
    """256 of them, 512 bytes together, are more than a burst of 200 kB."""
    gateway = EchoGateway()
    async with serving(gateway, inbound_burst_bytes=200_000) as server:
        peer = await RawPeer.upgraded(server.port)
        one, array = frame(TEXT, b"0" * 513), frame(TEXT, b"[" + b",".join([b"0"] * 256) + b"]")
        began_s = asyncio.get_running_loop().time()
        try:
            async with asyncio.timeout(PATIENCE_S):
                for text in (one, array, one):
                    peer.send(text)
                    assert (await peer.receive())[0] == TEXT
            # 64 kB more than the burst, at 1 MiB a second: what follows has to wait.
            assert asyncio.get_running_loop().time() - began_s > 0.05
            peer.send(array * 6)
            assert await last_words(peer) == 1013
        finally:
            peer.writer.transport.abort()


async def test_peer_that_is_too_fast_is_read_at_its_rate_and_heard_in_full() -> None:
    gateway = EchoGateway()
    async with serving(
        gateway, inbound_burst_bytes=100_000, inbound_bytes_per_second=100_000
    ) as server:
        peer = await RawPeer.upgraded(server.port)
        began_s = asyncio.get_running_loop().time()
        for number in range(180):
            peer.frame(TEXT, b"%d" % number)
        async with asyncio.timeout(PATIENCE_S):
            heard = [await peer.receive() for _ in range(180)]
        assert heard == [(TEXT, b"%d" % number) for number in range(180)]
        # All of them lie in one buffer, so it is what follows that has to wait.
        peer.frame(TEXT, b"after")
        assert await peer.receive() == (TEXT, b"after")
        took_s = asyncio.get_running_loop().time() - began_s
        assert took_s > 0.25
        await peer.end()


async def test_peer_that_goes_on_is_closed() -> None:
    gateway = EchoGateway()
    async with serving(
        gateway,
        inbound_burst_bytes=100_000,
        inbound_bytes_per_second=200_000,
        inbound_excess_ms_max=500,
    ) as server:
        peer = await RawPeer.upgraded(server.port)
        closing = asyncio.create_task(last_words(peer))
        while not closing.done():
            peer.send(frame(PONG, b"") * 20)
            await asyncio.sleep(0.02)
        assert await closing == 1013
        peer.writer.transport.abort()


async def test_pongs_wait_for_a_peer_that_reads_and_then_the_last_one_comes() -> None:
    gateway = EchoGateway()
    async with serving(gateway, inbound_burst_bytes=1_000_000_000) as server:
        peer = await RawPeer.upgraded(server.port)
        peer.writer.transport.pause_reading()  # type: ignore[attr-defined]
        conversation = gateway.conversations[0]
        # More than both kernels hold.
        conversation.transport.write(b"\x81\x7f" + struct.pack("!Q", 8_000_000) + b"x" * 8_000_000)
        unsent = conversation.transport.unsent_bytes()
        for number in range(3_000):
            peer.frame(PING, b"%d" % number)
        await peer.writer.drain()
        await asyncio.sleep(0.3)
        assert conversation.transport.unsent_bytes() <= unsent
        peer.writer.transport.resume_reading()  # type: ignore[attr-defined]
        async with asyncio.timeout(PATIENCE_S):
            assert (await peer.receive())[0] == TEXT
            assert await peer.receive() == (PONG, b"2999")
        await peer.end()


async def test_pings_of_one_turn_get_few_pongs_and_the_last_one_is_answered() -> None:
    gateway = EchoGateway()
    async with serving(gateway) as server:
        peer = await RawPeer.upgraded(server.port)
        peer.send(b"".join(frame(PING, b"%d" % number) for number in range(500)))
        pongs: list[tuple[int, bytes]] = []
        async with asyncio.timeout(PATIENCE_S):
            while not pongs or pongs[-1] != (PONG, b"499"):
                pongs.append(await peer.receive())
        assert len(pongs) < 100
        await peer.end()


@pytest.mark.parametrize(("parts", "is_taken"), [(FRAGMENTS_MAX, True), (FRAGMENTS_MAX + 1, False)])
async def test_message_has_at_most_so_many_parts(parts: int, *, is_taken: bool) -> None:
    gateway = EchoGateway()
    async with serving(gateway) as server:
        peer = await RawPeer.upgraded(server.port)
        peer.send(
            frame(TEXT, b"a", fin=False)
            + frame(CONTINUATION, b"", fin=False) * (parts - 2)
            + frame(CONTINUATION, b"b")
        )
        async with asyncio.timeout(PATIENCE_S):
            if is_taken:
                assert await peer.receive() == (TEXT, b"ab")
            else:
                assert await peer.close_code() == 1009
        await peer.end()
