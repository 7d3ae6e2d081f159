"""When the server is told what this device holds and its user has read. PURE.

After some messages or some time; never above what is on the disk; in bundles that stay below the
server's limits. A new connection tells everything again: an acknowledgement that was lost with the
old one is healed by that.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from tidewire.client.options import ClientOptions
from tidewire.client.places import Place
from tidewire.wire.client_frames import AckFrame, AckPayload, OneWayFrame, ReadFrame, ReadPayload

if TYPE_CHECKING:
    from tidewire.domain.ids import ChatId


class Acks:
    def __init__(self, options: ClientOptions) -> None:
        self._options = options
        # Chats with something to tell, longest waiting first.
        self._due: dict[ChatId, Place] = {}
        self._messages = 0
        self._due_at_ms: int | None = None
        self._not_before_ms = 0

    def reconnected(self, places: Iterable[Place], now_ms: int) -> None:
        """A new connection knows nothing of what the last one was told."""
        self._due.clear()
        self._messages = 0
        self._due_at_ms = None
        for place in places:
            place.acked = place.read_told = 0
            if place.is_member and _frames(place):
                self._due[place.chat_id] = place
                self._due_at_ms = now_ms

    def stored(self, place: Place, count: int, now_ms: int) -> None:
        """So many messages more are on the disk."""
        if not count:
            return
        self._due.setdefault(place.chat_id, place)
        self._messages += count
        by_ms = (
            now_ms
            if self._messages >= self._options.ack_messages
            else (now_ms + self._options.ack_ms)
        )
        self._due_by(by_ms)

    def read(self, place: Place, now_ms: int) -> None:
        """The user has read on: that is told at once."""
        self._due.setdefault(place.chat_id, place)
        self._due_by(now_ms)

    def wait(self, until_ms: int) -> None:
        """The server wants fewer of these."""
        self._not_before_ms = max(self._not_before_ms, until_ms)

    def flush(self, now_ms: int, *, is_last: bool = False) -> list[OneWayFrame]:
        """What is to be told now. `is_last`: all of it, because the connection is about to end."""
        if not is_last:
            deadline_ms = self.next_deadline_ms()
            if deadline_ms is None or now_ms < deadline_ms:
                return []
        frames: list[OneWayFrame] = []
        frames_max = self._options.ack_frames_max
        for chat_id in list(self._due):
            if len(frames) >= frames_max and not is_last:
                break
            place = self._due.pop(chat_id)
            told = _frames(place) if place.is_member else []
            for frame in told:
                if isinstance(frame, ReadFrame):
                    place.read_told = frame.payload.last_read_sequence
                    place.acked = max(place.acked, place.read_told)
                else:
                    place.acked = frame.payload.last_acked_sequence
            frames.extend(told)
        self._not_before_ms = now_ms + self._options.ack_interval_ms
        if not self._due:
            self._messages = 0
            self._due_at_ms = None
        return frames

    def next_deadline_ms(self) -> int | None:
        if self._due_at_ms is None:
            return None
        return max(self._due_at_ms, self._not_before_ms)

    def _due_by(self, by_ms: int) -> None:
        self._due_at_ms = by_ms if self._due_at_ms is None else min(self._due_at_ms, by_ms)


def _frames(place: Place) -> list[AckFrame | ReadFrame]:
    """What the server has not been told of this place on this connection."""
    frames: list[AckFrame | ReadFrame] = []
    read = min(place.read, place.stored)
    # What this device did not store itself is for others to acknowledge.
    stored = place.stored if place.stored > place.start else 0
    if read > place.read_told:
        payload = ReadPayload(chat_id=place.chat_id, last_read_sequence=read)
        frames.append(ReadFrame(payload=payload))
    if stored > max(place.acked, read if frames else 0):
        ack = AckPayload(chat_id=place.chat_id, last_acked_sequence=stored)
        frames.append(AckFrame(payload=ack))
    return frames
