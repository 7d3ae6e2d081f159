"""The client's socket against a server that is played byte by byte."""

import asyncio
import base64
import hashlib

from tests.edge.raw import CLOSE, TEXT, RawPeer
from tidewire.client.transport import Socket
from tidewire.domain.ids import ChatId
from tidewire.wire.client_frames import AckFrame, AckPayload
from tidewire.wire.codec import encode_client_frame

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
