"""A WebSocket on picows: opens it, hands decoded frames over, says how it ended."""

import asyncio
import logging
import ssl
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec
from picows import WSFrame, WSHandshakeError, WSListener, WSMsgType, WSTransport, ws_connect

from tidewire.client.effects import Refusal
from tidewire.client.errors import ClientError
from tidewire.wire.client_frames import ClientFrame
from tidewire.wire.codec import (
    FrameRefusal,
    UnknownFrame,
    decode_server_frames,
    encode_client_frame,
)
from tidewire.wire.framing import messages_of
from tidewire.wire.server_frames import ServerFrame

FRAME_BYTES_MAX: Final = 8 * 1024 * 1024
"""A page has at most 256 KiB of content; JSON may write a byte as six letters."""
READ_BUFFER_BYTES: Final = 64 * 1024
GOODBYE_S_MAX: Final = 1.0
"""How long the server may take to answer our close."""
TEXT: Final = WSMsgType.TEXT

_logger = logging.getLogger("tidewire.client.picows")
_logger.setLevel(logging.CRITICAL)

Received = ServerFrame | UnknownFrame | FrameRefusal


class HandshakeRefused(ClientError):
    """The server answered the request to upgrade with something else."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(f"the server refused the connection: {refusal.error}")
        self.refusal = refusal


class Unreachable(ClientError):
    """No connection could be opened."""


class Socket(WSListener):
    """One connection. It reports its end once (`on_end`), unless we let go of it ourselves."""

    def __init__(
        self, *, on_frame: Callable[[Received], None], on_end: Callable[[int | None], None]
    ) -> None:
        self.is_batching = False
        """The server takes arrays: frames of one turn of the loop are sent together."""
        self._on_frame = on_frame
        self._on_end = on_end
        self._out: list[bytes] = []
        self._transport: WSTransport | None = None
        self._close_code: int | None = None
        self._parts: list[bytes] = []
        self._is_let_go = False
        self._was_open = False
        self._opening: asyncio.Task[tuple[WSTransport, WSListener]] | None = None

    async def open(
        self,
        url: str,
        *,
        headers: Mapping[str, str],
        timeout_s: float,
        ssl_context: ssl.SSLContext | None,
    ) -> None:
        """Raises HandshakeRefused and Unreachable."""
        opening = self._opening = asyncio.create_task(
            ws_connect(
                lambda: self,
                url,
                ssl_context=ssl_context,
                extra_headers=dict(headers),
                websocket_handshake_timeout=timeout_s,
                logger_name=_logger,
                max_redirects=0,
                max_frame_size=FRAME_BYTES_MAX,
                read_buffer_init_size=READ_BUFFER_BYTES,
            )
        )
        try:
            await asyncio.shield(opening)
        except asyncio.CancelledError:
            # picows leaves a socket open if its handshake is cancelled: let it end, then close.
            self._is_let_go = True
            opening.add_done_callback(_ignore_outcome)
            raise
        except WSHandshakeError as error:
            raise _refused(error) from error
        except (OSError, TimeoutError, EOFError) as error:
            raise Unreachable(f"the server cannot be reached: {error}") from error
        if not self._was_open:
            # picows reports no error if the server hangs up without an answer.
            raise Unreachable("the server hung up during the handshake")

    def send(self, frame: ClientFrame) -> None:
        data = encode_client_frame(frame)
        if not self.is_batching:
            self._send((data,))
            return
        if not self._out:
            asyncio.get_running_loop().call_soon(self._flush)
        self._out.append(data)

    def _flush(self) -> None:
        due, self._out = self._out, []
        self._send(messages_of(due))

    def _send(self, messages: Sequence[bytes]) -> None:
        if self._transport is not None:
            for message in messages:
                self._transport.send(TEXT, message)

    def let_go(self, code: int) -> None:
        """Close it; the callbacks are not called any more.

        The socket stays open until the server closes too, and reads what still comes: a socket that
        is closed with unread data is reset, and then the server loses what it has not read yet.
        """
        self._is_let_go = True
        transport = self._transport
        if transport is not None:
            transport.underlying_transport.resume_reading()
            self._flush()
            transport.send_close(code)  # type: ignore[arg-type]
            asyncio.get_running_loop().call_later(GOODBYE_S_MAX, transport.disconnect, False)

    @property
    def is_gone(self) -> bool:
        """Nothing of it is left open."""
        return self._transport is None and (self._opening is None or self._opening.done())

    async def gone(self) -> None:
        """Wait until the socket is closed, after `let_go`; at most twice GOODBYE_S_MAX."""
        try:
            async with asyncio.timeout(2 * GOODBYE_S_MAX):
                if self._opening is not None:
                    await asyncio.wait([self._opening])
                if self._transport is not None:
                    await self._transport.wait_disconnected()
        except TimeoutError:
            if self._transport is not None:
                self._transport.underlying_transport.abort()
        except OSError:
            pass  # It broke instead of closing: it is gone all the same.

    def pause(self) -> None:
        if self._transport is not None:
            self._transport.underlying_transport.pause_reading()

    def resume(self) -> None:
        if self._transport is not None:
            self._transport.underlying_transport.resume_reading()

    # For picows.

    def on_ws_connected(self, transport: WSTransport) -> None:
        self._transport = transport
        self._was_open = True
        if self._is_let_go:
            transport.disconnect(False)

    def on_ws_disconnected(self, transport: WSTransport) -> None:
        self._transport = None
        if not self._is_let_go:
            self._is_let_go = True
            self._on_end(self._close_code)

    def on_ws_frame(self, transport: WSTransport, frame: WSFrame) -> None:
        kind = frame.msg_type
        if self._is_let_go:
            if kind == WSMsgType.CLOSE:
                transport.disconnect()
            return
        if kind == TEXT and frame.fin:
            self._hear(frame.get_payload_as_memoryview())
        elif kind in (TEXT, WSMsgType.CONTINUATION):
            self._parts.append(frame.get_payload_as_bytes())
            if sum(map(len, self._parts)) > FRAME_BYTES_MAX:
                transport.disconnect(False)
            elif frame.fin:
                whole = b"".join(self._parts)
                self._parts.clear()
                self._hear(whole)
        elif kind == WSMsgType.CLOSE:
            self._close_code = int(frame.get_close_code())  # type: ignore[call-overload]
            self._flush()
            transport.send_close(frame.get_close_code())
            transport.disconnect()

    def _hear(self, message: bytes | memoryview) -> None:
        for said in decode_server_frames(message):
            if not self._is_let_go:
                self._on_frame(said)


class _RefusalBody(msgspec.Struct):
    error: str = ""
    message: str = ""
    details: dict[str, object] = {}


def _ignore_outcome(task: "asyncio.Task[tuple[WSTransport, WSListener]]") -> None:
    """Fetch the outcome of a task that nothing waits for any more, or asyncio reports it."""
    if not task.cancelled():
        task.exception()


def _refused(error: WSHandshakeError) -> ClientError:
    response = error.response
    if response is None:
        return Unreachable("the server did not answer as a WebSocket server does")
    try:
        body = msgspec.json.decode(error.raw_body or response.body or b"{}", type=_RefusalBody)
    except ValueError:
        body = _RefusalBody()
    retry_after = response.headers.get("Retry-After", "")
    reason = body.details.get("reason")
    return HandshakeRefused(
        Refusal(
            status=int(response.status),
            error=body.error or f"http_{int(response.status)}",
            reason=reason if isinstance(reason, str) else None,
            message=body.message,
            retry_after_ms=int(retry_after) * 1000 if retry_after.isdecimal() else 0,
        )
    )
