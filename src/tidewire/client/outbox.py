"""Messages that wait to be sent: in which order, when, how often, and what became of them. PURE.

Per chat they leave in the order in which they were written; by default one is on its way at a time,
so that the order survives failures. An entry leaves the outbox when it is known to be stored. One
that was refused for good stays as failed, one whose fate nobody can find out stays as unknown,
until the user retries or drops it. Neither holds back what was written after it.

The server stores what a connection sends to a chat in the order of sending: a refusal that may be
retried takes the later ones along. So after one nothing leaves until all that is on its way has
been answered; then everything leaves again, in the order of writing. One that is given up is not
waited for: the next one says so (`is_first`).
"""

from collections import deque
from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Final

import msgspec

from tidewire.client.backoff import backoff_ms
from tidewire.client.errors import OutboxFull
from tidewire.client.options import ClientOptions
from tidewire.domain.errors import ErrorCode
from tidewire.domain.ids import ChatId, ClientMessageId
from tidewire.wire.error_table import ERROR_TABLE, ErrorRow

if TYPE_CHECKING:
    from random import Random


class EntryState(StrEnum):
    QUEUED = "queued"
    FLYING = "flying"
    FAILED = "failed"
    UNKNOWN = "unknown"


QUEUED: Final = EntryState.QUEUED
FLYING: Final = EntryState.FLYING
FAILED: Final = EntryState.FAILED
UNKNOWN: Final = EntryState.UNKNOWN


class Entry(msgspec.Struct, kw_only=True):
    """One message on its way out.

    `number` orders the entries. `left_at_ms` is when it may first have left this device, as it is
    on the disk; None: surely not yet. `is_doubtful`: it left, and the answer was never heard.
    `is_first`: the server is not to wait for what was refused before it.
    """

    client_message_id: ClientMessageId
    chat_id: ChatId
    content: str
    content_type: str
    seen_sequence: int
    created_at_ms: int
    number: int
    left_at_ms: int | None = None
    state: EntryState = EntryState.QUEUED
    is_doubtful: bool = False
    is_first: bool = False
    tries: int = 0
    code: str | None = None
    reason: str | None = None

    def __repr__(self) -> str:
        # Without the text: messages stay out of logs.
        return f"Entry({self.client_message_id}, {self.chat_id}, {self.state})"


class _Lane:
    """The entries of one chat."""

    __slots__ = (
        "chat_id",
        "failures",
        "flying",
        "is_held",
        "is_refused",
        "queued",
        "retry_at_ms",
    )

    def __init__(self, chat_id: ChatId) -> None:
        self.chat_id = chat_id
        self.queued: deque[Entry] = deque()
        self.flying: dict[ClientMessageId, Entry] = {}
        self.failures = 0
        self.retry_at_ms: int | None = None
        self.is_held = True
        self.is_refused = False
        """One was refused, and what left after it has not been answered yet."""


