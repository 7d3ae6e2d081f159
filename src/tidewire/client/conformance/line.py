"""One connection of the played server: what was heard on it, and what is said on it."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec

from tidewire.client.conformance.sockets import Socket
from tidewire.wire.codec import encode_server_frame
from tidewire.wire.server_frames import ServerFrame


@dataclass(slots=True)
class Heard:
    """A frame of the client, as it came. `is_early`: the server had not introduced itself."""

    at: float
    line: "Line"
    type: str
    request_id: str | None
    payload: dict[str, Any]
    is_early: bool
    was_stored: bool = True

    @property
    def position(self) -> int:
        """What an ack or a read says."""
        found = self.payload.get("last_acked_sequence", self.payload.get("last_read_sequence", 0))
        return int(found)


class _Frame(msgspec.Struct):
    """Whatever a client says; what is wrong with it is for a check to find."""

    type: str = ""
    request_id: str | None = None
    payload: dict[str, Any] = msgspec.field(default_factory=dict)


class Line:
    def __init__(
        self,
        number: int,
        now: Callable[[], float],
        *,
        on_frame: Callable[[Heard], None],
        on_news: Callable[[], None],
    ) -> None:
        self.number = number
        self.socket: Socket | None = None
        self.introduced_at: float | None = None
        self.ended_at: float | None = None
        self.digests_sent = 0
        self.is_deaf = False
        """A half-open connection: what comes is not even noted, and nothing is answered."""
        self.unanswered: dict[str, Heard] = {}
        self._now = now
        self._on_frame = on_frame
        self._on_news = on_news
        self._pings: dict[bytes, asyncio.Future[None]] = {}

    @property
    def is_introduced(self) -> bool:
        return self.introduced_at is not None

    @property
    def is_over(self) -> bool:
        return self.ended_at is not None or self.socket is None or self.socket.is_over

    @property
    def close_code(self) -> int | None:
        return None if self.socket is None else self.socket.close_code

    # Saying.

    def send(self, frame: ServerFrame) -> None:
        self.send_raw(encode_server_frame(frame))

    def send_raw(self, text: bytes) -> None:
        if self.socket is not None and not self.is_deaf:
            self.socket.send_text(text)

    def send_part_of(self, text: bytes) -> None:
        """Half of a frame, then the end."""
        if self.socket is not None:
            self.socket.send_part_of(text)

    def close(self, code: int) -> None:
        if self.socket is not None:
            self.socket.send_close(code)

    def cut(self) -> float:
        """End it without a word; when that was."""
        at = self._now()
        if self.socket is not None:
            self.socket.cut()
        return at

    async def barrier(self, patience_s: float) -> bool:
        """Wait until the client has read everything that was said so far; False: it is over."""
        if self.socket is None or self.is_over:
            return False
        payload = f"barrier-{len(self._pings)}".encode()
        future = self._pings[payload] = asyncio.get_running_loop().create_future()
        self.socket.send_ping(payload)
        done, _ = await asyncio.wait([future], timeout=patience_s)
        return bool(done) and not self.is_over

    # Hearing.

    def on_text(self, socket: Socket, text: bytes) -> None:
        if self.is_deaf:
            return
        try:
            frame = msgspec.json.decode(text, type=_Frame)
        except ValueError:
            frame = _Frame(type="unreadable")
        heard = Heard(
            self._now(),
            self,
            frame.type,
            frame.request_id,
            frame.payload,
            is_early=not self.is_introduced,
        )
        if frame.type in ("send_message", "sync_request", "digest_request"):
            self.unanswered[f"{frame.type} {frame.request_id}"] = heard
        self._on_frame(heard)

    def on_pong(self, socket: Socket, payload: bytes) -> None:
        future = self._pings.get(payload)
        if future is not None and not future.done():
            future.set_result(None)

    def on_end(self, socket: Socket) -> None:
        self.ended_at = self._now()
        for future in self._pings.values():
            if not future.done():
                future.set_result(None)
        self._on_news()

    def answered(self, heard: Heard) -> None:
        self.unanswered.pop(f"{heard.type} {heard.request_id}", None)
