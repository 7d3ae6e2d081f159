"""The control socket: commands reach a running server through a file that only its user can open.

One request a connection, in lines of JSON: `{"command": …, "arguments": {…}}` is answered by
`{"result": {…}}` or `{"error": "a sentence"}`, after any number of `{"progress": [done, total]}`.
Both ends are of one program, so the format may change with any version.
"""

import asyncio
import contextlib
import logging
import os
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from tidewire.domain.errors import ErrorCode, TidewireError
from tidewire.ports.runtime import RequestKind, Tasks

if TYPE_CHECKING:
    # Commands are clients of this module: they must not have to load every plane.
    from tidewire.runtime.operations import Operations

Result = Mapping[str, Any]
Progress = Callable[[int, int], None]
"""Called with the number of pages that are done and the number of all pages."""

SOCKET_NAME: Final = "control.sock"
LINE_BYTES_MAX: Final = 256 * 1024
REQUEST_S_MAX: Final = 5.0
"""How long a client may take to send its request."""
ANSWER_S_MAX: Final = 30.0
"""How long a client waits for the next line of the server, which may be progress."""
_PATH_BYTES_MAX: Final = 100
"""A longer path of the socket is shortened: the kernel takes at most 108 bytes."""

_FAILED: Final = "something went wrong on the server, which goes on; its log says what"

_logger: Final = logging.getLogger(__name__)


def no_progress(done: int, total: int) -> None:
    """Shows nothing."""


class Request(msgspec.Struct, frozen=True):
    command: str
    arguments: dict[str, str | int | bool | None] = {}


class Answer(msgspec.Struct, frozen=True, omit_defaults=True):
    result: dict[str, Any] | None = None
    error: str | None = None
    progress: tuple[int, int] | None = None


class OperationFailed(TidewireError):
    """The server could not carry out the command, or could not be asked; the message says why."""


class ControlServer:
    """Listens in the data directory, which the caller has locked."""

    def __init__(self, data_dir: Path, operations: "Operations", tasks: Tasks) -> None:
        self._data_dir = data_dir
        self._operations = operations
        self._tasks = tasks
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        listener = _listen(self._data_dir)
        self._server = await asyncio.start_unix_server(
            self._connected, sock=listener, limit=LINE_BYTES_MAX
        )

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None
            (self._data_dir / SOCKET_NAME).unlink(missing_ok=True)

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._tasks.start_request(
            RequestKind.CONTROL, self._serve(reader, writer), lambda _: writer.close()
        )

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        def tell(done: int, total: int) -> None:
            if not writer.is_closing():
                writer.write(_line(Answer(progress=(done, total))))

        try:
            writer.write(_line(await self._answer(await _request_line(reader), tell)))
            await writer.drain()
        except (OSError, EOFError):
            # The client has gone, or has sent no request for too long.
            pass
        finally:
            writer.close()

    async def _answer(self, line: bytes | None, progress: Progress) -> Answer:
        if line is None:
            return Answer(error=f"the request is longer than {LINE_BYTES_MAX} bytes")
        try:
            request = msgspec.json.decode(line, type=Request)
        except (ValueError, RecursionError):
            return Answer(error="the server does not understand this; is it of another version?")
        try:
            result = await self._operations.run(request.command, request.arguments, progress)
        except (TidewireError, OSError) as error:
            return Answer(error=str(error))
        except Exception as error:  # noqa: BLE001 - it concerns this command alone
            self._tasks.request_failed(RequestKind.CONTROL, error, {"command": request.command})
            return Answer(error=f"{ErrorCode.INTERNAL_ERROR}: {_FAILED}")
        # Not the arguments: there may be a password among them.
        _logger.info("operation done", extra={"command": request.command})
        return Answer(result=dict(result))


async def _request_line(reader: asyncio.StreamReader) -> bytes | None:
    """The client's request; None if it is too long. Raises TimeoutError, EOFError."""
    is_too_long = False
    async with asyncio.timeout(REQUEST_S_MAX):
        while True:
            try:
                line = await reader.readuntil(b"\n")
            except asyncio.LimitOverrunError as excess:
                # Read the line to its end: otherwise the client would not read the answer.
                is_too_long = True
                await reader.readexactly(excess.consumed)
            else:
                return None if is_too_long else line


def ask(
    data_dir: Path,
    command: str,
    arguments: Mapping[str, object],
    progress: Progress = no_progress,
) -> Result | None:
    """Have the running server do a command; None if no server runs. Raises OperationFailed."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(ANSWER_S_MAX)
        try:
            with _short(data_dir) as path:
                connection.connect(path)
        except (FileNotFoundError, ConnectionRefusedError, NotADirectoryError):
            return None
        except PermissionError:
            raise OperationFailed(
                f"the server in {data_dir} belongs to another user; run this as that user"
            ) from None
        try:
            request = Request(command, dict(arguments))  # type: ignore[arg-type]
            connection.sendall(_line(request))
            with connection.makefile("rb") as lines:
                for line in lines:
                    answer = msgspec.json.decode(line, type=Answer)
                    if answer.progress is not None:
                        progress(*answer.progress)
                    elif answer.error is not None:
                        raise OperationFailed(answer.error)
                    elif answer.result is not None:
                        return answer.result
        except OSError as error:
            raise OperationFailed(
                f"the server in {data_dir} does not answer ({error}); look at its log"
            ) from error
    raise OperationFailed(f"the server in {data_dir} ended before it had answered")


def _line(message: Request | Answer) -> bytes:
    return msgspec.json.encode(message) + b"\n"


def _listen(data_dir: Path) -> socket.socket:
    # No other server uses this directory, so an existing socket was left behind by a crash.
    (data_dir / SOCKET_NAME).unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(0o177)
    try:
        with _short(data_dir) as path:
            listener.bind(path)
    finally:
        os.umask(before)
    return listener


@contextmanager
def _short(data_dir: Path) -> Iterator[str]:
    """A path of the socket that the kernel accepts, however long the directory's path is."""
    path = str(data_dir / SOCKET_NAME)
    if len(os.fsencode(path)) <= _PATH_BYTES_MAX:
        yield path
        return
    folder = os.open(data_dir, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{folder}/{SOCKET_NAME}"
    finally:
        with contextlib.suppress(OSError):
            os.close(folder)
