"""Decides when to tell the server what this device has stored and its user has read. PURE.

A chat that has sent no acknowledgement for a while sends one at once, so that a tick takes no
longer than a round trip; after that it gathers some messages or waits some time. Acknowledgements
never go above what is on the disk, and leave in bundles that stay below the server's limits. A new
connection acknowledges everything again, because an acknowledgement may be lost with the old one.

A server that is told too much drops some of it, and says so without naming it. Then everything is
told again of which it is not proven that the server took it, and the bundles leave more slowly. The
proof is a heartbeat's answer: the server reads in order, and tells of a drop before it answers.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

import msgspec

from tidewire.client.options import ClientOptions
from tidewire.client.replica import Replica
from tidewire.domain.chats import ChatType
from tidewire.wire.client_frames import AckFrame, AckPayload, OneWayFrame, ReadFrame, ReadPayload

if TYPE_CHECKING:
    from tidewire.domain.ids import ChatId

OWN_LATER: Final = 6
"""An acknowledgement of own messages waits this many times as long as one of messages of others:
usually another user's reply comes first, and one acknowledgement covers both."""

SLOWNESS_MAX: Final = 256
"""At most this many times as slowly as usual: three acknowledgements in two seconds."""


class _Due(msgspec.Struct, eq=False):
    """The acknowledgement that is due for one chat, and when."""

    replica: Replica
    at_ms: int
    messages: int = 0


class _Known(msgspec.Struct, eq=False):
    """What the server surely knows of a chat: what was told before all that it may have dropped."""

    replica: Replica
    acked: int
    read_told: int


class Acks:
    def __init__(self, options: ClientOptions) -> None:
        self._options = options
        # Chats with something to tell, longest waiting first.
        self._due: dict[ChatId, _Due] = {}
        # The earliest time of all of them, so that not every frame has to look at every chat.
        self._due_at_ms: int | None = None
        self._not_before_ms = 0
        # Chats of which something was told since the last heartbeat, and before it, without proof.
        self._told_since: dict[ChatId, _Known] = {}
        self._told_before: dict[ChatId, _Known] = {}
        self._slowness = 1

    def reconnected(self, replicas: Iterable[Replica], now_ms: int) -> None:
        """Acknowledge everything again: what the last connection sent may be lost."""
        self._due.clear()
        self._due_at_ms = None
        self._told_since.clear()
        self._told_before.clear()
        self._slowness = 1
        for replica in replicas:
            replica.acked = replica.read_told = 0
            if replica.is_member and _frames(replica):
                self._tell(replica, now_ms)

    def stored(self, replica: Replica, count: int, now_ms: int) -> None:
        """`count` more entries are on the disk."""
        if not count:
            return
        due = self._tell(replica, self._from_ms(replica, now_ms))
        due.messages += count
        if due.messages >= self._options.ack_messages:
            self._tell(replica, now_ms)

    def read(self, replica: Replica, now_ms: int) -> None:
        """The user has read further; this is told at once."""
        self._tell(replica, now_ms)

    def heartbeat_sent(self) -> None:
        for chat_id, known in self._told_since.items():
            self._told_before.setdefault(chat_id, known)
        self._told_since.clear()

    def heartbeat_answered(self) -> None:
        """The server has taken everything that was told before the last heartbeat and did not come
        back in `dropped`."""
        if self._told_before:
            self._slowness = max(self._slowness // 2, 1)
        self._told_before.clear()

    def wait(self, until_ms: int) -> None:
        """Send nothing before this time."""
        self._not_before_ms = max(self._not_before_ms, until_ms)

    def dropped(self, until_ms: int) -> None:
        """The server has dropped some of what it was told, and wants nothing before this time."""
        self.wait(until_ms)
        doubted = {**self._told_since, **self._told_before}
        self._told_since.clear()
        self._told_before.clear()
        if doubted:
            self._slowness = min(2 * self._slowness, SLOWNESS_MAX)
        for known in doubted.values():
            replica = known.replica
            replica.acked, replica.read_told = known.acked, known.read_told
            self._tell(replica, until_ms)

    def flush(self, now_ms: int, *, is_last: bool = False) -> list[OneWayFrame]:
        """Take what is due now. `is_last` takes all, because the connection is about to end."""
        if not is_last:
            deadline_ms = self.next_deadline_ms()
            if deadline_ms is None or now_ms < deadline_ms:
                return []
        frames: list[OneWayFrame] = []
        options = self._options
        frames_max = max(options.ack_frames_max // self._slowness, 1)
        for chat_id, due in list(self._due.items()):
            if len(frames) >= frames_max and not is_last:
                break
            if due.at_ms <= now_ms or is_last:
                del self._due[chat_id]
                frames.extend(self._told(due.replica, now_ms))
        # The pause grows with the bundle, so small and full bundles have the same rate.
        interval_ms = options.ack_interval_ms * self._slowness
        pause_ms = -(-interval_ms * len(frames) // options.ack_frames_max)
        self.wait(now_ms + pause_ms)
        self._due_at_ms = min((due.at_ms for due in self._due.values()), default=None)
        return frames

    def next_deadline_ms(self) -> int | None:
        if self._due_at_ms is None:
            return None
        return max(self._due_at_ms, self._not_before_ms)

    def _told(self, replica: Replica, now_ms: int) -> list[AckFrame | ReadFrame]:
        frames = _frames(replica) if replica.is_member else []
        if frames and replica.chat_id not in self._told_since:
            known = _Known(replica, replica.acked, replica.read_told)
            self._told_since[replica.chat_id] = known
        for frame in frames:
            if isinstance(frame, ReadFrame):
                replica.read_told = frame.payload.last_read_sequence
                replica.acked = max(replica.acked, replica.read_told)
            else:
                replica.acked = frame.payload.last_acked_sequence
            replica.told_at_ms = now_ms
        return frames

    def _from_ms(self, replica: Replica, now_ms: int) -> int:
        """When to acknowledge one more entry, if no others follow."""
        options = self._options
        if min(replica.read, replica.stored) > replica.read_told:
            # The user read it before it was on the disk, and a read is told at once.
            return now_ms
        if replica.others_through <= replica.acked:
            # Only own ones are new: the server knows that their author has them.
            return now_ms + OWN_LATER * options.ack_ms
        if replica.told_at_ms is None:
            return now_ms
        is_direct = replica.chat_type is ChatType.DIRECT
        wait_ms = min(options.ack_direct_ms, options.ack_ms) if is_direct else options.ack_ms
        return max(now_ms, replica.told_at_ms + wait_ms)

    def _tell(self, replica: Replica, at_ms: int) -> _Due:
        due = self._due.get(replica.chat_id)
        if due is None:
            due = self._due[replica.chat_id] = _Due(replica, at_ms)
        due.at_ms = min(due.at_ms, at_ms)
        if self._due_at_ms is None or at_ms < self._due_at_ms:
            self._due_at_ms = at_ms
        return due


def _frames(replica: Replica) -> list[AckFrame | ReadFrame]:
    """The acknowledgements of this replica that this connection has not sent yet."""
    frames: list[AckFrame | ReadFrame] = []
    read = min(replica.read, replica.stored)
    # Entries up to `start` are not stored here: another device has to acknowledge them.
    stored = replica.stored if replica.stored > replica.start else 0
    if read > replica.read_told:
        payload = ReadPayload(chat_id=replica.chat_id, last_read_sequence=read)
        frames.append(ReadFrame(payload=payload))
    if stored > max(replica.acked, read if frames else 0):
        ack = AckPayload(chat_id=replica.chat_id, last_acked_sequence=stored)
        frames.append(AckFrame(payload=ack))
    return frames
