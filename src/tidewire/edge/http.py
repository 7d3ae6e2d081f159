"""HTTP on one connection: uvicorn's protocol, with what a peer may cost.

One request at a time: what comes before its answer has left is not parsed but held back, at most
what one read brings, and reading stops, so that the rest waits in the kernel. Heads, unread answers
and times are bounded; what is malformed counts against its address.
"""

import asyncio
from typing import TYPE_CHECKING, Any, Final, cast

import httptools
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from tidewire.domain.addresses import address_key
from tidewire.edge.doors import Doors, Visit
from tidewire.edge.options import EdgeOptions
from tidewire.edge.proxies import TrustedProxies
from tidewire.edge.upgrade import refusal_response
from tidewire.ports.transport import HandshakeRefusal

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidewire.edge.websocket import UpgradeProtocol

HEAD_BYTES_MAX: Final = 32 * 1024
"""Of a request, from its first byte to the empty line; beyond it: 431."""
HEAD_FIELDS_MAX: Final = 100
"""Header fields of a request; beyond it: 431."""
FRAMING_BYTES_MAX: Final = 32 * 1024
"""Of what is around a body in chunks: their sizes and the trailer; beyond it: 431."""
UNWANTED_BODY_BYTES_MAX: Final = 64 * 1024
"""How much of a body is read to its end that was answered already."""
READER_CHECK_S: Final = 0.02
"""How often it is looked whether an answer has left."""

_HEAD_END: Final = b"\r\n\r\n"


def _refusal(http_status: int, error: str, message: str, retry_s: int | None = None) -> bytes:
    return refusal_response(
        HandshakeRefusal(
            http_status=http_status, error=error, message=message, retry_after_seconds=retry_s
        )
    )


_MALFORMED: Final = _refusal(400, "invalid_request", "this is not a request that can be read")
_HEAD_TOO_LARGE: Final = _refusal(
    431,
    "head_too_large",
    f"the head of a request has at most {HEAD_BYTES_MAX} bytes and {HEAD_FIELDS_MAX} fields",
)
_TOO_MANY: Final = _refusal(429, "rate_limited", "too many connections from this address", 5)
_FULL: Final = _refusal(503, "service_unavailable", "there are too many connections", 5)


class HttpRules:
    """What all HTTP connections have in common."""

    def __init__(self, options: EdgeOptions, proxies: TrustedProxies, doors: Doors) -> None:
        self.options = options
        self.proxies = proxies
        self.doors = doors

    def address_of(self, peer_ip: str) -> str | None:
        """Whom a connection counts for; None for a trusted proxy."""
        return None if self.proxies.is_trusted(peer_ip) else address_key(peer_ip)


class _Flow(FlowControl):
    """uvicorn's, which goes on reading when the application wants a body: not while we hold it."""

    def __init__(self, transport: asyncio.Transport) -> None:
        super().__init__(transport)
        self._is_held = False

    def hold(self) -> None:
        if not self._is_held:
            self._is_held = True
            if not self.read_paused:
                self._transport.pause_reading()

    def release(self) -> None:
        if self._is_held:
            self._is_held = False
            if not self.read_paused:
                self._transport.resume_reading()

    def pause_reading(self) -> None:
        if not self.read_paused:
            self.read_paused = True
            if not self._is_held:
                self._transport.pause_reading()

    def resume_reading(self) -> None:
        if self.read_paused:
            self.read_paused = False
            if not self._is_held:
                self._transport.resume_reading()


