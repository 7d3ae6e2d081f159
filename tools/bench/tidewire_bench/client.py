"""A lean WebSocket client on picows: connects, reads its digest, syncs, and counts what happens."""

import asyncio
import logging
import socket
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any, Final

import msgspec
from picows import (
    WSFrame,
    WSHandshakeError,
    WSListener,
    WSMsgType,
    WSParsedURL,
    WSTransport,
    ws_connect,
)

from tidewire.wire.features import FEATURES_HEADER, Feature
from tidewire.wire.framing import messages_of
from tidewire_bench.frames import (
    Closing,
    Digest,
    DigestPart,
    Error,
    Established,
    Frame,
    Page,
    PagePart,
    Resync,
    ack_template,
    decode_message,
    sync_request,
)
from tidewire_bench.rest import retry_after_s
from tidewire_bench.target import Person, Target

HANDSHAKE_S_MAX: Final = 20.0
ANSWER_S_MAX: Final = 20.0
QUIET_BUFFER_BYTES: Final = 2_048
NARROW_SEGMENT_BYTES: Final = 536
NARROW_BUFFER_BYTES: Final = 16 * 1024
TEXT: Final = WSMsgType.TEXT
ACK_AFTER: Final = 10
"""After how many messages an ack is sent."""
RETRIED: Final = frozenset({"RATE_LIMITED", "SERVER_BUSY", "SERVICE_UNAVAILABLE", "INTERNAL_ERROR"})
_RETRY_S_MIN: Final = 0.05

_logger = logging.getLogger("tidewire_bench.picows")
_logger.setLevel(logging.CRITICAL)


class ConnectFailed(Exception):
    """No connection was established; `kind` is the name under which that is counted."""

    def __init__(self, kind: str, retry_after_s: float = 0.0) -> None:
        super().__init__(kind)
        self.kind = kind
        self.retry_after_s = retry_after_s


class Lost(Exception):
    """The connection is gone, or an answer did not come."""


