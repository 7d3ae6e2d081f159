"""HTTP on one connection: uvicorn's protocol, with limits of what a peer may cost.

It serves one request at a time. Bytes that arrive before the answer has left are not parsed but
held, at most those of one read; then reading stops, so that the rest waits in the kernel. Heads,
unread answers and times are bounded; malformed requests count against their address.
"""

import asyncio
from typing import TYPE_CHECKING, Any, Final

import httptools
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from tidewire.domain.addresses import address_key
from tidewire.edge.upgrade import TOO_MANY, refusal, refusal_response
from tidewire.edge.websocket import Port, UpgradeProtocol
from tidewire.ports.transport import HandshakeRefusal

if TYPE_CHECKING:
    from tidewire.edge.budgets import Visit

HEAD_BYTES_MAX: Final = 32 * 1024
"""Limit for the head of a request, from its first byte to the empty line; beyond it: 431."""
HEAD_FIELDS_MAX: Final = 100
"""Header fields of a request; beyond it: 431."""
FRAMING_BYTES_MAX: Final = 32 * 1024
"""Limit for what surrounds the body in chunked encoding: chunk sizes, trailer; beyond it: 431."""
UNWANTED_BODY_BYTES_MAX: Final = 64 * 1024
"""Up to this size, a body is read to its end even if it was answered already."""
LINGER_S: Final = 1.0
LINGER_BYTES_MAX: Final = 256 * 1024
"""How long a refused connection stays open, and how many more of its bytes are thrown away.
Closing a socket with unread bytes resets it, and the reset overtakes the answer."""
READER_CHECK_S: Final = 0.02
"""How often to check whether an answer has left."""

_HEAD_END: Final = b"\r\n\r\n"


_MALFORMED: Final = refusal(400, "invalid_request", "this is not a request that can be read")
_HEAD_TOO_LARGE: Final = refusal(
    431,
    "head_too_large",
    f"the head of a request has at most {HEAD_BYTES_MAX} bytes and {HEAD_FIELDS_MAX} fields",
)
_FULL: Final = refusal(503, "service_unavailable", "there are too many connections", 5)


class _Flow(FlowControl):
    """uvicorn's flow control, but the application cannot resume reading during a hold."""

    def __init__(self, transport: asyncio.Transport) -> None:
        super().__init__(transport)
        self._is_held = False
        self._is_reading = True

    def hold(self, is_held: bool = True) -> None:
        self._is_held = is_held
        self._apply()

    def pause_reading(self) -> None:
        self.read_paused = True
        self._apply()

    def resume_reading(self) -> None:
        self.read_paused = False
        self._apply()

    def _apply(self) -> None:
        is_reading = not self._is_held and not self.read_paused
        if is_reading != self._is_reading:
            self._is_reading = is_reading
            if is_reading:
                self._transport.resume_reading()
            else:
                self._transport.pause_reading()


