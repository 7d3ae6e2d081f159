"""Peers that break the rules: bad tokens, junk, half a request, silence. They must do no harm."""

import asyncio
import base64
import os
import random
import struct
from collections.abc import Awaitable, Callable
from typing import Final

from tidewire_bench.target import Person

ANSWER_S_MAX: Final = 10.0
PATIENCE_S: Final = 55.0
"""By then the server has to have closed the connection of such a peer."""
FRAME_BYTES_MAX: Final = 65_536
_TEXT: Final = 0x81
_BINARY: Final = 0x82

Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Vandal:
    """Breaks one rule at a time. Each method returns what the server did wrong, or nothing."""

    def __init__(self, port: int, person: Person, chance: random.Random) -> None:
        self._port = port
        self._person = person
        self._chance = chance

    @property
    def quick(self) -> list[Callable[[], Awaitable[str]]]:
        """The methods that take only a moment."""
        return [self.bad_token, self.no_http, self.junk, self.bad_frame, self.reset]

    async def bad_token(self) -> str:
        stream = await self._connect()
        answer = await self._upgrade(stream, token="not.a.token")  # noqa: S106 - that is the point
        await _close(stream)
        return "" if " 401 " in answer else f"a bad token was answered with {answer!r}"

    async def no_http(self) -> str:
        stream = await self._connect()
        stream[1].write(self._chance.randbytes(200) + b"\r\n\r\n")
        return await self._until_closed(stream, "bytes that are no HTTP")

    async def junk(self) -> str:
        """Send invalid frames, more of them than the server accepts."""
        stream = await self._connect()
        await self._upgrade(stream, token=self._person.token)
        for _ in range(12):
            stream[1].write(_masked(_TEXT, b'{"type": 17, "payload": [' + b"x" * 20))
        return await self._until_closed(stream, "invalid frames")

    async def bad_frame(self) -> str:
        stream = await self._connect()
        await self._upgrade(stream, token=self._person.token)
        kinds = (
            _masked(_BINARY, b"binary"),
            _masked(_TEXT, b"\xff\xfe"),
            _masked(_TEXT, b"x" * (FRAME_BYTES_MAX + 1)),
            b"\xf1\x80\x00\x00\x00\x00",
        )
        stream[1].write(self._chance.choice(kinds))
        return await self._until_closed(stream, "a frame against WebSocket's rules")

    async def reset(self) -> str:
        """Reset the connection in the middle of the handshake, or right after it."""
        stream = await self._connect()
        if self._chance.random() < 0.5:
            await self._upgrade(stream, token=self._person.token)
        else:
            stream[1].write(self._head(self._person.token))
        stream[1].transport.abort()
        return ""

    async def half_open(self) -> str:
        """Send half a head, and no more."""
        stream = await self._connect()
        stream[1].write(self._head(self._person.token)[:60])
        return await self._until_closed(stream, "half a request")

    async def mute(self) -> str:
        """Connect, but answer no ping."""
        stream = await self._connect()
        answer = await self._upgrade(stream, token=self._person.token)
        if " 101 " not in answer:
            await _close(stream)
            return f"a good handshake was answered with {answer!r}"
        return await self._until_closed(stream, "a peer that answers no ping")

    async def _connect(self) -> Stream:
        return await asyncio.open_connection("127.0.0.1", self._port)

    def _head(self, token: str) -> bytes:
        key = base64.b64encode(os.urandom(16)).decode()
        return (
            f"GET /v1/ws HTTP/1.1\r\nHost: 127.0.0.1:{self._port}\r\nUpgrade: websocket\r\n"
            f"Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\n"
            f"Authorization: Bearer {token}\r\nX-Device-ID: {self._person.device_id}\r\n\r\n"
        ).encode()

    async def _upgrade(self, stream: Stream, *, token: str) -> str:
        """The first line of the answer."""
        stream[1].write(self._head(token))
        try:
            head = await asyncio.wait_for(stream[0].readuntil(b"\r\n\r\n"), ANSWER_S_MAX)
        except (TimeoutError, OSError, asyncio.IncompleteReadError) as error:
            return repr(error)
        return head.partition(b"\r\n")[0].decode()

    async def _until_closed(self, stream: Stream, what: str) -> str:
        try:
            async with asyncio.timeout(PATIENCE_S):
                while await stream[0].read(65_536):
                    pass
        except TimeoutError:
            return f"{what} did not end the connection in {PATIENCE_S} s"
        except OSError:
            # Reset: closed as well.
            return ""
        finally:
            await _close(stream)
        return ""


async def _close(stream: Stream) -> None:
    stream[1].transport.abort()


def _masked(first: int, payload: bytes) -> bytes:
    """A client's frame. The mask of zeros changes nothing, and is legal."""
    size = len(payload)
    if size < 126:
        length = struct.pack("!B", 0x80 | size)
    elif size < 65_536:
        length = struct.pack("!BH", 0x80 | 126, size)
    else:
        length = struct.pack("!BQ", 0x80 | 127, size)
    return struct.pack("!B", first) + length + b"\0\0\0\0" + payload
