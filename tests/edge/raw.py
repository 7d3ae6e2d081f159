"""A WebSocket peer that does as it is told, right or wrong, on a plain socket."""

import asyncio
import base64
import os
import ssl
import struct

from tidewire.edge.server import EdgeServer

PATIENCE_S = 30.0

TEXT, BINARY, CONTINUATION, CLOSE, PING, PONG = 0x1, 0x2, 0x0, 0x8, 0x9, 0xA

UPGRADE = (
    "GET /v1/ws HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\n"
    "Authorization: Bearer good\r\n{more}\r\n"
)


class RawPeer:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @classmethod
    async def connect(cls, port: int, tls: ssl.SSLContext | None = None) -> "RawPeer":
        return cls(*await asyncio.open_connection("127.0.0.1", port, ssl=tls))

    @classmethod
    async def upgraded(
        cls, port: int, more: str = "", tls: ssl.SSLContext | None = None
    ) -> "RawPeer":
        peer = await cls.connect(port, tls)
        head = await peer.upgrade(more)
        assert head.startswith(b"HTTP/1.1 101 "), head
        return peer

    async def upgrade(self, more: str = "") -> bytes:
        """Ask for a WebSocket; the head of the answer."""
        self.ask(more)
        return await self.head()

    def ask(self, more: str = "") -> None:
        key = base64.b64encode(os.urandom(16)).decode()
        self.send(UPGRADE.format(key=key, more=more).encode())

    async def head(self) -> bytes:
        return await self.reader.readuntil(b"\r\n\r\n")

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    def frame(self, opcode: int, payload: bytes = b"", *, fin: bool = True, rsv: int = 0) -> None:
        self.send(frame(opcode, payload, fin=fin, rsv=rsv))

    async def masked(self) -> tuple[int, bytes]:
        """The next frame of a client, if it is a short one."""
        first, second = await self.reader.readexactly(2)
        size = second & 0x7F
        if size == 126:
            (size,) = struct.unpack("!H", await self.reader.readexactly(2))
        mask = await self.reader.readexactly(4)
        payload = await self.reader.readexactly(size)
        return first & 0xF, bytes(byte ^ mask[at % 4] for at, byte in enumerate(payload))

    async def receive(self) -> tuple[int, bytes]:
        """The next frame: opcode and payload."""
        first, second = await self.reader.readexactly(2)
        size = second & 0x7F
        if size == 126:
            (size,) = struct.unpack("!H", await self.reader.readexactly(2))
        elif size == 127:
            (size,) = struct.unpack("!Q", await self.reader.readexactly(8))
        return first & 0xF, await self.reader.readexactly(size)

    async def close_code(self) -> int:
        """Wait for the server's close frame, answer it, and wait for the end."""
        while True:
            opcode, payload = await self.receive()
            if opcode == CLOSE:
                break
        self.frame(CLOSE, payload[:2])
        assert await self.reader.read() == b""
        (code,) = struct.unpack("!H", payload[:2])
        return int(code)

    async def end(self) -> None:
        self.writer.close()
        await self.writer.wait_closed()


def frame(
    opcode: int, payload: bytes, *, fin: bool = True, rsv: int = 0, mask: bool = True
) -> bytes:
    head = bytes([(0x80 if fin else 0) | rsv << 4 | opcode])
    flag = 0x80 if mask else 0
    if len(payload) < 126:
        head += bytes([flag | len(payload)])
    elif len(payload) < 65_536:
        head += bytes([flag | 126]) + struct.pack("!H", len(payload))
    else:
        head += bytes([flag | 127]) + struct.pack("!Q", len(payload))
    if not mask:
        return head + payload
    key = os.urandom(4)
    return head + key + bytes(byte ^ key[index % 4] for index, byte in enumerate(payload))


async def all_gone(server: EdgeServer) -> None:
    """Wait until no connection is left: some linger for a second, and no test may find another
    one's sockets."""
    for _ in range(int(PATIENCE_S / 0.01)):
        if not server._doors._inside:
            return
        await asyncio.sleep(0.01)
    raise AssertionError("a connection is still there")
