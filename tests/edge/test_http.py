"""What an HTTP connection may cost: heads, pipelines, answers that nobody reads, connections."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.edge.conftest import EchoGateway
from tests.edge.raw import RawPeer, all_gone
from tidewire.edge.http import (
    FRAMING_BYTES_MAX,
    HEAD_BYTES_MAX,
    HEAD_FIELDS_MAX,
    LINGER_BYTES_MAX,
)
from tidewire.edge.options import EdgeOptions
from tidewire.edge.server import EdgeServer
from tidewire.runtime.supervise import TaskSupervisor

GET = b"GET /%d HTTP/1.1\r\nHost: localhost\r\n\r\n"
CHUNKED = b"POST /%s HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
PATIENCE_S = 10.0


class Desk:
    """An application that answers when it is told to, and knows what it was asked."""

    def __init__(self, body: bytes = b"hello") -> None:
        self.body = body
        self.asked: list[str] = []
        self.headers: list[tuple[bytes, bytes]] = []
        self.open_count = 0
        self.may_answer = asyncio.Event()
        self.may_answer.set()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.asked.append(scope["path"])
        self.headers = list(scope["headers"])
        self.open_count += 1
        more = scope["method"] == "POST" and scope["path"] != "/unread"
        while more:
            more = (await receive())["more_body"]
        await self.may_answer.wait()
        length = str(len(self.body)).encode()
        headers = [(b"content-length", length)]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": self.body})
        self.open_count -= 1

    async def until(self, is_so: Callable[[], bool]) -> None:
        for _ in range(int(PATIENCE_S / 0.005)):
            if is_so():
                return
            await asyncio.sleep(0.005)
        raise AssertionError("it did not come to that")


@asynccontextmanager
async def serving(desk: Desk, **named: Any) -> AsyncIterator[EdgeServer]:
    tasks = TaskSupervisor()
    options = EdgeOptions(port=0, **named)
    server = EdgeServer(desk, gateway=EchoGateway(), tasks=tasks, options=options)
    await server.start()
    try:
        yield server
    finally:
        await server.stop_accepting()
        await all_gone(server)
        await server.stop()
        await tasks.close()


async def status_of(peer: RawPeer) -> int:
    async with asyncio.timeout(PATIENCE_S):
        head = await peer.head()
    return int(head.split(b" ")[1])


async def read_all(peer: RawPeer) -> int:
    """Read until the server ends the connection; how much came."""
    came = 0
    try:
        async with asyncio.timeout(PATIENCE_S):
            while data := await peer.reader.read(65_536):
                came += len(data)
    except ConnectionError:
        pass
    return came


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (b"X: " + b"a" * (HEAD_BYTES_MAX - 200) + b"\r\n", 200),
        (b"X: " + b"a" * HEAD_BYTES_MAX + b"\r\n", 431),
        (b"X: a\r\n" * (HEAD_FIELDS_MAX - 1), 200),
        (b"X: a\r\n" * HEAD_FIELDS_MAX, 431),
        (b"X Y\r\n", 400),
    ],
)
async def test_head_has_a_bound(head: bytes, status: int) -> None:
    desk = Desk()
    async with serving(desk) as server:
        peer = await RawPeer.connect(server.port)
        peer.send(b"GET / HTTP/1.1\r\nHost: localhost\r\n" + head + b"\r\n")
        assert await status_of(peer) == status
        if status != 200:
            await read_all(peer)
            assert desk.asked == []
        await peer.end()


async def test_head_that_dribbles_in_is_cut_off() -> None:
    async with serving(Desk(), header_timeout_ms=300) as server:
        peer = await RawPeer.connect(server.port)
        peer.send(b"GET / HTTP/1.1\r\nHost: ")
        assert await read_all(peer) == 0
        await peer.end()


async def test_head_in_parts_has_the_same_bound() -> None:
    async with serving(Desk(), header_timeout_ms=60_000) as server:
        peer = await RawPeer.connect(server.port)
        peer.send(b"GET / HTTP/1.1\r\nX: ")
        for _ in range(33):
            peer.send(b"a" * 1_024)
            await asyncio.sleep(0.001)
        assert await status_of(peer) == 431
        await peer.end()


async def test_refusal_reaches_a_peer_that_is_still_sending() -> None:
    """A socket that is closed over unread bytes is reset, and the reset overtakes the answer."""
    async with serving(Desk()) as server:
        peer = await RawPeer.connect(server.port)
        peer.send(b"GET / HTTP/1.1\r\nX: " + b"a" * HEAD_BYTES_MAX)
        for _ in range(4):
            peer.send(b"a" * 1_024)
            await asyncio.sleep(0.05)
        assert await status_of(peer) == 431
        await peer.end()


async def test_peer_that_is_refused_and_goes_on_is_closed() -> None:
    async with serving(Desk()) as server:
        peer = await RawPeer.connect(server.port)
        peer.send(b"GET / HTTP/1.1\r\nX: " + b"a" * (HEAD_BYTES_MAX + LINGER_BYTES_MAX))

        async def send_on() -> None:
            while True:
                peer.send(b"a" * 65_536)
                await peer.writer.drain()
                await asyncio.sleep(0)

        with pytest.raises(ConnectionError):
            await asyncio.wait_for(send_on(), PATIENCE_S)


async def test_peer_that_is_refused_and_stays_is_closed() -> None:
    async with serving(Desk()) as server:
        peer = await RawPeer.connect(server.port)
        peer.send(b"GET / HTTP/1.1\r\nX: " + b"a" * HEAD_BYTES_MAX)
        assert await status_of(peer) == 431
        # It reads the end of what the server says, but does not close.
        await read_all(peer)
        await all_gone(server)
        await peer.end()


async def test_requests_are_answered_in_order_one_at_a_time() -> None:
    desk = Desk()
    async with serving(desk) as server:
        desk.may_answer.clear()
        peer = await RawPeer.connect(server.port)
        posted = b"POST /1 HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nabcde"
        chunked = (
            b"POST /2 HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
            b"4\r\n\r\n\r\n\r\n0\r\n\r\n"
        )
        peer.send(GET % 0 + posted + chunked + GET % 3 + GET % 4)
        await desk.until(lambda: desk.open_count == 1)
        await asyncio.sleep(0.05)
        assert desk.asked == ["/0"]
        desk.may_answer.set()
        for _ in range(5):
            assert await status_of(peer) == 200
            assert await peer.reader.readexactly(5) == b"hello"
        assert desk.asked == ["/0", "/1", "/2", "/3", "/4"]
        await peer.end()


@pytest.mark.parametrize("size", [1, 2, 3, 5, 7, 30])
async def test_requests_in_parts_of_any_size_are_the_same_requests(size: int) -> None:
    desk = Desk()
    chunked = (
        b"POST /1 HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"
    )
    async with serving(desk) as server:
        peer = await RawPeer.connect(server.port)
        data = GET % 0 + chunked + GET % 2
        for at in range(0, len(data), size):
            peer.send(data[at : at + size])
            await peer.writer.drain()
            await asyncio.sleep(0)
        for _ in range(3):
            assert await status_of(peer) == 200
            assert await peer.reader.readexactly(5) == b"hello"
        assert desk.asked == ["/0", "/1", "/2"]
        await peer.end()


async def test_what_comes_before_an_answer_waits_in_the_kernel() -> None:
    desk = Desk()
    async with serving(desk) as server:
        desk.may_answer.clear()
        peer = await RawPeer.connect(server.port)
        peer.writer.transport.set_write_buffer_limits(high=0)
        peer.send(GET % 0)
        await desk.until(lambda: desk.open_count == 1)
        sent = 0

        async def go_on() -> None:
            nonlocal sent
            while True:
                peer.send(GET % 1 * 1_000)
                await peer.writer.drain()
                sent += 1

        with pytest.raises(TimeoutError):
            await asyncio.wait_for(go_on(), 0.5)
        # What both kernels hold, and one read of ours.
        assert sent * 37_000 < 8_000_000
        assert desk.asked == ["/0"]
        peer.writer.transport.abort()
        desk.may_answer.set()


@pytest.mark.parametrize(
    "request_bytes",
    [
        GET % 0,
        b"GET /0 HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
        b"GET /0 HTTP/1.0\r\n\r\n",
        b"POST /unread HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n",
    ],
    ids=["kept", "close", "1.0", "body too slow"],
)
async def test_answer_that_is_not_read_ends_the_connection(request_bytes: bytes) -> None:
    desk = Desk(b"a" * 8_000_000)
    async with serving(desk, answer_timeout_ms=200, header_timeout_ms=1_000) as server:
        peer = await RawPeer.connect(server.port)
        peer.writer.transport.pause_reading()  # type: ignore[attr-defined]
        peer.send(request_bytes)
        await desk.until(lambda: len(desk.asked) == 1)
        await all_gone(server)
        peer.writer.transport.resume_reading()  # type: ignore[attr-defined]
        assert await read_all(peer) < 8_000_000
        peer.writer.transport.abort()


async def test_answer_that_is_read_slowly_is_read_to_its_end() -> None:
    desk = Desk(b"a" * 16_000_000)
    async with serving(desk, answer_timeout_ms=1_500) as server:
        peer = await RawPeer.connect(server.port)
        # The second one closes, and is read to its end all the same.
        peer.send(GET % 0 + b"GET /1 HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        for _ in range(2):
            assert await status_of(peer) == 200
            # Longer than the timeout, but some of it leaves all the while.
            for _ in range(20):
                await peer.reader.readexactly(800_000)
                await asyncio.sleep(0.1)
        await peer.end()


async def test_body_that_was_answered_already_is_read_up_to_a_bound() -> None:
    desk = Desk()
    async with serving(desk) as server:
        peer = await RawPeer.connect(server.port)
        post = b"POST /unread HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n"
        peer.send(post % 20_000)
        assert await status_of(peer) == 200
        peer.send(b"a" * 20_000 + GET % 1)
        await peer.reader.readexactly(5)
        assert await status_of(peer) == 200
        await peer.reader.readexactly(5)
        peer.send(post % 10_000_000)
        assert await status_of(peer) == 200
        peer.send(b"a" * 200_000)
        await read_all(peer)
        peer.writer.transport.abort()


@pytest.mark.parametrize("path", [b"read", b"unread"])
@pytest.mark.parametrize("begin", [b"0\r\nX: ", b"0\r\nX", b"4;x=", b"4\r\naaaa\r\n0\r\nX: "])
async def test_what_is_around_a_body_has_a_bound(path: bytes, begin: bytes) -> None:
    desk = Desk()
    async with serving(desk, header_timeout_ms=60_000) as server:
        peer = await RawPeer.connect(server.port)
        peer.send(CHUNKED % path + begin)
        await desk.until(lambda: len(desk.asked) == 1)
        if path == b"unread":
            assert await status_of(peer) == 200
            await peer.reader.readexactly(5)
        for _ in range(FRAMING_BYTES_MAX // 1_000 + 1):
            peer.send(b"a" * 1_000)
            await asyncio.sleep(0.001)
        if path == b"read":
            assert await status_of(peer) == 431
            await read_all(peer)
        else:
            # What was answered already is not answered again.
            assert await read_all(peer) == 0
        peer.writer.transport.abort()


async def test_body_of_many_chunks_with_a_trailer_is_read() -> None:
    desk = Desk()
    async with serving(desk) as server:
        peer = await RawPeer.connect(server.port)
        chunks = b"400\r\n" + b"a" * 1_024 + b"\r\n"
        trailer = b"0\r\nX: " + b"a" * 16_000 + b"\r\n\r\n"
        for _ in range(3):
            peer.send(CHUNKED % b"read" + chunks * 200 + trailer)
            assert await status_of(peer) == 200
            await peer.reader.readexactly(5)
        await peer.end()


async def test_field_of_a_trailer_is_no_header() -> None:
    desk = Desk()
    async with serving(desk) as server:
        peer = await RawPeer.connect(server.port)
        fields = b"X-Forwarded-For: 203.0.113.7\r\nAuthorization: x\r\nY: z\r\n"
        peer.send(CHUNKED % b"read" + b"0\r\n" + fields + b"\r\n")
        assert await status_of(peer) == 200
        assert [name for name, _ in desk.headers] == [b"host", b"transfer-encoding"]
        await peer.end()


async def test_address_has_a_bound_on_its_connections() -> None:
    desk = Desk()
    async with serving(desk, address_http_connections_max=3) as server:
        peers = [await RawPeer.connect(server.port) for _ in range(3)]
        for peer in peers:
            peer.send(GET % 0)
            assert await status_of(peer) == 200
        refused = await RawPeer.connect(server.port)
        assert await status_of(refused) == 429
        await refused.end()
        await peers[0].end()
        await desk.until(lambda: server._doors.http_count == 2)
        another = await RawPeer.connect(server.port)
        another.send(GET % 0)
        assert await status_of(another) == 200
        for peer in (*peers[1:], another):
            await peer.end()


async def test_server_has_a_bound_on_its_connections() -> None:
    async with serving(Desk(), http_connections_max=2) as server:
        peers = [await RawPeer.connect(server.port) for _ in range(2)]
        # A WebSocket makes room.
        upgraded = peers.pop()
        assert (await upgraded.upgrade()).startswith(b"HTTP/1.1 101 ")
        peers.append(await RawPeer.connect(server.port))
        peers[-1].send(GET % 0)
        assert await status_of(peers[-1]) == 200
        refused = await RawPeer.connect(server.port)
        assert await status_of(refused) == 503
        for peer in (*peers, refused, upgraded):
            peer.writer.transport.abort()


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"this is not HTTP\r\n\r\n",
        b"GET / HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
    ],
    ids=["no HTTP", "malformed upgrade"],
)
async def test_address_that_sends_only_malformed_requests_is_not_answered_any_more(
    request_bytes: bytes,
) -> None:
    async with serving(Desk(), address_faults_per_minute=5) as server:
        answers = []
        for _ in range(7):
            peer = await RawPeer.connect(server.port)
            peer.send(request_bytes)
            try:
                answers.append(await status_of(peer))
            except (ConnectionError, asyncio.IncompleteReadError):
                answers.append(0)
            peer.writer.transport.abort()
        assert answers == [400] * 5 + [0] * 2


async def test_client_of_a_proxy_that_sends_only_malformed_upgrades_is_not_answered() -> None:
    named = {"address_faults_per_minute": 5, "trusted_proxies": ("127.0.0.1",)}

    async def answer_to(port: int, more: bytes) -> int:
        peer = await RawPeer.connect(port)
        peer.send(b"GET / HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n%s\r\n" % more)
        try:
            return await status_of(peer)
        except (ConnectionError, asyncio.IncompleteReadError):
            return 0
        finally:
            peer.writer.transport.abort()

    async with serving(Desk(), **named) as server:
        forwarded = b"X-Forwarded-For: 203.0.113.%d\r\n"
        answers = [await answer_to(server.port, forwarded % 7) for _ in range(7)]
        assert answers == [400] * 5 + [0] * 2
        peer = await RawPeer.connect(server.port)
        peer.ask("X-Forwarded-For: 203.0.113.7\r\n")
        assert await read_all(peer) == 0
        peer.writer.transport.abort()
        assert await answer_to(server.port, forwarded % 8) == 400
        # The proxy itself is never barred: all of its clients would be.
        assert [await answer_to(server.port, b"") for _ in range(7)] == [400] * 7
        upgraded = await RawPeer.upgraded(server.port)
        upgraded.writer.transport.abort()
