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

from tidewire.domain.addresses import address_key
from tidewire.domain.limits import FRAME_BYTES_MAX
from tidewire.edge.doors import Doors, Visit
from tidewire.edge.inbound import (
    FRAME_BYTES,
    OVERRUN,
    SLICE_BYTES,
    InboundBudget,
    InboundRates,
)
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
OVERRUN_CLOSE_S_MAX: Final = 1.0
"""The same for one that has sent too much: its answer is behind all that, and not read."""
LINGER_S_MAX: Final = 1.0
"""After a frame that cannot be read, how long what follows is thrown away."""
LINGER_BYTES_MAX: Final = 1024 * 1024
"""And how much of it."""
SLICE_MS: Final = 10
"""A slice of the budget that took longer than this has not come in one burst."""
FRAGMENTS_MAX: Final = 1_000
"""How many parts a message may have: they cost, also if they are empty."""
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
_TOO_MANY: Final = HandshakeRefusal(
    http_status=429,
    error="rate_limited",
    message="too many connections from this address",
    retry_after_seconds=5,
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

    def __init__(
        self,
        begin: Callable[["Socket"], SocketListener],
        tasks: Tasks,
        budget: InboundBudget,
        visit: Visit | None = None,
    ) -> None:
        self._begin = begin
        self._tasks = tasks
        self._budget = budget
        self._visit = visit
        self._listener: SocketListener | None = None
        self._transport: Any = None
        self._socket: Any = None
        self._parts: list[bytes] | None = None
        self._parts_bytes = 0
        self._is_closing = False
        self._is_closed_by_peer = False
        self._loop = asyncio.get_running_loop()
        # What of the budget may be used before it is looked at again.
        self._slice_bytes = SLICE_BYTES
        self._sliced_at_ms = 0
        self._is_overrun = False
        self._resuming: asyncio.TimerHandle | None = None
        # The last ping that waits for its pong, and whether one was sent in this turn.
        self._ping: bytes | None = None
        self._is_pong_sent = False
        self._is_unread = False

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
        lingering: Any = transport.underlying_transport
        self._socket = lingering.transport
        self._listener = self._begin(self)

    def on_ws_frame(self, transport: WSTransport, frame: WSFrame) -> None:
        kind: Any = frame.msg_type
        self._slice_bytes -= frame.payload_size + FRAME_BYTES
        if self._slice_bytes < 0:
            self._spend_slice()
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
        if self._visit is not None:
            self._visit.leave()
        listener, self._listener = self._listener, None
        if listener is not None:
            listener.lost(is_closed_by_peer=self._is_closed_by_peer)

    def pause_writing(self) -> None:
        """The gateway asks for the unsent bytes itself; pongs wait."""
        self._is_unread = True

    def resume_writing(self) -> None:
        self._is_unread = False
        if self._ping is not None:
            self._send_pong()

    def _spend_slice(self) -> None:
        """Stop reading: for a turn of the loop, until the budget has caught up, or for good."""
        cost_bytes = SLICE_BYTES - self._slice_bytes
        self._slice_bytes = SLICE_BYTES
        if self._is_overrun or self._socket.is_closing():
            return
        now_ms = int(self._loop.time() * 1000)
        pause_ms = self._budget.spend(cost_bytes, now_ms)
        sliced_at_ms, self._sliced_at_ms = self._sliced_at_ms, now_ms
        if pause_ms == 0 and now_ms - sliced_at_ms >= SLICE_MS:
            # It came in many turns of the loop, and within the budget.
            return
        self._socket.pause_reading()
        if self._resuming is not None:
            self._resuming.cancel()
            self._resuming = None
        if pause_ms == OVERRUN:
            self._is_overrun = True
            if self._listener is not None and not self._is_closing:
                self._listener.overrun()
            self._loop.call_later(OVERRUN_CLOSE_S_MAX, self._drop)
        else:
            self._resuming = self._loop.call_later(pause_ms / 1000, self._read_on)

    def _read_on(self) -> None:
        self._resuming = None
        if not self._socket.is_closing():
            self._socket.resume_reading()

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
            self._answer_ping(frame.get_payload_as_bytes())
        elif kind == WSMsgType.PONG:
            self._is_alive()
        elif kind == WSMsgType.CLOSE:
            self._closed_by_peer(frame)
        else:
            self.close(CloseCode.UNSUPPORTED_DATA, "binary frames are not taken")

    def _answer_ping(self, payload: bytes) -> None:
        """The first one of a turn is answered at once, of the others the last one (RFC 6455,
        5.5.3), and none while the peer does not read."""
        self._ping = payload
        if not self._is_pong_sent:
            self._is_pong_sent = True
            self._loop.call_soon(self._pong_again)
            self._send_pong()

    def _pong_again(self) -> None:
        self._is_pong_sent = False
        if self._ping is not None:
            self._send_pong()

    def _send_pong(self) -> None:
        if self._is_unread:
            return
        payload, self._ping = self._ping, None
        if not self._is_closing and not self._has_said_goodbye():
            self._transport.send_pong(payload)
        self._is_alive()

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
        elif len(parts) > FRAGMENTS_MAX:
            self.close(CloseCode.MESSAGE_TOO_BIG, "the message has too many parts")
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
        self._socket.close()


class _Lingering:
    """A transport for picows, which ends a connection 10 ms after a frame that it cannot read:
    what the peer has still on its way would be answered with a reset, and a reset takes our close
    frame along. So the end is said, and what comes is thrown away for a while."""

    def __init__(self, transport: Any, protocol: Any) -> None:
        self.transport = transport
        self._protocol = protocol

    def __getattr__(self, name: str) -> Any:
        return getattr(self.transport, name)

    def close(self) -> None:
        transport = self.transport
        if not transport.is_closing():
            transport.set_protocol(_Discard(transport, self._protocol))
            if transport.can_write_eof():
                transport.write_eof()
            transport.resume_reading()


class _Discard(asyncio.BufferedProtocol):
    """Reads and forgets, for so long and so much."""

    _scratch = memoryview(bytearray(64 * 1024))

    def __init__(self, transport: Any, protocol: Any) -> None:
        self._transport = transport
        self._protocol = protocol
        self._bytes_left = LINGER_BYTES_MAX
        self._timer = asyncio.get_running_loop().call_later(LINGER_S_MAX, transport.abort)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._scratch

    def buffer_updated(self, nbytes: int) -> None:
        self._bytes_left -= nbytes
        if self._bytes_left < 0:
            self._transport.abort()

    def connection_lost(self, error: Exception | None) -> None:
        self._timer.cancel()
        self._protocol.connection_lost(error)


class UpgradeProtocol(asyncio.Protocol):
    """What HTTP hands a socket to when its request asks for a WebSocket."""

    def __init__(
        self,
        gateway: SocketGateway,
        tasks: Tasks,
        client_ip: ClientIp,
        *,
        doors: Doors,
        rates: InboundRates,
    ) -> None:
        self.visit: Visit | None = None
        """Who is here, for as long as the connection lasts."""
        self._gateway = gateway
        self._tasks = tasks
        self._client_ip = client_ip
        self._doors = doors
        self._rates = rates
        self._transport: Any = None
        self._is_lost = False
        self._is_accepted = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def connection_lost(self, error: Exception | None) -> None:
        self._is_lost = True
        if self.visit is not None:
            self.visit.leave()

    def data_received(self, data: bytes) -> None:
        """The head of the request, once: reading is paused until it is answered."""
        self._transport.pause_reading()
        peer = self._transport.get_extra_info("peername")
        peer_ip = str(peer[0]) if peer else ""
        request = parse_upgrade(data, peer_ip)
        if request is None:
            self._refuse_malformed(_MALFORMED, peer_ip)
            return
        request, fault = self._client_ip(request), upgrade_fault(data, request)
        if self._is_barred(request.client_ip, peer_ip):
            self._transport.abort()
            return
        if fault is not None:
            self._refuse_malformed(fault, request.client_ip)
            return
        self._tasks.start_request(RequestKind.UPGRADE, self._answer(request), self._fail)

    def _is_barred(self, client_ip: str, peer_ip: str) -> bool:
        """HTTP has asked for the peer; who comes through a proxy is known only now. A proxy that
        names no client is not barred: that would be all of its clients."""
        if client_ip == peer_ip:
            return False
        return self._doors.is_barred(address_key(client_ip), self._now_ms())

    def _refuse_malformed(self, fault: HandshakeRefusal, client_ip: str) -> None:
        self._doors.fault(address_key(client_ip), self._now_ms())
        self._refuse(fault)

    def _now_ms(self) -> int:
        return int(asyncio.get_running_loop().time() * 1000)

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
        elif self.visit is not None and not self.visit.upgraded(address_key(request.client_ip)):
            self._refuse(_TOO_MANY)
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
            socket = Socket(
                lambda socket: self._gateway.connected(admission, socket),
                self._tasks,
                InboundBudget(self._rates),
                self.visit,
            )
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
        protocol.connection_made(_Lingering(self._transport, protocol))
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
