"""One connection of the played server: what the client sends on it, and what the server sends.

Where arrays are on (`wire.features`), all frames of one turn of the loop are sent together, as by a
real server.
"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from tidewire.domain.limits import BATCH_FRAMES_MAX, FRAME_BYTES_MAX
from tidewire.wire.codec import encode_server_frame
from tidewire.wire.features import Feature
from tidewire.wire.framing import SEAM, frame_text, frame_together
from tidewire.wire.server_frames import ServerFrame
from tidewire.wire.timestamps import format_time_ms
from tidewire_conformance.sockets import Socket


@dataclass(slots=True)
class Heard:
    """A frame of the client, as it came. `is_early`: it came before `connection_established`."""

    at: float
    connection: "Connection"
    type: str
    request_id: str | None
    payload: dict[str, Any]
    is_early: bool
    was_stored: bool = True

    @property
    def position(self) -> int:
        """The position in an ack or a read."""
        found = self.payload.get("last_acked_sequence", self.payload.get("last_read_sequence", 0))
        return int(found)


class _Frame(msgspec.Struct):
    """Any frame of a client; the checks find what is wrong with it."""

    type: str = ""
    request_id: str | None = None
    payload: dict[str, Any] = msgspec.field(default_factory=dict)


UNREADABLE: Final = "unreadable"
"""The type given to what is no frame, and to an array that the client may not send."""
_ALONE: Final = frozenset(
    {"connection_established", "chat_digest", "sync_response", "connection_closing"}
)


class Connection(Socket):
    def __init__(
        self,
        number: int,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        *,
        features: tuple[str, ...] = (),
        on_frame: Callable[[Heard], None],
        on_news: Callable[[], None],
    ) -> None:
        super().__init__(reader, writer)
        self.number = number
        self.features = features
        self.arrays_heard = 0
        self.arrays_sent = 0
        self.introduced_at: float | None = None
        self.digests_sent = 0
        self.is_deaf = False
        """A half-open connection: frames that come are not even noted, and nothing is answered."""
        self.unanswered: dict[str, Heard] = {}
        self._loop = asyncio.get_running_loop()
        self._on_frame = on_frame
        self._on_news = on_news
        self._pings: dict[bytes, asyncio.Future[None]] = {}
        self._is_batching = Feature.BATCH in features
        self._out: list[bytes] = []

    # Saying.

    def send(self, frame: Callable[..., ServerFrame], payload: object, **more: object) -> None:
        """Send a frame of this kind, with the current time."""
        stamp = format_time_ms(wall_ms())
        self.send_raw(encode_server_frame(frame(timestamp=stamp, payload=payload, **more)))

    def send_raw(self, text: bytes) -> None:
        if self.is_deaf:
            return
        if not self._is_batching:
            self.send_text(text)
            return
        if not self._out:
            self._loop.call_soon(self._flush)
        framed = frame_text(text)
        is_alone = msgspec.json.decode(text, type=_Frame).type in _ALONE
        self._out += (SEAM, framed, SEAM) if is_alone else (framed,)

    def _flush(self) -> None:
        due, self._out = self._out, []
        if due:
            together = frame_together(due)
            self.arrays_sent += together != b"".join(due)
            super()._write(together)

    def _write(self, data: bytes) -> None:
        self._flush()
        super()._write(data)

    def drop(self) -> None:
        self._flush()
        super().drop()

    def cut(self) -> None:
        self._flush()
        super().cut()

    async def barrier(self, patience_s: float) -> bool:
        """Wait until the client has read all that was sent; False if not in time, or it is over."""
        if self.is_over:
            return False
        payload = f"barrier-{len(self._pings)}".encode()
        future = self._pings[payload] = self._loop.create_future()
        self.send_ping(payload)
        done, _ = await asyncio.wait([future], timeout=patience_s)
        return bool(done) and not self.is_over

    # Hearing.

    def on_text(self, text: bytes) -> None:
        if not self.is_deaf:
            for frame in self._frames(text):
                self._hear(frame)

    def _frames(self, text: bytes) -> list[_Frame]:
        try:
            said = msgspec.json.decode(text, type=_Frame | list[_Frame])
        except ValueError:
            return [_Frame(type=UNREADABLE)]
        if not isinstance(said, list):
            return [said]
        self.arrays_heard += 1
        is_good = 0 < len(said) <= BATCH_FRAMES_MAX and len(text) <= FRAME_BYTES_MAX
        may_come = self._is_batching and self.introduced_at is not None
        return said if is_good and may_come else [_Frame(type=UNREADABLE)]

    def _hear(self, frame: _Frame) -> None:
        is_early = self.introduced_at is None
        heard = Heard(
            self._loop.time(), self, frame.type, frame.request_id, frame.payload, is_early
        )
        if frame.type in ("send_message", "sync_request", "digest_request"):
            self.unanswered[f"{frame.type} {frame.request_id}"] = heard
        self._on_frame(heard)

    def on_pong(self, payload: bytes) -> None:
        future = self._pings.get(payload)
        if future is not None and not future.done():
            future.set_result(None)

    def on_end(self) -> None:
        for future in self._pings.values():
            if not future.done():
                future.set_result(None)
        self._on_news()

    def answered(self, heard: Heard) -> None:
        self.unanswered.pop(f"{heard.type} {heard.request_id}", None)


def wall_ms() -> int:
    return time.time_ns() // 1_000_000
