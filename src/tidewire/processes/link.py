"""One end of a link between two processes of a server: calls, answers, and one-way messages.

Everything goes over one stream, in the order of sending, so the store's events of a commit arrive
before the answers to its senders. All messages of one turn of the loop are one write.

Both ends are forked from one program and the socket between them has no name, so no other program
can write here. So values can be pickled, which supports all our types. Nothing waits for a peer
that does not read: when too many bytes are unread, the link is cut.
"""

import asyncio
import logging
import pickle
import socket
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass
from functools import partial
from inspect import iscoroutine
from typing import Any, Final, cast

from tidewire.domain.errors import StoreUnusable, TidewireError
from tidewire.ports.runtime import RequestKind, Tasks

_LENGTH_BYTES: Final = 4
_PROTOCOL: Final = 5

# Kinds of messages, which are tuples: (kind, number or name, …).
_CALL, _CALL_BACK, _TELL, _ANSWER, _FAILURE = range(5)

Acts = Mapping[str, Callable[..., Any]]
"""The functions that the other end may call here, by name."""
Done = Callable[[Any], None]

_logger: Final = logging.getLogger(__name__)


class FailedThere(Exception):
    """The other process failed with an unexpected exception; its log says more."""


@dataclass(eq=False, repr=False)
class Link(asyncio.Protocol):
    """Must be made on the event loop; `connect` gives it its socket."""

    acts: Acts
    _: KW_ONLY
    tasks: Tasks
    on_lost: Callable[[], None]
    """Is called once, when the link is lost; calls that are unanswered by then are never
    answered."""
    bytes_max: int
    """How many bytes may wait unread; with more the link is cut."""

    def __post_init__(self) -> None:
        self.is_lost = False
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._arrived = bytearray()
        self._out: list[tuple[Any, ...]] = []
        self._number = 0
        # Calls that wait for an answer: the callbacks for the answer and for a failure.
        self._waiting: dict[int, tuple[Done, Done]] = {}

    async def connect(self, end: socket.socket) -> None:
        end.setblocking(False)
        await self._loop.create_unix_connection(lambda: self, sock=end)

    # For this end.

    async def call(self, name: str, *args: Any, **named: Any) -> Any:
        """Call an act there and return its result; raises what the act raises."""
        answer: asyncio.Future[Any] = self._loop.create_future()

        def succeeded(value: Any) -> None:
            if not answer.done():
                answer.set_result(value)

        def failed(error: Exception) -> None:
            if not answer.done():
                answer.set_exception(error)

        self._ask(_CALL, name, args, named, succeeded, failed)
        return await answer

    def call_back(self, name: str, *args: Any, done: Done, **named: Any) -> None:
        """Call an act that takes `done` there; ours gets the same value, or what the act raises."""
        self._ask(_CALL_BACK, name, args, named, done, done)

    def tell(self, name: str, *args: Any, **named: Any) -> None:
        """Call an act there without an answer, after everything that was sent before."""
        self._say((_TELL, name, args, named))

    def cut(self) -> None:
        """End the link at once."""
        if self._transport is not None:
            self._transport.abort()

    def _ask(
        self,
        kind: int,
        name: str,
        args: tuple[Any, ...],
        named: dict[str, Any],
        done: Done,
        failed: Done,
    ) -> None:
        self._number += 1
        self._waiting[self._number] = (done, failed)
        self._say((kind, self._number, name, args, named))

    def _say(self, what: tuple[Any, ...]) -> None:
        if self.is_lost:
            return
        if not self._out:
            self._loop.call_soon(self._flush)
        self._out.append(what)

    def _flush(self) -> None:
        if self._transport is None:
            return  # `connection_made` flushes later.
        out, self._out = self._out, []
        if self.is_lost:
            return
        try:
            data = pickle.dumps(out, _PROTOCOL)
        except Exception:
            # Nothing of this turn was sent: the other end must not go on as if it had been.
            _logger.exception("a link to another process is cut: what it is told cannot be sent")
            self._transport.abort()
            return
        self._transport.write(len(data).to_bytes(_LENGTH_BYTES, "big") + data)
        if self._transport.get_write_buffer_size() > self.bytes_max:
            _logger.error("a link to another process is cut: it does not read what it is sent")
            self._transport.abort()

    # From the socket (`asyncio.Protocol`).

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are no subclasses of asyncio's.
        self._transport = cast("asyncio.Transport", transport)
        if self._out:
            self._flush()

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_lost = True
        self.on_lost()

    def data_received(self, data: bytes) -> None:
        arrived = self._arrived
        arrived += data
        start = 0
        while True:
            body = start + _LENGTH_BYTES
            end = body + int.from_bytes(arrived[start:body], "big")
            if len(arrived) < body or len(arrived) < end:
                break
            with memoryview(arrived) as view:
                said = pickle.loads(view[body:end])  # noqa: S301 - see the docstring of the module
            start = end
            for what in said:
                self._take(what)
        del arrived[:start]

    def _take(self, what: tuple[Any, ...]) -> None:
        kind = what[0]
        try:
            if kind == _TELL:
                _, name, args, named = what
                self.acts[name](*args, **named)
            elif kind in (_ANSWER, _FAILURE):
                done, failed = self._waiting.pop(what[1])
                (done if kind == _ANSWER else failed)(what[2])
            else:
                self._do(*what)
        except Exception as error:  # noqa: BLE001 - one act of many; the others go on
            self.tasks.request_failed(RequestKind.LINK, error)

    def _do(
        self, kind: int, number: int, name: str, args: tuple[Any, ...], named: dict[str, Any]
    ) -> None:
        if kind == _CALL_BACK:
            # After the start of calls that came before: those run as tasks, and a reply must not
            # overtake the acknowledgement that its author has sent before it.
            self._loop.call_soon(self._do_back, number, name, args, named)
            return
        try:
            result = self.acts[name](*args, **named)
        except Exception as error:  # noqa: BLE001 - it is the caller's
            self._fail(number, error)
            return
        if iscoroutine(result):
            self.tasks.start_request(
                RequestKind.LINK, self._finish(number, result), partial(self._fail, number)
            )
        else:
            self._answer(number, result)

    def _do_back(
        self, number: int, name: str, args: tuple[Any, ...], named: dict[str, Any]
    ) -> None:
        try:
            self.acts[name](*args, done=partial(self._answer, number), **named)
        except Exception as error:  # noqa: BLE001 - it is the caller's
            self._fail(number, error)

    async def _finish(self, number: int, work: Any) -> None:
        try:
            result = await work
        except TidewireError as error:
            self._fail(number, error)
        else:
            self._answer(number, result)

    def _answer(self, number: int, value: Any) -> None:
        if isinstance(value, Exception):
            # A callback may get an exception as its value: it is the answer, not a failure.
            value = self._told(value)
        self._say((_ANSWER, number, value))

    def _fail(self, number: int, error: Exception) -> None:
        self._say((_FAILURE, number, self._told(error)))

    def _told(self, error: Exception) -> Exception:
        if isinstance(error, StoreUnusable):
            # This process does not know any more what it has committed.
            self.tasks.service_failed("store", error)
        if isinstance(error, TidewireError):
            return error
        return FailedThere(f"{type(error).__name__}: {error}")