class Outbox:
    def __init__(
        self, options: ClientOptions, random: "Random", entries: Iterable[Entry] = ()
    ) -> None:
        """`entries`: those of earlier lives, in their order."""
        self._options = options
        self._random = random
        self._entries: dict[ClientMessageId, Entry] = {}
        self._lanes: dict[ChatId, _Lane] = {}
        # Lanes that may have something to send, in the order of their turns; a dict keeps it.
        self._ready: dict[ChatId, _Lane] = {}
        self._paused: dict[ChatId, _Lane] = {}
        # Chats for which the server may wait for an entry that does not come again.
        self._given_up: dict[ChatId, None] = {}
        self.flying_count = 0
        for entry in entries:
            # Whatever was on its way when that life ended has left, and nobody heard the answer.
            entry.is_doubtful = entry.left_at_ms is not None
            if entry.state is FLYING:
                entry.state = QUEUED
            self._entries[entry.client_message_id] = entry
            if entry.state is QUEUED:
                self._queue(entry)

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, client_message_id: object) -> bool:
        return client_message_id in self._entries

    def get(self, client_message_id: ClientMessageId) -> Entry | None:
        return self._entries.get(client_message_id)

    def entries(self, chat_id: ChatId | None = None) -> list[Entry]:
        """All entries, or those of a chat, in the order in which they were written."""
        chosen = [e for e in self._entries.values() if chat_id is None or e.chat_id == chat_id]
        return sorted(chosen, key=_number)

    # In.

    def check_room(self, more: int = 1) -> None:
        """Raises OutboxFull."""
        if len(self._entries) + more > self._options.outbox_max:
            raise OutboxFull(self._options.outbox_max)

    def add(self, entry: Entry) -> None:
        """Take in an entry that is on the disk. A chat's first one waits for `release`."""
        assert entry.state is QUEUED
        assert entry.client_message_id not in self._entries
        self._entries[entry.client_message_id] = entry
        self._queue(entry)

    def retry(self, client_message_id: ClientMessageId, number: int) -> Entry | None:
        """Send a failed or unknown one again, behind what waits already. None: it is not one."""
        entry = self._entries.get(client_message_id)
        if entry is None or entry.state in (QUEUED, FLYING):
            return None
        entry.state, entry.code, entry.reason = QUEUED, None, None
        entry.tries, entry.is_doubtful, entry.number = 0, False, number
        entry.left_at_ms = None
        self._queue(entry)
        return entry

    def drop(self, client_message_id: ClientMessageId) -> Entry | None:
        """Forget one that is not on its way. None: there is none such."""
        entry = self._entries.get(client_message_id)
        if entry is None or entry.state is FLYING or (entry.state is QUEUED and entry.is_doubtful):
            return None
        self._forget(entry)
        return entry

    # Out.

    def hold(self, chat_id: ChatId) -> None:
        """Nothing leaves for this chat until `release`."""
        lane = self._lanes.get(chat_id)
        if lane is not None:
            lane.is_held = True
            self._ready.pop(chat_id, None)

    def release(self, chat_id: ChatId) -> None:
        """The chat is as far as the server: what waits for it may leave."""
        lane = self._lanes.get(chat_id)
        if lane is not None:
            lane.is_held = False
            self._consider(lane)

    def hold_all(self) -> None:
        for chat_id in self._lanes:
            self.hold(chat_id)

    def waiting_chats(self) -> list[ChatId]:
        """Chats for which something waits, or is on its way."""
        return list(self._lanes)

    def take(self, now_ms: int, wall_ms: int) -> tuple[list[Entry], list[Entry]]:
        """What leaves now, and what does not leave because only its user can know whether it may.

        What leaves is FLYING from here on.
        """
        for lane in [*self._paused.values()]:
            if lane.retry_at_ms is None or lane.retry_at_ms <= now_ms:
                del self._paused[lane.chat_id]
                lane.retry_at_ms = None
                self._consider(lane)
        leaving: list[Entry] = []
        doubtful: list[Entry] = []
        room = self._options.sends_max - self.flying_count
        while self._ready and room > 0:
            chat_id, lane = next(iter(self._ready.items()))
            # Taking turns: one entry a chat, then the chat goes to the end.
            del self._ready[chat_id]
            entry = lane.queued.popleft()
            if entry.is_doubtful and self._is_too_old(entry, wall_ms):
                entry.state = UNKNOWN
                doubtful.append(entry)
            else:
                entry.state = FLYING
                entry.is_first = chat_id in self._given_up
                self._given_up.pop(chat_id, None)
                lane.flying[entry.client_message_id] = entry
                self.flying_count += 1
                room -= 1
                leaving.append(entry)
            self._settle_lane(lane)
        return leaving, doubtful

    def next_deadline_ms(self) -> int | None:
        waits = [lane.retry_at_ms for lane in self._paused.values() if lane.retry_at_ms is not None]
        return min(waits, default=None)

    # What became of it.

    def stored(self, client_message_id: ClientMessageId) -> Entry | None:
        """It is in the server's store, as an answer or a message of a page says."""
        entry = self._entries.get(client_message_id)
        if entry is not None:
            lane = self._lanes.get(entry.chat_id)
            if lane is not None:
                lane.failures = 0
            self._forget(entry)
        return entry

    def refused(
        self,
        client_message_id: ClientMessageId,
        code: str,
        reason: str,
        *,
        retry_after_ms: int,
        now_ms: int,
        after: str | None = None,
    ) -> Entry | None:
        """The server said no. It is tried again if the table of codes says so, else it has failed.

        `after`: only because this one was refused before it, which has to be sent again first.
        None: it was not on its way (any more).
        """
        entry = self._entries.get(client_message_id)
        if entry is None or entry.state is not FLYING:
            return None
        lane = self._lanes[entry.chat_id]
        self._land(lane, entry)
        entry.tries += after is None
        if not self._may_retry(entry, code):
            entry.state, entry.code, entry.reason = FAILED, code, reason
            row = _row(code)
            if row is None or row.retryable:
                self._given_up[entry.chat_id] = None
                # What left after it is being refused because of it, and goes first.
                lane.is_refused = bool(lane.flying)
        else:
            entry.state, entry.is_doubtful = QUEUED, True
            self._requeue(lane, [entry])
            lane.is_refused = bool(lane.flying)
            if after is not None and not self._is_coming(lane, after):
                self._given_up[entry.chat_id] = None
            self._pause(lane, now_ms, retry_after_ms, is_failure=after is None)
        self._settle_lane(lane)
        return entry

    def _pause(self, lane: _Lane, now_ms: int, retry_after_ms: int, *, is_failure: bool) -> None:
        """Nothing leaves for this chat for a while, each time for longer."""
        lane.failures += is_failure or not lane.failures
        wait_ms = backoff_ms(
            lane.failures,
            self._random,
            first_ms=self._options.backoff_ms,
            longest_ms=self._options.backoff_ms_max,
        )
        if is_failure or lane.retry_at_ms is None:
            lane.retry_at_ms = now_ms + max(wait_ms, retry_after_ms)
        self._paused[lane.chat_id] = lane

    def _is_coming(self, lane: _Lane, client_message_id: str) -> bool:
        """Whether the one that the server waits for is on its way, or will be."""
        key = ClientMessageId(client_message_id.lower())
        return key in lane.flying or any(one.client_message_id == key for one in lane.queued)

    def lost(self) -> None:
        """The connection is gone, and with it every answer that was still to come."""
        for lane in [*self._lanes.values()]:
            landed = list(lane.flying.values())
            for entry in landed:
                self._land(lane, entry)
                entry.state, entry.is_doubtful = QUEUED, True
            self._requeue(lane, landed)
            lane.retry_at_ms = None
            lane.is_refused = False
            self._paused.pop(lane.chat_id, None)
        self._given_up.clear()
        self.hold_all()

    def _may_retry(self, entry: Entry, code: str) -> bool:
        row = _row(code)
        if row is None or code == ErrorCode.INTERNAL_ERROR:
            # A code that is newer than we are: a few more tries, then the user decides.
            return entry.tries < self._options.tries_max
        return row.retryable

    def _is_too_old(self, entry: Entry, wall_ms: int) -> bool:
        return (
            entry.left_at_ms is not None and wall_ms - entry.left_at_ms >= self._options.fate_ms_max
        )

    # Lanes.

    def _queue(self, entry: Entry) -> None:
        lane = self._lanes.get(entry.chat_id)
        if lane is None:
            lane = self._lanes[entry.chat_id] = _Lane(entry.chat_id)
        lane.queued.append(entry)
        self._consider(lane)

    def _requeue(self, lane: _Lane, entries: Sequence[Entry]) -> None:
        if entries:
            lane.queued = deque(sorted([*entries, *lane.queued], key=_number))

    def _consider(self, lane: _Lane) -> None:
        is_ready = (
            lane.queued
            and not lane.is_held
            and lane.retry_at_ms is None
            and not (lane.is_refused and lane.flying)
            and len(lane.flying) < self._options.window
        )
        if is_ready:
            self._ready[lane.chat_id] = lane
        else:
            self._ready.pop(lane.chat_id, None)

    def _settle_lane(self, lane: _Lane) -> None:
        if lane.queued or lane.flying:
            self._consider(lane)
        else:
            self._lanes.pop(lane.chat_id, None)
            self._ready.pop(lane.chat_id, None)
            self._paused.pop(lane.chat_id, None)

    def _land(self, lane: _Lane, entry: Entry) -> None:
        if lane.flying.pop(entry.client_message_id, None) is not None:
            self.flying_count -= 1
            lane.is_refused = lane.is_refused and bool(lane.flying)

    def _forget(self, entry: Entry) -> None:
        del self._entries[entry.client_message_id]
        lane = self._lanes.get(entry.chat_id)
        if lane is None:
            return
        if entry.state is FLYING:
            self._land(lane, entry)
        elif entry.state is QUEUED:
            lane.queued.remove(entry)
        self._settle_lane(lane)


def _row(code: str) -> ErrorRow | None:
    """What the table says of a code; None if it is newer than we are."""
    try:
        return ERROR_TABLE[ErrorCode(code)]
    except ValueError:
        return None


def _number(entry: Entry) -> int:
    return entry.number