class Client(WSListener):
    """One person on one device. Can connect again as the same device, any number of times."""

    def __init__(
        self,
        person: Person,
        errors: Counter[str],
        *,
        is_offering_batch: bool = True,
        is_offering_entries: bool = False,
    ) -> None:
        self.person = person
        self.errors = errors
        self.is_offering_batch = is_offering_batch
        self.is_offering_entries = is_offering_entries
        self.is_batching = False
        """Frames may come and be sent as arrays, on this connection."""
        self.heads: dict[str, int] = {}
        """The head of each chat, from the last digest."""
        self.transport: WSTransport | None = None
        self.reconnect_delay_s = 0.0
        self.is_narrow = False
        """Its next connection has small buffers in the kernel, so that it can be a slow reader."""
        self.is_leaving = False
        self._lost_as = ""
        """The name under which a connection that failed in the handshake is counted."""
        self._ready: asyncio.Future[None] | None = None
        self._page: asyncio.Future[PagePart] | None = None
        self._requests = 0
        self._out: list[bytes] = []

    # For the code that drives it.

    async def connect(
        self, target: Target, number: int = 0, *, buffer_bytes: int = 16 * 1024
    ) -> None:
        """Connect and wait for the whole digest. Raises ConnectFailed."""
        self.is_leaving = False
        self.is_batching = False
        self.reconnect_delay_s = 0.0
        self.heads = {}
        self._lost_as = "lost_in_handshake"
        self._ready = asyncio.get_running_loop().create_future()
        options: dict[str, Any] = {}
        headers = {
            "Authorization": f"Bearer {self.person.token}",
            "X-Device-ID": self.person.device_id,
        }
        offered = [Feature.BATCH] if self.is_offering_batch else []
        if self.is_offering_entries:
            offered.append(Feature.ENTRIES)
        if offered:
            headers[FEATURES_HEADER] = ", ".join(offered)
        source = target.source_address(number)
        if source is not None:
            options["local_addr"] = source
        if self.is_narrow:
            options["socket_factory"] = _narrow_socket
        try:
            await ws_connect(
                lambda: self,
                target.socket_url,
                extra_headers=headers,
                websocket_handshake_timeout=HANDSHAKE_S_MAX,
                logger_name=_logger,
                max_redirects=0,
                read_buffer_init_size=buffer_bytes,
                **options,
            )
            await asyncio.wait_for(self._ready, HANDSHAKE_S_MAX)
        except WSHandshakeError as error:
            raise _refusal(error) from error
        except ConnectionRefusedError as error:
            raise ConnectFailed("unreachable") from error
        except TimeoutError as error:
            self.drop()
            raise ConnectFailed("timeout") from error
        except (OSError, Lost) as error:
            raise ConnectFailed(self._lost_as) from error

    async def sync_page(self, chat_id: str, after: int) -> PagePart:
        """One page of the messages above a cursor. Raises Lost."""
        return await self._answer_of(self._ask_page(chat_id, after))

    async def pages(self, chat_id: str, after: int) -> AsyncIterator[PagePart]:
        """All messages above a cursor, page by page. The next page is requested before this one is
        processed, so that both sides work at the same time. Raises Lost."""
        asked: asyncio.Future[PagePart] | None = self._ask_page(chat_id, after)
        while asked is not None:
            page = await self._answer_of(asked)
            asked = self._ask_page(chat_id, page.synced_through) if page.has_more else None
            yield page

    def _ask_page(self, chat_id: str, after: int) -> "asyncio.Future[PagePart]":
        if self.transport is None:
            raise Lost
        asked = self._page = asyncio.get_running_loop().create_future()
        self._requests += 1
        self.send(sync_request(chat_id, after, f"s{self._requests}"))
        return asked

    async def _answer_of(self, asked: "asyncio.Future[PagePart]") -> PagePart:
        try:
            return await asyncio.wait_for(asked, ANSWER_S_MAX)
        except TimeoutError as error:
            self.got_no_page()
            raise Lost from error

    def ack(self, chat_id: str, sequence: int) -> None:
        self.send(ack_template(chat_id) % sequence)

    def send(self, frame: bytes) -> None:
        """Send it if there is a connection; one that takes arrays gets all of this turn at once."""
        if self.is_batching:
            if not self._out:
                asyncio.get_running_loop().call_soon(self.flush)
            self._out.append(frame)
        elif self.transport is not None:
            self.transport.send(TEXT, frame)

    def flush(self) -> None:
        """Send what this turn has gathered."""
        due, self._out = self._out, []
        self.send_together(due)

    def send_together(self, frames: list[bytes]) -> None:
        if self.transport is not None:
            for message in messages_of(frames) if self.is_batching else frames:
                self.transport.send(TEXT, message)

    def drop(self) -> None:
        """Abort the connection at once, without a close frame."""
        self.is_leaving = True
        if self.transport is not None:
            self.transport.disconnect(False)

    # For picows.

    def on_ws_connected(self, transport: WSTransport) -> None:
        self.transport = transport

    def on_ws_disconnected(self, transport: WSTransport) -> None:
        self.transport = None
        self._out = []
        for waiting in (self._ready, self._page):
            if waiting is not None and not waiting.done():
                waiting.set_exception(Lost())
        self.lost(is_expected=self.is_leaving)

    def on_ws_frame(self, transport: WSTransport, frame: WSFrame) -> None:
        try:
            got = decode_message(frame.get_payload_as_memoryview())
        except msgspec.DecodeError:
            self.odd_frame(transport, frame)
        else:
            for one in got if isinstance(got, list) else (got,):
                self.received(one)

    def odd_frame(self, transport: WSTransport, frame: WSFrame) -> None:
        """Handle a frame that is no known JSON: a close, or an unknown one."""
        if frame.msg_type == TEXT:
            self.errors["unknown_frame"] += 1
        elif frame.msg_type == WSMsgType.CLOSE:
            kind = f"close_{frame.get_close_code():d}"
            if self._ready is not None and not self._ready.done():
                self._lost_as = kind
            elif not self.is_leaving:
                self.errors[kind] += 1
            transport.send_close(frame.get_close_code())
            transport.disconnect()

    # For clients that look at more.

    def received(self, frame: Frame) -> None:
        """Handle the frames that are not on the path of every message."""
        match frame:
            case Digest(payload):
                self.digested(payload)
            case Page(payload):
                if self._page is not None and not self._page.done():
                    self._page.set_result(payload)
            case Error():
                self.errors[f"error_{frame.payload.code}"] += 1
                if frame.request_id is not None:
                    self.refused(frame, frame.request_id)
            case Closing(payload):
                self.errors[f"closing_{payload.reason}"] += 1
                self.reconnect_delay_s = payload.reconnect_delay_ms / 1000
            case Resync(payload):
                self.errors["resync"] += 1
                self.resync(payload.delay_ms / 1000)
            case Established(payload):
                self.is_batching = Feature.BATCH in payload.features
                if payload.user_id != self.person.user_id:
                    self.errors["wrong_user"] += 1
            case _:
                pass

    def digested(self, digest: DigestPart) -> None:
        self.heads.update((chat.chat_id, chat.head) for chat in digest.chats)
        if digest.last and self._ready is not None and not self._ready.done():
            self._ready.set_result(None)

    def refused(self, frame: Error, request_id: str) -> None:
        if request_id.startswith("s") and self._page is not None and not self._page.done():
            self._page.set_exception(Lost(frame.payload.code))

    def got_no_page(self) -> None:
        self.errors["sync_timeout"] += 1

    def resync(self, delay_s: float) -> None:
        """The server has said that something may be missing: ask for it after this delay."""

    def lost(self, *, is_expected: bool) -> None:
        """The connection has ended."""


def retry_delay_s(frame: Error) -> float | None:
    """How long to wait before a refused message is sent again; None if a retry is useless."""
    if frame.payload.code not in RETRIED:
        return None
    return max(_RETRY_S_MIN, frame.payload.details.retry_after_seconds)


async def _narrow_socket(url: WSParsedURL) -> socket.socket:
    """Small segments keep the send buffer at the other end small as well."""
    narrow = socket.socket()
    narrow.setblocking(False)
    narrow.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, NARROW_SEGMENT_BYTES)
    narrow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, NARROW_BUFFER_BYTES)
    try:
        await asyncio.get_running_loop().sock_connect(narrow, (url.host, url.port))
    except BaseException:
        narrow.close()
        raise
    return narrow


def _refusal(error: WSHandshakeError) -> ConnectFailed:
    response = error.response
    if response is None:
        return ConnectFailed("lost_in_handshake")
    wait_s = retry_after_s(response.headers, 0.0)
    return ConnectFailed(f"http_{int(response.status)}", wait_s)