class HttpProtocol(HttpToolsProtocol):
    """One connection. A request is `in head`, then its body comes, then it is complete."""

    flow: _Flow

    def __init__(self, rules: HttpRules, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        self._rules = rules
        self._visit: Visit | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._reader_timer: asyncio.TimerHandle | None = None
        self._is_in_head = True
        self._is_complete = False
        self._head_bytes = 0
        self._fields_count = 0
        self._body_bytes_left = 0
        self._body_bytes = 0
        self._framing_bytes = 0
        self._held = b""
        # The last bytes of what was parsed: the end of a head may come in two parts.
        self._tail = b""

    # From the transport.

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.flow = _Flow(transport)
        rules = self._rules
        address = rules.address_of(self.client[0] if self.client else "")
        if address is not None and rules.doors.is_barred(address, self._now_ms()):
            transport.abort()
            return
        self._visit = rules.doors.enter(address)
        if self._visit is None:
            is_full = rules.doors.http_count >= rules.options.http_connections_max
            transport.write(_FULL if is_full else _TOO_MANY)
            transport.close()
            return
        self._wait_for_more()

    def connection_lost(self, exc: Exception | None) -> None:
        self._all_is_here()
        self._stop_watching_reader()
        if self._visit is not None:
            self._visit.leave()
        self._held = b""
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        self._unset_keepalive_if_required()
        if self._is_complete:
            # Reading stops at the first of these, so there is one, of the size of a read.
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
        """Where what is surely of this request ends: with its body, or with an empty line, which
        ends a head and the last chunk of a body."""
        if self._body_bytes_left:
            return min(len(data), at + self._body_bytes_left)
        seam = self._tail + data[at : at + 3]
        found = seam.find(_HEAD_END)
        if found >= 0:
            return at + found + len(_HEAD_END) - len(self._tail)
        found = data.find(_HEAD_END, at)
        return len(data) if found < 0 else found + len(_HEAD_END)

    def _parse(self, part: bytes) -> bool:
        """False if the connection is not ours any more."""
        if self._is_in_head:
            self._head_bytes += len(part)
            if self._head_bytes > HEAD_BYTES_MAX:
                self._refuse(_HEAD_TOO_LARGE)
                return False
        else:
            # What of it is body, `on_body` takes off again.
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
            # The parser keeps a trailer whole, and joins it anew with each part that comes.
            self._refuse(_HEAD_TOO_LARGE)
            return False
        return not self.transport.is_closing()

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
        # Others come in a trailer: a request is not told later who it is from.
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
            self._close()

    def on_message_complete(self) -> None:
        self._all_is_here()
        self._is_complete = True
        super().on_message_complete()
        # There is none yet in a request for a WebSocket.
        cycle: Any = self.cycle
        if cycle is not None and cycle.response_complete:
            self._finish()

    def handle_websocket_upgrade(self) -> None:
        self._all_is_here()
        self.connections.discard(self)
        output = [self.scope["method"].encode(), b" ", self.url, b" HTTP/1.1\r\n"]
        for name, value in self.scope["headers"]:
            output += [name, b": ", value, b"\r\n"]
        output.append(b"\r\n")
        make = cast("Callable[[], UpgradeProtocol]", self.ws_protocol_class)
        protocol = make()
        protocol.visit, self._visit = self._visit, None
        protocol.connection_made(self.transport)
        protocol.data_received(b"".join(output))
        self.transport.set_protocol(protocol)

    # From the application.

    def on_response_complete(self) -> None:
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            # With `Connection: close` or HTTP/1.0; what was not sent yet still is.
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
        """The request is here and answered: go on when the answer has left."""
        if self.transport.is_closing():
            return
        if self.transport.get_write_buffer_size():
            self._watch_reader()
        else:
            self._next_request()

    def _next_request(self) -> None:
        self._is_in_head = True
        self._is_complete = False
        self._head_bytes = 0
        self._fields_count = 0
        self._body_bytes_left = 0
        self._body_bytes = 0
        self._framing_bytes = 0
        self._tail = b""
        held, self._held = self._held, b""
        if held:
            self._take(held)
        if self.transport.is_closing() or self._visit is None or self._is_complete:
            return
        self.flow.release()
        if not self._head_bytes:
            self.timeout_keep_alive_task = self.loop.call_later(
                self.timeout_keep_alive, self.timeout_keep_alive_handler
            )

    # Time.

    def _now_ms(self) -> int:
        return int(self.loop.time() * 1000)

    def _wait_for_more(self) -> None:
        timeout_s = self._rules.options.header_timeout_ms / 1000
        self._timer = self.loop.call_later(timeout_s, self._too_slow)

    def _all_is_here(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _too_slow(self) -> None:
        self._timer = None
        if not self.transport.is_closing():
            self._close()

    def _close(self) -> None:
        """End the connection when what was written has left, or is not read."""
        self.transport.close()
        self._watch_reader()

    def _watch_reader(self) -> None:
        """See that an answer leaves, and go on when it has. Also of a connection that is closing:
        it stays for as long as something is left."""
        if self._reader_timer is None:
            unsent_bytes = self.transport.get_write_buffer_size()
            self._reader_timer = self.loop.call_later(
                0, self._check_reader, unsent_bytes, self._now_ms()
            )

    def _check_reader(self, unsent_bytes: int, since_ms: int) -> None:
        self._reader_timer = None
        left_bytes = self.transport.get_write_buffer_size()
        if not left_bytes:
            is_closing = self.transport.is_closing()
            if not is_closing and self._is_complete and self.cycle.response_complete:
                self._next_request()
            return
        now_ms = self._now_ms()
        if left_bytes != unsent_bytes:
            since_ms = now_ms
        elif now_ms - since_ms >= self._rules.options.answer_timeout_ms:
            self.transport.abort()
            return
        self._reader_timer = self.loop.call_later(
            READER_CHECK_S, self._check_reader, left_bytes, since_ms
        )

    def _stop_watching_reader(self) -> None:
        if self._reader_timer is not None:
            self._reader_timer.cancel()
            self._reader_timer = None

    def _refuse(self, answer: bytes) -> None:
        """Answer what is malformed, unless an answer has begun, and end the connection."""
        self._all_is_here()
        self._held = b""
        if self._visit is not None and self._visit.address is not None:
            self._rules.doors.fault(self._visit.address, self._now_ms())
        # There is none yet in a request for a WebSocket; in a head it is the last request's.
        cycle: Any = self.cycle
        if self._is_in_head or cycle is None or not cycle.response_started:
            self.transport.write(answer)
        self._close()
