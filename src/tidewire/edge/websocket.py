"""WebSockets inside uvicorn: picows does the framing, this file keeps the rules it leaves to us.

`edge.http` reads the request and gives it to `UpgradeProtocol`, which holds the socket, with
reading paused, until the gateway has said who may connect. Then picows takes the socket over.
"""

import asyncio
import select
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
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
from tidewire.edge.budgets import (
    FRAME_BYTES,
    OVERRUN,
    SLICE_BYTES,
    Doors,
    InboundBudget,
    InboundRates,
    Visit,
)
from tidewire.edge.options import EdgeOptions
from tidewire.edge.peers import TrustedProxies
from tidewire.edge.upgrade import (
    TOO_MANY,
    plain_head,
    read_upgrade,
    refusal,
    refusal_response,
    upgrade_fault,
)
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
"""The same for a peer that has sent too much: its answer is behind all that, and is not read."""
LINGER_S_MAX: Final = 1.0
"""How long bytes after an unreadable frame are read and thrown away."""
LINGER_BYTES_MAX: Final = 1024 * 1024
"""How many bytes are thrown away then."""
SLICE_MS: Final = 10
"""A slice of the budget that took longer than this did not come in one burst."""
FRAGMENTS_MAX: Final = 1_000
"""How many fragments a message may have: each has a cost, even an empty one."""
READ_BUFFER_BYTES: Final = 2_048
"""The read buffer of a quiet connection; picows doubles it when a frame needs more."""


class _Mute:
    """The logger for picows, which logs nothing. picows would log every connection, which the
    gateway does once and better. Even a silent real logger would cost each connection its own."""

    name = "tidewire.edge.picows"

    def isEnabledFor(self, level: int) -> bool:  # noqa: N802 - the name is a logger's
        return False

    def log(self, *_: object, **__: object) -> None: ...

    debug = info = warning = error = exception = log


