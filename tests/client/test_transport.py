"""The client's socket against a server that is played byte by byte."""

import asyncio
import base64
import hashlib
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from tests.edge.raw import CLOSE, CONTINUATION, TEXT, RawPeer, frame
from tidewire.client.transport import Received, Socket
from tidewire.domain.ids import ChatId
from tidewire.domain.limits import BATCH_FRAMES_MAX, FRAME_BYTES_MAX
from tidewire.wire.client_frames import AckFrame, AckPayload
from tidewire.wire.codec import UnknownFrame, encode_client_frame

GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
ACK = AckFrame(
    payload=AckPayload(chat_id=ChatId("chat_01M7H2W3VZQ4JXEQSD4X73JHRV"), last_acked_sequence=7)
)


async def answer(peer: RawPeer) -> None:
    head = await peer.head()
    key = head.lower().split(b"sec-websocket-key: ")[1]
    key = head[len(head) - len(key) :].split(b"\r\n")[0]
    accept = base64.b64encode(hashlib.sha1(key + GUID).digest())
    peer.send(
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Accept: " + accept + b"\r\n\r\n"
    )


@asynccontextmanager
async def conversing(
    on_frame: Callable[[Received], None] = lambda _: None,
) -> AsyncIterator[tuple[Socket, RawPeer]]:
    """A socket of the client, and the server's end of it."""
    came: asyncio.Queue[RawPeer] = asyncio.Queue()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer = RawPeer(reader, writer)
        await answer(peer)
        came.put_nowait(peer)

    async with asyncio.timeout(20), await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        socket = Socket(on_frame=on_frame, on_end=lambda _: None)
        await socket.open(f"ws://127.0.0.1:{port}/v1/ws", headers={}, timeout_s=5, ssl_context=None)
        peer = await came.get()
        yield socket, peer
        socket.let_go(1000)
        await peer.end()
        await socket.gone()


def acks(count: int) -> list[AckFrame]:
    payloads = [
        AckPayload(chat_id=ChatId("chat_1"), last_acked_sequence=n + 1) for n in range(count)
    ]
    return [AckFrame(payload=payload) for payload in payloads]


async def test_frames_of_one_turn_go_together_if_the_server_takes_arrays() -> None:
    async with conversing() as (socket, peer):
        one, two, three = acks(3)
        socket.send(one)
        socket.send(two)
        assert [await peer.masked() for _ in range(2)] == [
            (TEXT, encode_client_frame(one)),
            (TEXT, encode_client_frame(two)),
        ]
        socket.is_batching = True
        socket.send(one)
        socket.send(two)
        await asyncio.sleep(0)
        socket.send(three)
        both = b"[" + encode_client_frame(one) + b"," + encode_client_frame(two) + b"]"
        assert await peer.masked() == (TEXT, both)
        assert await peer.masked() == (TEXT, encode_client_frame(three))


async def test_array_keeps_its_bounds_and_what_is_over_follows() -> None:
    async with conversing() as (socket, peer):
        socket.is_batching = True
        for one in acks(BATCH_FRAMES_MAX + 2):
            socket.send(one)
        sizes = [len(json.loads((await peer.masked())[1])) for _ in range(2)]
        assert sizes == [BATCH_FRAMES_MAX, 2]
        large = "x" * 30_000
        for _ in range(3):
            payload = AckPayload(chat_id=ChatId(large), last_acked_sequence=1)
            socket.send(AckFrame(payload=payload))
        _, first = await peer.masked()
        _, second = await peer.masked()
        assert len(first) <= FRAME_BYTES_MAX
        assert (len(json.loads(first)), json.loads(second)["type"]) == (2, "ack")


async def test_what_was_gathered_leaves_before_the_goodbye() -> None:
    async with conversing() as (socket, peer):
        socket.is_batching = True
        for one in acks(2):
            socket.send(one)
        socket.let_go(1000)
        assert len(json.loads((await peer.masked())[1])) == 2
        assert (await peer.masked())[0] == CLOSE


async def test_what_the_last_words_call_for_leaves_before_the_answer_to_a_close() -> None:
    """`connection_closing` and the close come in one read: what is on the disk is told all the
    same."""
    sockets: list[Socket] = []

    def acknowledge(_: Received) -> None:
        sockets[0].send(ACK)

    async with conversing(acknowledge) as (socket, peer):
        sockets.append(socket)
        socket.is_batching = True
        last_words = frame(TEXT, b'{"type":"of-the-end"}', mask=False)
        peer.send(last_words + frame(CLOSE, b"\x03\xe8", mask=False))
        assert await peer.masked() == (TEXT, encode_client_frame(ACK))
        assert (await peer.masked())[0] == CLOSE


@pytest.mark.parametrize("parts", [1, 3])
async def test_array_is_heard_frame_by_frame_until_the_socket_is_let_go(parts: int) -> None:
    heard: asyncio.Queue[Received] = asyncio.Queue()
    async with conversing(heard.put_nowait) as (socket, peer):
        array = json.dumps([{"type": f"of-year-{n}"} for n in range(5)]).encode()
        step = -(-len(array) // parts)
        for at in range(0, len(array), step):
            kind = TEXT if at == 0 else CONTINUATION
            is_last = at + step >= len(array)
            peer.send(frame(kind, array[at : at + step], fin=is_last, mask=False))
        for number in range(5):
            assert await heard.get() == UnknownFrame(f"of-year-{number}")

        def once(said: Received) -> None:
            heard.put_nowait(said)
            socket.let_go(1000)

        socket._on_frame = once
        peer.send(frame(TEXT, array, mask=False))
        assert (await peer.masked())[0] == CLOSE
        assert heard.qsize() == 1


async def test_last_words_arrive_although_the_server_has_not_been_listened_to() -> None:
    """A socket closed over unread bytes is reset, and the server loses what it has not read."""
    heard: asyncio.Queue[tuple[int, bytes]] = asyncio.Queue()
    is_left = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer = RawPeer(reader, writer)
        await answer(peer)
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        await is_left.wait()
        for _ in range(100):
            writer.write(bytes([0x80 | TEXT, 2]) + b"{}")
        await asyncio.sleep(0.1)
        writer.transport.resume_reading()  # type: ignore[attr-defined]
        while True:
            opcode, payload = await peer.masked()
            heard.put_nowait((opcode, payload))
            if opcode == CLOSE:
                break
        writer.write(bytes([0x80 | CLOSE, 2]) + payload)
        await peer.end()

    async with asyncio.timeout(10), await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        socket = Socket(on_frame=lambda _: None, on_end=lambda _: None)
        await socket.open(f"ws://127.0.0.1:{port}/v1/ws", headers={}, timeout_s=5, ssl_context=None)
        socket.pause()
        socket.send(ACK)
        socket.let_go(1000)
        is_left.set()
        assert await heard.get() == (TEXT, bytes(encode_client_frame(ACK)))
        assert await heard.get() == (CLOSE, (1000).to_bytes(2, "big"))
        await socket.gone()
        assert socket.is_gone


async def test_server_that_never_says_goodbye_is_left_all_the_same() -> None:
    is_over = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await answer(RawPeer(reader, writer))
        await is_over.wait()
        writer.close()

    async with asyncio.timeout(10), await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        socket = Socket(on_frame=lambda _: None, on_end=lambda _: None)
        await socket.open(f"ws://127.0.0.1:{port}/v1/ws", headers={}, timeout_s=5, ssl_context=None)
        socket.let_go(1000)
        await socket.gone()
        assert socket.is_gone
        is_over.set()
