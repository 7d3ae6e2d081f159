"""A relay between an engine and DynamoDB Local: reads requests, asks the database, answers.

By itself it passes everything on. Two subclasses override `exchange`: the counter of `counting`,
and the proxy of the tests, which does what the real service does and the local one never does.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any, Final, NamedTuple, Self

HEAD_END: Final = b"\r\n\r\n"
UPSTREAM_SECONDS_MAX: Final = 30
TARGET: Final = "DynamoDB_20120810."

Body = dict[str, Any]
Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Request(NamedTuple):
    """A request of DynamoDB's protocol."""

    head: bytes
    content: bytes

    @property
    def operation(self) -> str:
        return header(self.head, "x-amz-target").rpartition(".")[2]

    @property
    def body(self) -> Body:
        body: Body = json.loads(self.content) if self.content else {}
        return body

    def asking(self, operation: str, body: Body) -> "Request":
        """Another request, with the same credentials. DynamoDB Local does not check what was
        signed."""
        content = json.dumps(body).encode()
        lines = self.head.decode("latin-1").rstrip("\r\n").split("\r\n")
        dropped = ("x-amz-target", "content-length")
        kept = [line for line in lines if not line.lower().startswith(dropped)]
        kept += [f"X-Amz-Target: {TARGET}{operation}", f"Content-Length: {len(content)}"]
        return Request("\r\n".join(kept).encode("latin-1") + HEAD_END, content)


class Answer(NamedTuple):
    head: bytes
    content: bytes

    @property
    def status(self) -> int:
        return int(self.head.split(b" ", 2)[1])

    @property
    def body(self) -> Body:
        body: Body = json.loads(self.content) if self.content else {}
        return body

    @classmethod
    def of(cls, status: int, body: Body) -> Self:
        content = json.dumps(body).encode()
        head = (
            f"HTTP/1.1 {status} Answer\r\n"
            "Content-Type: application/x-amz-json-1.0\r\n"
            f"Content-Length: {len(content)}\r\n\r\n"
        )
        return cls(head.encode(), content)


class DynamoRelay:
    """Listens on loopback in front of one DynamoDB Local."""

    def __init__(self, upstream_port: int) -> None:
        self._upstream_port = upstream_port
        self._connections: dict[asyncio.Task[None], None] = {}
        self._idle: list[Stream] = []
        self.port = 0

    @classmethod
    @asynccontextmanager
    async def running(cls, upstream_port: int) -> AsyncIterator[Self]:
        relay = cls(upstream_port)
        server = await asyncio.start_server(relay._accepted, "127.0.0.1", 0)
        relay.port = server.sockets[0].getsockname()[1]
        try:
            yield relay
        finally:
            server.close()
            await server.wait_closed()
            for task in list(relay._connections):
                task.cancel()
            await asyncio.gather(*relay._connections, return_exceptions=True)
            for _, writer in relay._idle:
                writer.close()

    async def exchange(self, request: Request, reader: asyncio.StreamReader) -> Answer:
        """The answer to a request. `reader` ends when the client has given up."""
        return await self.ask(request)

    async def ask(self, request: Request) -> Answer:
        """The database's answer to a request."""
        async with asyncio.timeout(UPSTREAM_SECONDS_MAX):
            reader, writer = await self._stream()
            is_whole = False
            try:
                writer.write(request.head + request.content)
                await writer.drain()
                answer = Answer(*await _read_message(reader))
                is_whole = True
                return answer
            finally:
                if is_whole and header(answer.head, "connection") != "close":
                    self._idle.append((reader, writer))
                else:
                    writer.close()

    async def _stream(self) -> Stream:
        while self._idle:
            reader, writer = self._idle.pop()
            if not reader.at_eof() and not writer.is_closing():
                return reader, writer
            writer.close()
        return await asyncio.open_connection("127.0.0.1", self._upstream_port)

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections[task] = None
        try:
            # Cancelled: the relay is ending, and a task that reports it only makes noise.
            with suppress(asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
                while True:
                    request = Request(*await _read_message(reader))
                    answer = await self.exchange(request, reader)
                    writer.write(answer.head + answer.content)
                    await writer.drain()
        finally:
            del self._connections[task]
            writer.close()


async def _read_message(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    head = await reader.readuntil(HEAD_END)
    length = header(head, "content-length")
    return head, await reader.readexactly(int(length or 0))


def header(head: bytes, name: str) -> str:
    for line in head.decode("latin-1").split("\r\n")[1:]:
        found, _, value = line.partition(":")
        if found.lower() == name:
            return value.strip()
    return ""
