"""A TCP proxy between a client and a server that breaks connections on demand. Holds no test.

It knows nothing of what passes through it, so it breaks connections in the middle of frames as
often as between them, as a network does.
"""

import asyncio
from types import TracebackType
from typing import Final, Self

CHUNK_BYTES: Final = 16 * 1024


class FaultyProxy:
    """Listens on loopback and forwards to a port there. Settings apply to chunks from now on."""

    def __init__(self, port: int) -> None:
        self._upstream_port = port
        self._server: asyncio.Server | None = None
        self._pipes: dict[int, _Pipe] = {}
        self.made = 0
        """How many connections there have been so far."""
        self.latency_s = 0.0
        """How much later each chunk arrives, in either direction."""
        self.bytes_per_second: int | None = None
        self.is_refusing = False
        """New connections are closed at once."""
        self.is_holding = False
        """Nothing passes through new connections."""
        self.cuts = 0
        self._next_bytes: int | None = None

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()
        pipes = list(self._pipes.values())
        for pipe in pipes:
            pipe.cut()
        await asyncio.gather(*(pipe.over.wait() for pipe in pipes))
        await self._server.wait_closed()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def port(self) -> int:
        assert self._server is not None
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    def lead_to(self, port: int) -> None:
        """Forward new connections to another port from now on."""
        self._upstream_port = port

    # Faults.

    def heal(self) -> None:
        """End the faults for new connections. Half-open connections stay as they are."""
        self.latency_s, self.bytes_per_second = 0.0, None
        self.is_refusing = self.is_holding = False

    def cut(self) -> None:
        """Break all connections at once, in both directions."""
        self.cuts += 1
        for pipe in list(self._pipes.values()):
            pipe.cut()

    def cut_after(self, size: int, *, is_down: bool = True) -> None:
        """Break each connection after `size` more bytes from the server, or (not `is_down`) from
        the client."""
        self.cuts += 1
        for pipe in self._pipes.values():
            pipe.bytes_left, pipe.is_cut_down = size, is_down

    def cut_next_after(self, size: int) -> None:
        """Break the next connection after `size` bytes from the server."""
        self.cuts += 1
        self._next_bytes = size

    def half_open(self) -> None:
        """From now on nothing passes through the present connections, but they stay open."""
        self.cuts += 1
        for pipe in self._pipes.values():
            pipe.is_stuck = True

    def hold(self) -> None:
        """From now on nothing passes through any connection, also new ones; they stay open."""
        self.half_open()
        self.is_holding = True

    # Passing on.

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.is_refusing:
            writer.transport.abort()
            return
        try:
            up_reader, up_writer = await self._upstream()
        except OSError:
            writer.transport.abort()
            return
        self.made += 1
        number = self.made
        pipe = self._pipes[number] = _Pipe(writer, up_writer)
        pipe.is_stuck = self.is_holding
        pipe.bytes_left, self._next_bytes = self._next_bytes, None
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._pump(pipe, reader, up_writer, is_down=False))
                group.create_task(self._pump(pipe, up_reader, writer, is_down=True))
        finally:
            pipe.cut()
            del self._pipes[number]
            pipe.over.set()

    async def _upstream(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self._upstream_port)

    async def _pump(
        self,
        pipe: "_Pipe",
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        *,
        is_down: bool,
    ) -> None:
        try:
            while data := await reader.read(CHUNK_BYTES):
                if pipe.is_stuck:
                    continue
                wait_s = self.latency_s
                if self.bytes_per_second is not None:
                    wait_s += len(data) / self.bytes_per_second
                if wait_s:
                    await asyncio.sleep(wait_s)
                if is_down is pipe.is_cut_down and pipe.bytes_left is not None:
                    data = data[: pipe.bytes_left]
                    pipe.bytes_left -= len(data)
                if not pipe.is_stuck:
                    writer.write(data)
                    await writer.drain()
                if pipe.bytes_left == 0:
                    break
        except OSError:
            pass
        finally:
            if pipe.bytes_left == 0:
                pipe.end()
            elif not pipe.is_stuck:
                pipe.cut()


class _Pipe:
    """One connection through the proxy."""

    def __init__(self, *writers: asyncio.StreamWriter) -> None:
        self._writers = writers
        self.is_stuck = False
        self.bytes_left: int | None = None
        self.is_cut_down = True
        self.over = asyncio.Event()

    def end(self) -> None:
        """Close the connection after everything written has been sent."""
        for writer in self._writers:
            writer.close()

    def cut(self) -> None:
        for writer in self._writers:
            writer.transport.abort()
