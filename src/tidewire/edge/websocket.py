"""WebSockets inside uvicorn: picows does the framing, this file keeps the rules it leaves to us.

uvicorn parses the HTTP request and gives it to `UpgradeProtocol`, which holds the socket, with
reading paused, until the gateway has said who may connect. Then picows takes the socket over.
"""

import asyncio
import logging
from collections.abc import Callable
from enum import IntEnum
from typing import Any, Final

from picows import (
    WSAutoPingStrategy,
    WSCloseCode,
    WSFrame,
    WSListener,
    WSMsgType,
    WSTransport,
    WSUpgradeRequest,
    WSUpgradeResponse,
    WSUpgradeResponseWithListener,
)
from picows.picows import WSProtocol  # type: ignore[attr-defined]

from tidewire.domain.limits import FRAME_BYTES_MAX
from tidewire.edge.upgrade import parse_upgrade, plain_head, refusal_response, upgrade_fault
from tidewire.ports.runtime import RequestKind, Tasks
from tidewire.ports.transport import (
    Admission,
    HandshakeRefusal,
    SocketGateway,
    SocketListener,
    UpgradeRequest,
)

CLOSE_S_MAX: Final = 5.0
"""How long a peer may take to answer our close frame."""
READ_BUFFER_BYTES: Final = 2_048
"""What a quiet connection costs; picows doubles it when a frame needs more."""


class CloseCode(IntEnum):
    """Why the edge itself closes a socket (RFC 6455, 7.4.1)."""

    PROTOCOL_ERROR = 1002
    UNSUPPORTED_DATA = 1003
    INVALID_TEXT = 1007
    MESSAGE_TOO_BIG = 1009
    INTERNAL_ERROR = 1011


_logger = logging.getLogger("tidewire.edge.websocket")
# picows tells of every connection; the gateway does that, once and better.
_picows_logger = logging.getLogger("tidewire.edge.picows")
_picows_logger.setLevel(logging.CRITICAL)

_MALFORMED: Final = HandshakeRefusal(
    http_status=400, error="invalid_request", message="the request cannot be read"
)
_BROKEN: Final = HandshakeRefusal(
    http_status=503,
    error="service_unavailable",
    message="the server could not decide; try again",
    retry_after_seconds=5,
)


ClientIp = Callable[[UpgradeRequest], UpgradeRequest]
"""Says where a request really comes from, if a trusted proxy tells."""


class Socket(WSListener):
    """One open WebSocket: what the gateway writes to, and what feeds it."""

    def __init__(self, begin: Callable[["Socket"], SocketListener], tasks: Tasks) -> None:
        self._begin = begin
        self._tasks = tasks
        self._listener: SocketListener | None = None
        self._transport: Any = None
        self._socket: Any = None
        self._parts: list[bytes] | None = None
        self._parts_bytes = 0
        self._is_closing = False
        self._is_closed_by_peer = False
        self._loop = asyncio.get_running_loop()

    # For the gateway (`ports.transport.SocketTransport`).

    def write(self, framed: bytes) -> None:
        if not self._is_closing and not self._has_said_goodbye():
            self._socket.write(framed)

    def unsent_bytes(self) -> int:
        return int(self._socket.get_write_buffer_size())

    def ping(self) -> None:
        if not self._is_closing and not self._has_said_goodbye():
            self._transport.send_ping(b"")

    def close(self, code: int, reason: str) -> None:
        if self._is_closing:
            return
        self._is_closing = True
        self._loop.call_later(CLOSE_S_MAX, self._drop)
        if not self._has_said_goodbye():
            self._transport.send_close(code, reason.encode()[:120])

    def _has_said_goodbye(self) -> bool:
        """A close frame went out, maybe by picows itself, over a frame that it could not read:
        nothing may follow it. The peer's own close says nothing yet: picows reads one frame ahead,
        so it knows of that one while what was said before it is still to be handled."""
        handshake = self._transport.close_handshake
        return handshake is not None and handshake.sent is not None

    def _drop(self) -> None:
        """The peer did not answer the close in time: nothing more is owed to it."""
        if not self._transport.is_disconnected:
            self._socket.abort()

    # For picows.

    def on_ws_connected(self, transport: WSTransport) -> None:
        self._transport = transport
        self._socket = transport.underlying_transport
        self._listener = self._begin(self)

    def on_ws_frame(self, transport: WSTransport, frame: WSFrame) -> None:
        kind: Any = frame.msg_type
        if kind != WSMsgType.CLOSE and self._has_said_goodbye():
            # picows goes on parsing after an error.
            return
        try:
            if kind == WSMsgType.TEXT and frame.fin and self._parts is None:
                if frame.rsv1 or frame.rsv2 or frame.rsv3:
                    self.close(CloseCode.PROTOCOL_ERROR, "reserved bits are set")
                    return
                self._text(frame.get_payload_as_bytes())
            else:
                self._rare(frame, kind)
        except Exception as error:  # noqa: BLE001 - it concerns this connection alone
            self._tasks.request_failed(RequestKind.CONNECTION, error)
            self.close(CloseCode.INTERNAL_ERROR, "INTERNAL_ERROR")

    def on_ws_disconnected(self, transport: WSTransport) -> None:
        self._is_closing = True
        listener, self._listener = self._listener, None
        if listener is not None:
            listener.lost(is_closed_by_peer=self._is_closed_by_peer)

    def pause_writing(self) -> None:
        """The gateway asks for the unsent bytes itself."""

    def resume_writing(self) -> None:
        """See `pause_writing`."""

    def _text(self, payload: bytes) -> None:
        if self._is_closing or self._listener is None:
            return
        if not payload.isascii():
            try:
                payload.decode()
            except UnicodeDecodeError:
                self.close(CloseCode.INVALID_TEXT, "text is not valid UTF-8")
                return
        self._listener.text_received(payload)

    def _rare(self, frame: WSFrame, kind: Any) -> None:
        """Everything but a whole text message."""
        if frame.rsv1 or frame.rsv2 or frame.rsv3:
            self.close(CloseCode.PROTOCOL_ERROR, "reserved bits are set")
        elif kind in (WSMsgType.TEXT, WSMsgType.CONTINUATION):
            self._fragment(frame, kind)
        elif kind == WSMsgType.PING:
            if not self._is_closing:
                self._transport.send_pong(frame.get_payload_as_bytes())
            self._is_alive()
        elif kind == WSMsgType.PONG:
            self._is_alive()
        elif kind == WSMsgType.CLOSE:
            self._closed_by_peer(frame)
        else:
            self.close(CloseCode.UNSUPPORTED_DATA, "binary frames are not taken")

    def _is_alive(self) -> None:
        if self._listener is not None and not self._is_closing:
            self._listener.pong_received()

    def _fragment(self, frame: WSFrame, kind: Any) -> None:
        """Reassemble under the size cap (RFC 6455, 5.4)."""
        if (kind == WSMsgType.TEXT) == (self._parts is not None):
            self.close(CloseCode.PROTOCOL_ERROR, "fragments out of order")
            return
        parts = self._parts = [] if self._parts is None else self._parts
        parts.append(frame.get_payload_as_bytes())
        self._parts_bytes += len(parts[-1])
        if self._parts_bytes > FRAME_BYTES_MAX:
            self.close(CloseCode.MESSAGE_TOO_BIG, "the message is too large")
            parts.clear()
        elif frame.fin:
            self._parts, self._parts_bytes = None, 0
            self._text(b"".join(parts))

    def _closed_by_peer(self, frame: WSFrame) -> None:
        """Complete the close handshake, whoever began it."""
        if not self._is_closing:
            self._is_closing = self._is_closed_by_peer = True
            code = frame.get_close_code()
            self._transport.send_close(WSCloseCode.OK if code == WSCloseCode.NO_INFO else code)
        self._transport.disconnect()


