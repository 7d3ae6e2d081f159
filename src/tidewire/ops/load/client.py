"""A lean WebSocket client on picows: connects, reads its digest, syncs, and counts what happens."""

import asyncio
import logging
import socket
from collections import Counter
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

from tidewire.ops.load.frames import (
    Closing,
    Digest,
    Error,
    Established,
    Frame,
    SyncPage,
    SyncPart,
    ack_template,
    decode_frame,
    sync_request,
)
from tidewire.ops.load.target import Person, Target

HANDSHAKE_S_MAX: Final = 20.0
ANSWER_S_MAX: Final = 20.0
QUIET_BUFFER_BYTES: Final = 2_048
NARROW_SEGMENT_BYTES: Final = 536
NARROW_BUFFER_BYTES: Final = 16 * 1024
TEXT: Final = WSMsgType.TEXT

_logger = logging.getLogger("tidewire.ops.load.picows")
_logger.setLevel(logging.CRITICAL)


class ConnectFailed(Exception):
    """No connection came about; `kind` is what is counted."""

    def __init__(self, kind: str, retry_after_s: float = 0.0) -> None:
        super().__init__(kind)
        self.kind = kind
        self.retry_after_s = retry_after_s


class Lost(Exception):
    """The connection is gone, or an answer did not come."""


class Client(WSListener):
    """One person on one device. Connects again under the same name as often as it likes."""

    def __init__(self, person: Person, errors: Counter[str]) -> None:
        self.person = person
        self.errors = errors
        self.heads: dict[str, int] = {}
        """What the last digest said of each chat."""
        self.transport: WSTransport | None = None
        self.reconnect_delay_s = 0.0
        self.is_narrow = False
        """Its next connection has little room in the kernel, so that it can be a slow reader."""
        self._ready: asyncio.Future[None] | None = None
        self._page: asyncio.Future[SyncPart] | None = None
        self._requests = 0
        self._is_leaving = False

    # For whoever drives it.

    async def connect(
        self, target: Target, number: int = 0, *, buffer_bytes: int = 16 * 1024
    ) -> None:
        """Connect and wait for the whole digest. Raises ConnectFailed."""
        self._is_leaving = False
        self.reconnect_delay_s = 0.0
        self.heads = {}
        self._ready = asyncio.get_running_loop().create_future()
        options: dict[str, Any] = {}
        source = target.source_address(number)
        if source is not None:
            options["local_addr"] = source
        if self.is_narrow:
            options["socket_factory"] = _narrow_socket
        try:
            await ws_connect(
                lambda: self,
                target.socket_url,
                extra_headers={
                    "Authorization": f"Bearer {self.person.token}",
                    "X-Device-ID": self.person.device_id,
                },
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
            raise ConnectFailed("lost_in_handshake") from error

    async def sync_page(self, chat_id: str, after: int) -> SyncPart:
        """One page of what lies above a cursor. Raises Lost."""
        if self.transport is None:
            raise Lost
        self._page = asyncio.get_running_loop().create_future()
        self._requests += 1
        self.transport.send(TEXT, sync_request(chat_id, after, f"s{self._requests}"))
        try:
            return await asyncio.wait_for(self._page, ANSWER_S_MAX)
        except TimeoutError as error:
            self.errors["sync_timeout"] += 1
            raise Lost from error

    def ack(self, chat_id: str, sequence: int) -> None:
        if self.transport is not None:
            self.transport.send(TEXT, ack_template(chat_id) % sequence)

    def drop(self) -> None:
        """Let go of the connection at once, without a word."""
        self._is_leaving = True
        if self.transport is not None:
            self.transport.disconnect(False)

    # For picows.

    def on_ws_connected(self, transport: WSTransport) -> None:
        self.transport = transport

    def on_ws_disconnected(self, transport: WSTransport) -> None:
        self.transport = None
        for waiting in (self._ready, self._page):
            if waiting is not None and not waiting.done():
                waiting.set_exception(Lost())
        self.lost(is_expected=self._is_leaving)

    def on_ws_frame(self, transport: WSTransport, frame: WSFrame) -> None:
        if frame.msg_type == TEXT:
            self.frame_received(self.decoded(frame))
        elif frame.msg_type == WSMsgType.CLOSE:
            self.closed_by_peer(transport, frame)

    # For those who know more.

    def decoded(self, frame: WSFrame) -> Frame | None:
        try:
            return decode_frame(frame.get_payload_as_memoryview())
        except msgspec.DecodeError:
            self.errors["unknown_frame"] += 1
            return None

    def frame_received(self, frame: Frame | None) -> None:
        """Everything that is not of the hot path."""
        if isinstance(frame, Digest):
            self.heads.update((chat.chat_id, chat.head) for chat in frame.payload.chats)
            if frame.payload.last:
                self.digest_complete()
        elif isinstance(frame, SyncPage):
            if self._page is not None and not self._page.done():
                self._page.set_result(frame.payload)
        elif isinstance(frame, Error):
            self.refused(frame)
        elif isinstance(frame, Closing):
            self.errors[f"closing_{frame.payload.reason}"] += 1
            self.reconnect_delay_s = frame.payload.reconnect_delay_ms / 1000
        elif isinstance(frame, Established) and frame.payload.user_id != self.person.user_id:
            self.errors["wrong_user"] += 1

    def digest_complete(self) -> None:
        if self._ready is not None and not self._ready.done():
            self._ready.set_result(None)

    def refused(self, frame: Error) -> None:
        self.errors[f"error_{frame.payload.code}"] += 1
        if frame.request_id is not None and self._page is not None and not self._page.done():
            self._page.set_exception(Lost(frame.payload.code))

    def closed_by_peer(self, transport: WSTransport, frame: WSFrame) -> None:
        if not self._is_leaving:
            self.errors[f"close_{frame.get_close_code():d}"] += 1
        transport.send_close(frame.get_close_code())
        transport.disconnect()

    def lost(self, *, is_expected: bool) -> None:
        """The connection has ended."""


async def _narrow_socket(url: WSParsedURL) -> socket.socket:
    """Small segments make a small send buffer at the other end as well."""
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
    retry_after = response.headers.get("Retry-After", "")
    return ConnectFailed(
        f"http_{int(response.status)}", float(retry_after) if retry_after.isdecimal() else 0.0
    )