_MUTE: Final = _Mute()
_NOBODY: Final = asyncio.Protocol()
_MALFORMED: Final = refusal(400, "invalid_request", "the request cannot be read")
_BROKEN: Final = refusal(
    503, "service_unavailable", "the server could not decide; try again", retry_s=5
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Port:
    """What all connections of a port share."""

    options: EdgeOptions
    gateway: SocketGateway
    tasks: Tasks
    proxies: TrustedProxies
    doors: Doors
    rates: InboundRates


class Socket(WSListener):
    """One open WebSocket: the gateway writes to it, and gets the frames of the peer from it."""

    __slots__ = (
        "_admission",
        "_budget",
        "_is_closed_by_peer",
        "_is_closing",
        "_is_overrun",
        "_is_pong_sent",
        "_is_unread",
        "_listener",
        "_loop",
        "_parts",
        "_parts_bytes",
        "_ping",
        "_port",
        "_resuming",
        "_slice_bytes",
        "_sliced_at_ms",
        "_socket",
        "_transport",
        "_visit",
    )

    def __init__(self, port: Port, admission: Admission, visit: Visit) -> None:
        self._port = port
        self._admission = admission
        # Made when first used: a quiet peer never spends a slice.
        self._budget: InboundBudget | None = None
        self._visit = visit
        self._listener: SocketListener | None = None
        self._transport: Any = None
        self._socket: Any = None
        self._parts: list[bytes] | None = None
        self._parts_bytes = 0
        self._is_closing = False
        self._is_closed_by_peer = False
        self._loop = asyncio.get_running_loop()
        # How many bytes may still arrive before the budget is checked again.
        self._slice_bytes = SLICE_BYTES
        self._sliced_at_ms = 0
        self._is_overrun = False
        self._resuming: asyncio.TimerHandle | None = None
        # The last ping that waits for its pong, and whether a pong was sent in this loop turn.
        self._ping: bytes | None = None
        self._is_pong_sent = False
        self._is_unread = False

    # For the gateway (`ports.transport.SocketTransport`).

    def write(self, framed: bytes) -> None:
        if not self._is_closing and not self._has_said_goodbye():
            self._socket.write(framed)

    def unsent_bytes(self) -> int:
        return int(self._socket.get_write_buffer_size())

    def tell_drained_below(self, unsent_bytes: int) -> None:
        self._socket.set_write_buffer_limits(high=unsent_bytes, low=unsent_bytes)

    def ping(self) -> None:
        if not self._is_closing and not self._has_said_goodbye():
            self._transport.send_ping(b"")

    def close(self, code: int | WSCloseCode, reason: str) -> None:
        if self._is_closing:
            return
        self._is_closing = True
        self._loop.call_later(CLOSE_S_MAX, self._drop)
        if not self._has_said_goodbye():
            self._transport.send_close(code, reason.encode()[:120])

    def _has_said_goodbye(self) -> bool:
        """True if a close frame went out, maybe by picows itself because of an unreadable frame:
        nothing may follow it. The peer's own close does not count: picows reads one frame ahead,
        so it knows of that close while frames before it are still to be handled."""
        handshake = self._transport.close_handshake
        return handshake is not None and handshake.sent is not None

    def _drop(self) -> None:
        """Abort the connection, because the peer did not answer the close in time."""
        if not self._transport.is_disconnected:
            self._socket.abort()

    # For picows.

    def on_ws_connected(self, transport: WSTransport) -> None:
        self._transport = transport
        lingering: Any = transport.underlying_transport
        self._socket = lingering.transport
        self._listener = self._port.gateway.connected(self._admission, self)

    def on_ws_frame(self, transport: WSTransport, frame: WSFrame) -> None:
        kind: Any = frame.msg_type
        self._slice_bytes -= frame.payload_size + FRAME_BYTES
        if self._slice_bytes < 0:
            self._spend_slice()
        if kind != WSMsgType.CLOSE and self._has_said_goodbye():
            # picows goes on parsing after an error.
            return
        try:
            if frame.rsv1 or frame.rsv2 or frame.rsv3:
                self.close(WSCloseCode.PROTOCOL_ERROR, "reserved bits are set")
            elif kind == WSMsgType.TEXT and frame.fin and self._parts is None:
                self._text(frame.get_payload_as_bytes())
            else:
                self._rare(frame, kind)
        except Exception as error:  # noqa: BLE001 - it concerns this connection alone
            self._fail(error)

    def on_ws_disconnected(self, transport: WSTransport) -> None:
        self._is_closing = True
        self._visit.leave()
        listener, self._listener = self._listener, None
        if listener is not None:
            listener.lost(is_closed_by_peer=self._is_closed_by_peer)

    def pause_writing(self) -> None:
        """Hold back pongs. The gateway asks for the unsent bytes itself."""
        self._is_unread = True

    def resume_writing(self) -> None:
        self._is_unread = False
        try:
            if self._ping is not None:
                self._send_pong()
            if self._listener is not None and not self._is_closing:
                self._listener.drained()
        except Exception as error:  # noqa: BLE001 - it concerns this connection alone
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        self._port.tasks.request_failed(RequestKind.CONNECTION, error)
        self.close(WSCloseCode.INTERNAL_ERROR, "INTERNAL_ERROR")

    def _spend_slice(self) -> None:
        """Stop reading: for a turn of the loop, until the budget has caught up, or for good."""
        cost_bytes = SLICE_BYTES - self._slice_bytes
        self._slice_bytes = SLICE_BYTES
        if self._is_overrun or self._socket.is_closing():
            return
        now_ms = int(self._loop.time() * 1000)
        if self._budget is None:
            self._budget = InboundBudget(self._port.rates)
        pause_ms = self._budget.spend(cost_bytes, now_ms)
        sliced_at_ms, self._sliced_at_ms = self._sliced_at_ms, now_ms
        if pause_ms == 0 and now_ms - sliced_at_ms >= SLICE_MS:
            # The slice came in many turns of the loop, and within the budget.
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
                self.close(WSCloseCode.INVALID_TEXT, "text is not valid UTF-8")
                return
        more = self._listener.text_received(payload) - 1
        if more:
            # Each frame of an array costs what it would have cost alone.
            self._slice_bytes -= more * FRAME_BYTES
            if self._slice_bytes < 0:
                self._spend_slice()

    def _rare(self, frame: WSFrame, kind: Any) -> None:
        """Handle every frame but a whole text message."""
        if kind in (WSMsgType.TEXT, WSMsgType.CONTINUATION):
            self._fragment(frame, kind)
        elif kind == WSMsgType.PING:
            self._answer_ping(frame.get_payload_as_bytes())
        elif kind == WSMsgType.PONG:
            self._is_alive()
        elif kind == WSMsgType.CLOSE:
            self._closed_by_peer(frame)
        else:
            self.close(WSCloseCode.UNSUPPORTED_DATA, "binary frames are not taken")

    def _answer_ping(self, payload: bytes) -> None:
        """Answer the first ping of a loop turn at once, and only the last one of the others
        (RFC 6455, 5.5.3). Answer none while the peer does not read."""
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
            self.close(WSCloseCode.PROTOCOL_ERROR, "fragments out of order")
            return
        parts = self._parts = [] if self._parts is None else self._parts
        parts.append(frame.get_payload_as_bytes())
        self._parts_bytes += len(parts[-1])
        if self._parts_bytes > FRAME_BYTES_MAX or len(parts) > FRAGMENTS_MAX:
            is_large = self._parts_bytes > FRAME_BYTES_MAX
            what = "the message is too large" if is_large else "the message has too many parts"
            self.close(WSCloseCode.MESSAGE_TOO_BIG, what)
            parts.clear()
        elif frame.fin:
            self._parts, self._parts_bytes = None, 0
            self._text(b"".join(parts))

    def _closed_by_peer(self, frame: WSFrame) -> None:
        """Complete the close handshake, whichever side began it."""
        if not self._is_closing:
            self._is_closing = self._is_closed_by_peer = True
            code = frame.get_close_code()
            self._transport.send_close(WSCloseCode.OK if code == WSCloseCode.NO_INFO else code)
        self._socket.close()


class _Lingering:
    """A transport for picows that closes late. picows closes it 10 ms after an unreadable frame;
    the kernel would answer bytes that are still on their way with a reset, which destroys our close
    frame. So this one only ends its own side (FIN), and throws away incoming bytes for a while."""

    def __init__(self, transport: Any, protocol: Any) -> None:
        self.transport = transport
        self._protocol = protocol

    def __getattr__(self, name: str) -> Any:
        return getattr(self.transport, name)

    def get_extra_info(self, name: str) -> Any:
        if name in {"peername", "sockname"}:
            # picows would only log them.
            return None
        found = self.transport.get_extra_info(name)
        return _Number(found.fileno()) if name == "socket" else found

    def close(self) -> None:
        transport = self.transport
        if not transport.is_closing():
            transport.set_protocol(_Discard(transport, self._protocol))
            if transport.can_write_eof():
                transport.write_eof()
            transport.resume_reading()


class _Number:
    """The socket that picows sees. picows would set options that uvloop has set already, and read
    others only to log them; for each of these six calls uvloop would make a socket object."""

    __slots__ = ("_fileno",)

    def __init__(self, fileno: int) -> None:
        self._fileno = fileno

    def fileno(self) -> int:
        return self._fileno

    def setsockopt(self, *_: int) -> None: ...

    def getsockopt(self, *_: int) -> int:
        return 0


class _Discard(asyncio.BufferedProtocol):
    """Reads and throws away, for a limited time and a limited number of bytes."""

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
    """Holds a socket from its request for a WebSocket until the answer."""

    def __init__(self, port: Port, transport: Any, visit: Visit) -> None:
        self._port = port
        self._transport = transport
        self._visit = visit
        self._is_lost = False
        self._is_accepted = False

    def connection_lost(self, error: Exception | None) -> None:
        self._is_lost = True
        self._visit.leave()

    def begin(
        self, method: str, target: bytes, fields: Sequence[tuple[bytes, bytes]], peer_ip: str
    ) -> None:
        """Answer this request; reading is paused until then."""
        self._transport.pause_reading()
        request = read_upgrade(target, fields, peer_ip, self._port.proxies)
        if request is None:
            self._refuse_malformed(_MALFORMED, peer_ip)
            return
        # `HttpProtocol` has checked the peer; a client behind a proxy is known only now. A proxy
        # that names no client is not barred: that would bar all of its clients.
        address = address_key(request.client_ip)
        is_behind_proxy = request.client_ip != peer_ip
        fault = upgrade_fault(method, request)
        if is_behind_proxy and self._port.doors.is_barred(address, self._now_ms()):
            self._transport.abort()
        elif fault is not None:
            self._refuse_malformed(fault, request.client_ip)
        else:
            self._port.tasks.start_request(
                RequestKind.UPGRADE, self._answer(request, address), self._fail
            )

    def _refuse_malformed(self, fault: HandshakeRefusal, client_ip: str) -> None:
        self._port.doors.fault(address_key(client_ip), self._now_ms())
        self._refuse(fault)

    def _now_ms(self) -> int:
        return int(asyncio.get_running_loop().time() * 1000)

    def _fail(self, _: Exception) -> None:
        """The upgrade failed: the decision, or the handover to picows after it."""
        if self._is_accepted:
            self._transport.abort()
        else:
            self._refuse(_BROKEN)

    async def _answer(self, request: UpgradeRequest, address: str) -> None:
        verdict = await self._port.gateway.authorise(request)
        if self._is_lost or self._transport.is_closing():
            return
        if self._has_left():
            # Its connection would replace that of the same device, which may have come back.
            self._transport.abort()
            return
        if isinstance(verdict, HandshakeRefusal):
            self._refuse(verdict)
        elif not self._visit.upgraded(address):
            self._refuse(TOO_MANY)
        else:
            self._accept(verdict, plain_head(request))

    def _has_left(self) -> bool:
        """True if the peer has closed. The loop does not notice that, because reading is paused."""
        ends = select.poll()
        # On systems without this event a reset is noticed, but a plain close is not.
        ended = getattr(select, "POLLRDHUP", 0)
        ends.register(self._transport.get_extra_info("socket").fileno(), ended)
        return bool(ends.poll(0))

    def _refuse(self, refusal: HandshakeRefusal) -> None:
        if not self._transport.is_closing():
            self._transport.write(refusal_response(refusal))
            self._transport.close()

    def _accept(self, admission: Admission, head: bytes) -> None:
        """Give the socket to picows, with the request that it has not seen yet."""

        def listener_factory(_: WSUpgradeRequest) -> WSUpgradeResponseWithListener:
            socket = Socket(self._port, admission, self._visit)
            return WSUpgradeResponseWithListener(_response(admission.subprotocol), socket)

        protocol = WSProtocol(
            None,
            None,
            False,
            listener_factory,
            _MUTE,
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
        # Otherwise uvloop would keep this object as long as the socket lives: it keeps the last
        # `data_received` that it was given, and picows does not have one.
        self._transport.set_protocol(_NOBODY)
        self._transport.set_protocol(protocol)
        _feed(protocol, head)
        request = protocol.transport.request
        if request is not None:
            # picows keeps the headers, and no code reads them.
            request.headers = None
        if not self._transport.is_closing():
            self._transport.resume_reading()


@cache
def _response(subprotocol: str | None) -> WSUpgradeResponse:
    """The answer that accepts a connection. picows puts the key's hash into it and writes it out at
    once, so that all connections can share it."""
    headers = None if subprotocol is None else {"Sec-WebSocket-Protocol": subprotocol}
    response: WSUpgradeResponse = WSUpgradeResponse.create_101_response(headers)
    return response


def _feed(protocol: Any, data: bytes) -> None:
    """Copy the bytes into the buffer of WSProtocol, as they fit: it has no `data_received`."""
    view = memoryview(data)
    while view:
        room = protocol.get_buffer(len(view))
        size = min(len(room), len(view))
        room[:size] = view[:size]
        protocol.buffer_updated(size)
        view = view[size:]