class HttpProtocol(HttpToolsProtocol):
    """One connection. A request is `in head`, then its body comes, then it is complete."""

    flow: _Flow

    def __init__(self, port: Port, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        self._port = port
        self._visit: Visit | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._reader_timer: asyncio.TimerHandle | None = None
        self._held = b""
        self._is_lingering = False
        self._lingered_bytes = 0
        self._begin()

    def _begin(self) -> None:
        """Reset the state for the next request, of which nothing has arrived yet."""
        self._is_in_head = True
        self._is_complete = False
        self._head_bytes = 0
        self._fields_count = 0
        self._body_bytes_left = 0
        self._body_bytes = 0
        self._framing_bytes = 0
        # The last bytes that were parsed: the end of a head may arrive in two parts.
        self._tail = b""

    # From the transport.

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.flow = _Flow(transport)
        doors, peer_ip = self._port.doors, self._peer_ip
        # A trusted proxy counts for no address; the clients behind it do.
        address = None if self._port.proxies.is_trusted(peer_ip) else address_key(peer_ip)
        if address is not None and doors.is_barred(address, self._now_ms()):
            transport.abort()
            return
        self._visit = doors.enter(address)
        if self._visit is None:
            is_full = doors.http_count >= self._port.options.http_connections_max
            transport.write(refusal_response(_FULL if is_full else TOO_MANY))
            transport.close()
            return
        self._wait_for_more()

    def connection_lost(self, exc: Exception | None) -> None:
        self._all_is_here()
        if self._reader_timer is not None:
            self._reader_timer.cancel()
        if self._visit is not None:
            self._visit.leave()
        self._held = b""
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        if self._is_lingering:
            self._lingered_bytes += len(data)
            if self._lingered_bytes > LINGER_BYTES_MAX:
                self._close()
            return
        self._unset_keepalive_if_required()
        if self._is_complete:
            # Reading stops at the first such read, so at most the bytes of one read are held.
            self._held += data
            self.flow.hold()
        else:
            self._take(data)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._watch_reader()

    # Cutting the stream into requests.

    def _take(self, data: bytes) -> None:
        """Parse up to the end of a request; the rest is held until that one is answered."""
        at = 0
        while at < len(data) and not self._is_complete:
            end = self._end_of_part(data, at)
            part = data[at:end]
            at = end
            self._tail = (self._tail + part)[-3:]
            if not self._parse(part):
                return
        if at < len(data):
            self._held = data[at:]
            self.flow.hold()

    def _end_of_part(self, data: bytes, at: int) -> int:
        """Where the bytes end that surely belong to this request: at the end of its body, or at an
        empty line, which ends a head and the last chunk of a body."""
        if self._body_bytes_left:
            return min(len(data), at + self._body_bytes_left)
        seam = self._tail + data[at : at + 3]
        found = seam.find(_HEAD_END)
        if found >= 0:
            return at + found + len(_HEAD_END) - len(self._tail)
        found = data.find(_HEAD_END, at)
        return len(data) if found < 0 else found + len(_HEAD_END)

    def _parse(self, part: bytes) -> bool:
        """False if nothing more may be parsed: the connection is ending, or is a WebSocket now."""
        if self._is_in_head:
            self._head_bytes += len(part)
            if self._head_bytes > HEAD_BYTES_MAX:
                self._refuse(_HEAD_TOO_LARGE)
                return False
        else:
            # `on_body` subtracts the bytes of it that are body.
            self._framing_bytes += len(part)
        try:
            self.parser.feed_data(part)
        except httptools.HttpParserUpgrade:
            if self._should_upgrade():
                self.handle_websocket_upgrade()
                return False
            # An upgrade to something else is answered as if it had not been asked for.
            self.cycle.keep_alive = False
        except httptools.HttpParserError:
            is_large = self._fields_count > HEAD_FIELDS_MAX
            self._refuse(_HEAD_TOO_LARGE if is_large else _MALFORMED)
            return False
        if self._framing_bytes > FRAMING_BYTES_MAX:
            # The parser keeps the whole trailer, and joins it again with each part that arrives.
            self._refuse(_HEAD_TOO_LARGE)
            return False
        return not self._is_ending

    # From the parser.

    def on_message_begin(self) -> None:
        if not self._is_in_head:
            raise ValueError("a request began before the last one was done with")
        if self._timer is None:
            self._wait_for_more()
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        self._fields_count += 1
        if self._fields_count > HEAD_FIELDS_MAX:
            raise ValueError("too many header fields")
        # Trailer fields are ignored: they must not change later who the request is from.
        if self._is_in_head:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._is_in_head = False
        for name, value in self.headers:
            if name == b"content-length":
                self._body_bytes_left = int(value)
        self._all_is_here()
        self._wait_for_more()
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._body_bytes += len(body)
        self._framing_bytes -= len(body)
        self._body_bytes_left = max(0, self._body_bytes_left - len(body))
        super().on_body(body)
        if self.cycle.response_complete and self._body_bytes > UNWANTED_BODY_BYTES_MAX:
            self._linger()

    def on_message_complete(self) -> None:
        self._all_is_here()
        self._is_complete = True
        super().on_message_complete()
        # A request for a WebSocket has no cycle yet.
        cycle: Any = self.cycle
        if cycle is not None and cycle.response_complete:
            self._finish()

    def handle_websocket_upgrade(self) -> None:
        self._all_is_here()
        self.connections.discard(self)
        visit, self._visit = self._visit, None
        assert visit is not None
        # The parser refers to us: without this, we would stay in memory until garbage collection.
        del self.parser
        protocol = UpgradeProtocol(self._port, self.transport, visit)
        self.transport.set_protocol(protocol)
        protocol.begin(self.scope["method"], self.url, self.headers, self._peer_ip)

    # From the application.

    def on_response_complete(self) -> None:
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            # With `Connection: close` or HTTP/1.0. Unsent bytes are still sent.
            self._watch_reader()
            return
        self._unset_keepalive_if_required()
        if self._is_complete:
            self._finish()
        else:
            # The rest of its body is still to come, and is thrown away.
            self.flow.resume_reading()

    # From one request to the next.

    def _finish(self) -> None:
        """The request has arrived and is answered: continue when the answer has left."""
        if self._is_ending:
            return
        if self.transport.get_write_buffer_size():
            self._watch_reader()
        else:
            self._next_request()

    def _next_request(self) -> None:
        self._begin()
        held, self._held = self._held, b""
        if held:
            self._take(held)
        if self._is_ending or self._visit is None or self._is_complete:
            return
        self.flow.hold(False)
        if not self._head_bytes:
            self.timeout_keep_alive_task = self.loop.call_later(
                self.timeout_keep_alive, self.timeout_keep_alive_handler
            )

    # Time.

    @property
    def _peer_ip(self) -> str:
        return self.client[0] if self.client else ""

    def _now_ms(self) -> int:
        return int(self.loop.time() * 1000)

    def _wait_for_more(self) -> None:
        timeout_s = self._port.options.header_timeout_ms / 1000
        self._timer = self.loop.call_later(timeout_s, self._too_slow)

    def _all_is_here(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _too_slow(self) -> None:
        self._timer = None
        if not self.transport.is_closing():
            self._close()

    @property
    def _is_ending(self) -> bool:
        return self._is_lingering or self.transport.is_closing()

    def _linger(self) -> None:
        """Answer nothing more. End the connection when its peer has had time to read the last
        answer, and throw away the bytes that arrive until then."""
        if self._is_ending:
            return
        self._is_lingering = True
        # A request for a WebSocket has no cycle yet. A cycle that still works writes no more.
        cycle: Any = self.cycle
        if cycle is not None and not cycle.response_complete:
            cycle.disconnected = True
            cycle.message_event.set()
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self.flow.resume_reading()
        self.flow.hold(False)
        self._timer = self.loop.call_later(LINGER_S, self._too_slow)
        self._watch_reader()

    def _close(self) -> None:
        """End the connection when the written bytes have left, or the peer does not read them."""
        self.transport.close()
        self._watch_reader()

    def _watch_reader(self) -> None:
        """Watch whether an answer leaves, and continue when it has. Watch a closing connection
        too: it stays open as long as bytes are unsent."""
        if self._reader_timer is None:
            unsent_bytes = self.transport.get_write_buffer_size()
            self._reader_timer = self.loop.call_later(
                0, self._check_reader, unsent_bytes, self._now_ms()
            )

    def _check_reader(self, unsent_bytes: int, since_ms: int) -> None:
        self._reader_timer = None
        left_bytes = self.transport.get_write_buffer_size()
        if not left_bytes:
            if not self._is_ending and self._is_complete and self.cycle.response_complete:
                self._next_request()
            return
        now_ms = self._now_ms()
        if left_bytes != unsent_bytes:
            since_ms = now_ms
        elif now_ms - since_ms >= self._port.options.answer_timeout_ms:
            self.transport.abort()
            return
        self._reader_timer = self.loop.call_later(
            READER_CHECK_S, self._check_reader, left_bytes, since_ms
        )

    def _refuse(self, answer: HandshakeRefusal) -> None:
        """Refuse a malformed request, unless its answer has begun, and end the connection."""
        self._all_is_here()
        self._held = b""
        if self._visit is not None and self._visit.address is not None:
            self._port.doors.fault(self._visit.address, self._now_ms())
        # A request for a WebSocket has no cycle yet; in a head it is the last request's.
        cycle: Any = self.cycle
        if self._is_in_head or cycle is None or not cycle.response_started:
            self.transport.write(refusal_response(answer))
        self._linger()