class UpgradeProtocol(asyncio.Protocol):
    """What uvicorn hands a socket to when its request asks for a WebSocket."""

    def __init__(self, gateway: SocketGateway, tasks: Tasks, client_ip: ClientIp) -> None:
        self._gateway = gateway
        self._tasks = tasks
        self._client_ip = client_ip
        self._transport: Any = None
        self._is_lost = False
        self._is_accepted = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def connection_lost(self, error: Exception | None) -> None:
        self._is_lost = True

    def data_received(self, data: bytes) -> None:
        """The head of the request, once: reading is paused until it is answered."""
        self._transport.pause_reading()
        peer = self._transport.get_extra_info("peername")
        request = parse_upgrade(data, str(peer[0]) if peer else "")
        if request is None:
            self._refuse(_MALFORMED)
            return
        fault = upgrade_fault(data, request)
        if fault is not None:
            self._refuse(fault)
            return
        self._tasks.start_request(
            RequestKind.UPGRADE, self._answer(self._client_ip(request)), self._fail
        )

    def _fail(self, _: Exception) -> None:
        """The upgrade could not be decided, or not be carried out."""
        if self._is_accepted:
            self._transport.abort()
        else:
            self._refuse(_BROKEN)

    async def _answer(self, request: UpgradeRequest) -> None:
        verdict = await self._gateway.authorise(request)
        if self._is_lost or self._transport.is_closing():
            return
        if isinstance(verdict, HandshakeRefusal):
            self._refuse(verdict)
        else:
            self._accept(verdict, plain_head(request))

    def _refuse(self, refusal: HandshakeRefusal) -> None:
        if not self._transport.is_closing():
            self._transport.write(refusal_response(refusal))
            self._transport.close()

    def _accept(self, admission: Admission, head: bytes) -> None:
        """Give the socket to picows, with the request that it has not seen yet."""

        def listener_factory(_: WSUpgradeRequest) -> WSUpgradeResponseWithListener:
            headers = None
            if admission.subprotocol is not None:
                headers = {"Sec-WebSocket-Protocol": admission.subprotocol}
            socket = Socket(lambda socket: self._gateway.connected(admission, socket), self._tasks)
            response = WSUpgradeResponse.create_101_response(headers)
            return WSUpgradeResponseWithListener(response, socket)

        protocol = WSProtocol(
            None,
            None,
            False,
            listener_factory,
            _picows_logger,
            True,
            None,
            False,
            60,
            60,
            WSAutoPingStrategy.PING_WHEN_IDLE,
            False,
            FRAME_BYTES_MAX,
            None,
            READ_BUFFER_BYTES,
        )
        self._is_accepted = True
        protocol.connection_made(self._transport)
        self._transport.set_protocol(protocol)
        _feed(protocol, head)
        if not self._transport.is_closing():
            self._transport.resume_reading()


def _feed(protocol: Any, data: bytes) -> None:
    """WSProtocol has no `data_received`: put the bytes where it reads, as they fit."""
    view = memoryview(data)
    while view:
        room = protocol.get_buffer(len(view))
        size = min(len(room), len(view))
        room[:size] = view[:size]
        protocol.buffer_updated(size)
        view = view[size:]
