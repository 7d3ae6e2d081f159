"""HTTP and WebSocket by hand: the server's side, as far as the kit needs it.

By hand, because the kit breaks the rules on purpose: it stops in the middle of a frame, closes
without a close frame, answers twice. A library would not allow that.
"""

import asyncio
import base64
import contextlib
import hashlib
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import parse_qs, urlsplit

from tidewire.wire.features import FEATURE_PREFIX, FEATURES_HEADER
from tidewire.wire.framing import frame_text

_ACCEPT_SUFFIX: Final = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_HEAD_BYTES_MAX: Final = 64 * 1024
_CONTINUATION, _TEXT, _BINARY, _CLOSE, _PING, _PONG = 0, 1, 2, 8, 9, 10


@dataclass(frozen=True, slots=True)
class Request:
    """A request's head, and its body. Names of headers are in lower case."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes

    @property
    def is_upgrade(self) -> bool:
        return self.headers.get("upgrade", "").lower() == "websocket"

    @property
    def protocols(self) -> list[str]:
        return self._names("sec-websocket-protocol")

    @property
    def features(self) -> list[str]:
        """What the client offers, by header or as subprotocols."""
        offered = [name for name in self.protocols if name.startswith(FEATURE_PREFIX)]
        named = [name.removeprefix(FEATURE_PREFIX) for name in offered]
        return self._names(FEATURES_HEADER.lower()) + named

    def _names(self, header: str) -> list[str]:
        names = self.headers.get(header, "").split(",")
        return [name.strip() for name in names if name.strip()]


@dataclass(frozen=True, slots=True)
class Response:
    status: int
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)


class Socket:
    """One open WebSocket. Writes to one that has ended are dropped without an error."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self.is_over = False

    def on_text(self, text: bytes) -> None:
        """A message has come."""

    def on_pong(self, payload: bytes) -> None:
        """The client has read the ping with this payload."""

    def on_end(self) -> None:
        """The connection has ended."""

    def send_text(self, text: bytes) -> None:
        self._write(frame_text(text))

    def send_part_of(self, text: bytes) -> None:
        """The first half of a frame, and then nothing: the connection ends."""
        framed = frame_text(text)
        self._write(framed[: len(framed) // 2])
        self.drop()

    def send_ping(self, payload: bytes) -> None:
        self._write(bytes((0x80 | _PING, len(payload))) + payload)

    def close(self, code: int) -> None:
        """Send a close frame, and end the connection."""
        self._write(bytes((0x80 | _CLOSE, 2)) + code.to_bytes(2, "big"))
        self.drop()

    def drop(self) -> None:
        """End the connection after the written bytes have left."""
        if not self.is_over:
            self.is_over = True
            self._writer.close()

    def cut(self) -> None:
        """End the connection at once, as a network failure does."""
        self.is_over = True
        self._writer.transport.abort()

    def _write(self, data: bytes) -> None:
        if not self.is_over and not self._writer.is_closing():
            self._writer.write(data)

    async def listen(self) -> None:
        """Read until the connection ends, at either side."""
        parts = bytearray()
        try:
            while True:
                is_last, kind, payload = await self._read_frame()
                if kind in (_TEXT, _BINARY, _CONTINUATION):
                    parts += payload
                    if is_last:
                        text, parts = bytes(parts), bytearray()
                        self.on_text(text)
                elif kind == _PING:
                    self._write(bytes((0x80 | _PONG, len(payload))) + payload)
                elif kind == _PONG:
                    self.on_pong(payload)
                elif kind == _CLOSE:
                    self._write(bytes((0x80 | _CLOSE, len(payload))) + payload)
                    return
        except (OSError, EOFError):
            return
        finally:
            self.drop()
            self.on_end()

    async def _read_frame(self) -> tuple[bool, int, bytes]:
        first, second = await self._reader.readexactly(2)
        size = second & 0x7F
        if size == 126:
            size = int.from_bytes(await self._reader.readexactly(2), "big")
        elif size == 127:
            size = int.from_bytes(await self._reader.readexactly(8), "big")
        mask = await self._reader.readexactly(4) if second & 0x80 else b"\0\0\0\0"
        payload = await self._reader.readexactly(size)
        plain = bytes(byte ^ mask[index & 3] for index, byte in enumerate(payload))
        return bool(first & 0x80), first & 0x0F, plain


class Listener:
    """A port on loopback. Each request goes to `answer`; if that returns None, to `opened`."""

    def __init__(
        self,
        *,
        answer: Callable[[Request], Awaitable[Response | None]],
        opened: Callable[[Request, asyncio.StreamReader, asyncio.StreamWriter], Socket],
    ) -> None:
        self._answer = answer
        self._opened = opened
        self._server: asyncio.Server | None = None
        self._writers: dict[asyncio.StreamWriter, asyncio.Future[None]] = {}
        self.port = 0

    async def open(self) -> None:
        self._server = await asyncio.start_server(
            self._serve, "127.0.0.1", self.port, limit=_HEAD_BYTES_MAX
        )
        self.port = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        """Accept no more connections, and end those that are open, as a process that dies does."""
        if self._server is None:
            return
        self._server.close()
        for writer in list(self._writers):
            writer.transport.abort()
        await asyncio.gather(*self._writers.values())
        await self._server.wait_closed()
        self._server = None

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._writers[writer] = ended
        try:
            await self._serve_requests(reader, writer)
        except (OSError, EOFError, asyncio.LimitOverrunError, ValueError):
            pass
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()
            del self._writers[writer]
            ended.set_result(None)

    async def _serve_requests(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        while True:
            request = await _read_request(reader)
            response = await self._answer(request)
            if response is None:
                key = request.headers.get("sec-websocket-key", "").encode()
                accept = base64.b64encode(
                    hashlib.sha1(key + _ACCEPT_SUFFIX, usedforsecurity=False).digest()
                ).decode()
                chosen = "Sec-WebSocket-Protocol: tidewire.v1\r\n"
                writer.write(
                    "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n"
                    "Connection: Upgrade\r\n"
                    f"{chosen if 'tidewire.v1' in request.protocols else ''}"
                    f"Sec-WebSocket-Accept: {accept}\r\n\r\n".encode()
                )
                await self._opened(request, reader, writer).listen()
                return
            writer.write(_encoded(response))
            await writer.drain()


async def _read_request(reader: asyncio.StreamReader) -> Request:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    first, *lines = head.rstrip("\r\n").split("\r\n")
    method, target, _ = first.split(" ", 2)
    headers = {
        name.strip().lower(): value.strip()
        for name, _, value in (line.partition(":") for line in lines)
    }
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    url = urlsplit(target)
    query = {name: values[0] for name, values in parse_qs(url.query).items()}
    return Request(method, url.path, query, headers, body)


def _encoded(response: Response) -> bytes:
    headers = {
        "Content-Type": "application/json",
        "Content-Length": str(len(response.body)),
        **response.headers,
    }
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"HTTP/1.1 {response.status} Answer\r\n{lines}\r\n".encode() + response.body
