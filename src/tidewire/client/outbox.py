"""The entries that wait to be sent: their order, their times, their retries, their outcome. PURE.

An entry is a message, or it amends one: an edit, a deletion, a reaction. Per chat, entries leave in
the order in which they were written; by default one is on its way at a time, so that the
order survives failures. An entry leaves the outbox when it is known to be stored. A message or an
edit that was refused for good stays as failed, an entry whose fate cannot be found out stays as
unknown, until the user retries or drops it. Neither holds back entries that were written after it.

The server stores the entries of a connection for a chat in the order of sending: if it refuses one
that may be retried, it refuses the later ones too. So after such a refusal nothing leaves until all
entries on their way are answered; then they leave again, in the order of writing. If one is given
up, the next one tells the server not to wait for it (`is_first`).

An entry that surely has not left is changed in place (`rewrite`). An amendment of a message whose
sequence is not known yet names that message by its key (`target_key`) and waits behind it, until
the answer tells the sequence. If the message is refused for good, its amendments are applied here.

An entry that fails or is removed without being stored is still in its place on the disk for a
moment. Nothing leaves for its chat until the disk has that, too (`saved`): else a process that is
killed in that moment would send it again, after entries that were written later.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from enum import StrEnum
from operator import attrgetter
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec.structs import replace

from tidewire.client.errors import OutboxFull, is_retryable, known_code
from tidewire.client.options import ClientOptions, backoff_ms
from tidewire.domain.errors import ErrorCode
from tidewire.domain.ids import ChatId, ClientMessageId
from tidewire.domain.messages import Amendment, EntryKind, MessageBody
from tidewire.wire.client_frames import (
    DeleteMessageFrame,
    DeleteMessagePayload,
    EditMessageFrame,
    EditMessagePayload,
    ReactFrame,
    ReactPayload,
    SendMessageFrame,
    SendMessagePayload,
    SubmitFrame,
)
from tidewire.wire.forms import form_of

if TYPE_CHECKING:
    from random import Random


class SendState(StrEnum):
    QUEUED = "queued"
    FLYING = "flying"
    FAILED = "failed"
    UNKNOWN = "unknown"


QUEUED: Final = SendState.QUEUED
FLYING: Final = SendState.FLYING
FAILED: Final = SendState.FAILED
UNKNOWN: Final = SendState.UNKNOWN

_number: Final = attrgetter("number")


class OutboxEntry(msgspec.Struct, kw_only=True):
    """One message, or a change of one (`amends`), that is to be sent.

    `number` orders the entries. `left_at_ms` is when it may first have left this device, as noted
    on the disk; None: surely not yet. `is_doubtful`: it left, and no final answer came.
    `is_first`: tells the server not to wait for what it refused before. `base` belongs to an edit.
    `target_key` is the entry of the outbox that it amends, while that one has no sequence yet.
    """

    client_message_id: ClientMessageId
    chat_id: ChatId
    body: MessageBody
    seen_sequence: int
    created_at_ms: int
    number: int
    left_at_ms: int | None = None
    state: SendState = SendState.QUEUED
    is_doubtful: bool = False
    is_first: bool = False
    tries: int = 0
    code: str | None = None
    reason: str | None = None
    amends: Amendment | None = None
    base: int | None = None
    target_key: ClientMessageId | None = None

    @property
    def kind(self) -> EntryKind:
        return EntryKind.MESSAGE if self.amends is None else self.amends.kind

    @property
    def has_text(self) -> bool:
        """Whether its user wrote something that would be lost with it."""
        return self.kind in (EntryKind.MESSAGE, EntryKind.EDIT)

    @property
    def has_surely_not_left(self) -> bool:
        return self.state is FAILED or (self.state is QUEUED and not self.is_doubtful)

    def frame(self, request_id: str) -> SubmitFrame:
        amends = self.amends
        if amends is None:
            return SendMessageFrame(
                request_id=request_id,
                payload=form_of(SendMessagePayload, self.body, self),
            )
        assert self.target_key is None
        match amends.kind:
            case EntryKind.EDIT:
                edit = form_of(EditMessagePayload, self.body, amends, self)
                return EditMessageFrame(request_id=request_id, payload=edit)
            case EntryKind.DELETE:
                deletion = form_of(DeleteMessagePayload, amends, self)
                return DeleteMessageFrame(request_id=request_id, payload=deletion)
            case EntryKind.REACT:
                reaction = form_of(ReactPayload, amends, self)
                return ReactFrame(request_id=request_id, payload=reaction)
            case _:
                raise AssertionError("a message amends nothing")

    def __repr__(self) -> str:
        # Without the text: messages stay out of logs.
        return f"OutboxEntry({self.kind} {self.client_message_id}, {self.chat_id}, {self.state})"


class Refused(msgspec.Struct, frozen=True):
    """What a refusal of the server means for the outbox."""

    entry: OutboxEntry
    is_rewritten: bool = False
    """Some mentions were removed from the entry, and it leaves again."""
    dropped: Sequence[OutboxEntry] = ()
    """Entries that were removed from the outbox. The refused entry is among them if the user has
    nothing to decide about it."""


class _Lane(msgspec.Struct, eq=False):
    """The entries of one chat."""

    chat_id: ChatId
    queued: deque[OutboxEntry] = msgspec.field(default_factory=deque)
    flying: dict[ClientMessageId, OutboxEntry] = {}
    failures: int = 0
    retry_at_ms: int | None = None
    is_held: bool = True
    is_refused: bool = False
    """An entry was refused, and those that left after it are not all answered yet."""


class Outbox:
    def __init__(
        self, options: ClientOptions, random: "Random", entries: Sequence[OutboxEntry] = ()
    ) -> None:
        """`entries`: those of earlier runs, in their order."""
        self._options = options
        self._random = random
        self._entries: dict[ClientMessageId, OutboxEntry] = {}
        self._lanes: dict[ChatId, _Lane] = {}
        # Lanes that may have something to send, in the order of their turns; a dict keeps it.
        self._ready: dict[ChatId, _Lane] = {}
        self._paused: dict[ChatId, _Lane] = {}
        # Chats in which the server may wait for an entry that will not be sent again.
        self._given_up: dict[ChatId, None] = {}
        # Entries that wait in their place on the disk, by chat, but not here any more.
        self._unsaved: dict[ChatId, set[ClientMessageId]] = {}
        # Amendments of messages whose sequence is not known, by the key of the message.
        self._behind: dict[ClientMessageId, list[OutboxEntry]] = {}
        self.flying_count = 0
        self.orphans: list[OutboxEntry] = []
        """Amendments of earlier runs that have failed, because their message is not there."""
        self._entries.update((entry.client_message_id, entry) for entry in entries)
        for entry in entries:
            if entry.target_key is not None and entry.target_key not in self._entries:
                _orphan(entry)
                self.orphans.append(entry)
                del self._entries[entry.client_message_id]
                continue
            # An entry that was on its way when that run ended has left, and its answer was lost.
            entry.is_doubtful = entry.left_at_ms is not None
            if entry.state is FLYING:
                entry.state = QUEUED
            self._take_in(entry)

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, client_message_id: object) -> bool:
        return client_message_id in self._entries

    def get(self, client_message_id: ClientMessageId) -> OutboxEntry | None:
        return self._entries.get(client_message_id)

    def entries(self, chat_id: ChatId | None = None) -> list[OutboxEntry]:
        """All entries, or those of a chat, in the order in which they were written."""
        chosen = [e for e in self._entries.values() if chat_id is None or e.chat_id == chat_id]
        return sorted(chosen, key=_number)

    # In.

    def check_room(self, more: int = 1) -> None:
        """Raises OutboxFull."""
        if len(self._entries) + more > self._options.outbox_max:
            raise OutboxFull(self._options.outbox_max)

    def add(self, entry: OutboxEntry) -> bool:
        """Add an entry that is on the disk. The first entry of a chat waits for `release`. False:
        it has failed, because the message that it amends was given up meanwhile."""
        assert entry.state is QUEUED
        assert entry.client_message_id not in self._entries
        target = None if entry.target_key is None else self._entries.get(entry.target_key)
        if entry.target_key is not None and (target is None or target.state is FAILED):
            _orphan(entry)
            return False
        self._take_in(entry)
        return True

    def _take_in(self, entry: OutboxEntry) -> None:
        self._entries[entry.client_message_id] = entry
        if entry.target_key is not None:
            self._behind.setdefault(entry.target_key, []).append(entry)
        if entry.state is QUEUED:
            self._queue(entry)

    def retry(self, client_message_id: ClientMessageId, number: int) -> list[OutboxEntry]:
        """Queue a failed or unknown entry again, behind all that wait already, with its amendments
        behind it. They are numbered from `number` on. An empty list: there is no such entry."""
        entry = self._entries.get(client_message_id)
        if entry is None or entry.state in (QUEUED, FLYING):
            return []
        again = [entry, *self._behind.get(client_message_id, ())]
        for offset, one in enumerate(again):
            one.state, one.code, one.reason = QUEUED, None, None
            one.tries, one.is_doubtful, one.number = 0, False, number + offset
            one.left_at_ms = None
            self._queue(one)
        return again

    def drop(self, client_message_id: ClientMessageId) -> list[OutboxEntry]:
        """Remove an entry that is not on its way, and its amendments. An empty list: there is no
        such entry."""
        entry = self._entries.get(client_message_id)
        if entry is None or entry.state is FLYING or (entry.state is QUEUED and entry.is_doubtful):
            return []
        return self._forget_all([entry, *self._behind.get(client_message_id, ())])

    def rewrite(self, client_message_id: ClientMessageId, content: str) -> OutboxEntry | None:
        """Replace the text of a message or an edit that surely has not left; None: there is none.
        It may leave when the new text is on the disk; until then `left_at_ms` is None."""
        entry = self._entries.get(client_message_id)
        if entry is None or not entry.has_surely_not_left:
            return None
        entry.body = replace(entry.body, content=content)
        entry.left_at_ms = None
        return entry

    def last_edit(self, chat_id: ChatId, target: int | ClientMessageId) -> OutboxEntry | None:
        """The latest edit of a message in the outbox, if there is one."""
        edits = [one for one in self.entries(chat_id) if one.kind is EntryKind.EDIT]
        for entry in reversed(edits):
            assert entry.amends is not None
            if target in (entry.amends.target, entry.target_key):
                return entry
        return None

    # Out.

    def hold(self, chat_id: ChatId) -> None:
        """Nothing leaves for this chat until `release`."""
        lane = self._lanes.get(chat_id)
        if lane is not None:
            lane.is_held = True
            self._ready.pop(chat_id, None)

    def release(self, chat_id: ChatId) -> None:
        """The chat is in sync with the server: its entries may leave."""
        lane = self._lanes.get(chat_id)
        if lane is not None:
            lane.is_held = False
            self._consider(lane)

    def waiting_chats(self) -> list[ChatId]:
        """Chats for which something waits, or is on its way."""
        return list(self._lanes)

    def take(self, now_ms: int, wall_ms: int) -> tuple[list[OutboxEntry], list[OutboxEntry]]:
        """Take the entries that leave now, and those that do not because only the user can decide.

        The first ones are FLYING from here on, the others UNKNOWN.
        """
        for lane in [*self._paused.values()]:
            if lane.retry_at_ms is None or lane.retry_at_ms <= now_ms:
                del self._paused[lane.chat_id]
                lane.retry_at_ms = None
                self._consider(lane)
        leaving: list[OutboxEntry] = []
        doubtful: list[OutboxEntry] = []
        room = self._options.sends_max - self.flying_count
        while self._ready and room > 0:
            chat_id, lane = next(iter(self._ready.items()))
            # Chats take turns: each sends one entry, then goes to the end.
            del self._ready[chat_id]
            entry = lane.queued.popleft()
            if entry.is_doubtful and self._is_too_old(entry, wall_ms):
                entry.state = UNKNOWN
                self._await_disk(entry)
                doubtful.append(entry)
                for one in self._behind.get(entry.client_message_id, ()):
                    lane.queued.remove(one)
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

    def marked(self, entries: Iterable[OutboxEntry], left_at_ms: int) -> list[OutboxEntry]:
        """The disk has the mark that these are about to leave. Returns those that still have to."""
        leaving: list[OutboxEntry] = []
        for entry in entries:
            # Meanwhile the connection may have been lost, or a page may have brought the message.
            is_waiting = entry.state is FLYING and entry.client_message_id in self._entries
            if entry.left_at_ms is None and is_waiting:
                leaving.append(entry)
            entry.left_at_ms = left_at_ms
            lane = self._lanes.get(entry.chat_id)
            if lane is not None:
                self._consider(lane)
        return leaving

    def next_deadline_ms(self) -> int | None:
        waits = [lane.retry_at_ms for lane in self._paused.values() if lane.retry_at_ms is not None]
        return min(waits, default=None)

    # What became of it.

    def stored(self, client_message_id: ClientMessageId, sequence: int) -> OutboxEntry | None:
        """Remove an entry that the server has stored, as an answer or an entry of a page says."""
        entry = self._entries.get(client_message_id)
        if entry is not None:
            lane = self._lanes.get(entry.chat_id)
            if lane is not None:
                lane.failures = 0
            is_parked = entry.state in (FAILED, UNKNOWN)
            for one in self._behind.pop(client_message_id, ()):
                name_target(one, sequence)
                if is_parked:
                    self._queue(one)
            self._forget(entry)
        return entry

    def saved(self, entries: Iterable[OutboxEntry]) -> None:
        """The disk has it that these have failed, or were removed."""
        for entry in entries:
            unsaved = self._unsaved.get(entry.chat_id, set())
            unsaved.discard(entry.client_message_id)
            if not unsaved:
                self._unsaved.pop(entry.chat_id, None)
                lane = self._lanes.get(entry.chat_id)
                if lane is not None:
                    self._consider(lane)

    def erased(self, chat_id: ChatId, target: int) -> list[OutboxEntry]:
        """A message was deleted: edits of it are dropped, and their texts with them."""
        edits = [
            entry
            for entry in self._entries.values()
            if entry.chat_id == chat_id
            and entry.amends is not None
            and entry.amends.kind is EntryKind.EDIT
            and entry.amends.target == target
        ]
        for entry in edits:
            _erase(entry)
        return self._forget_all(edits)

    def refused(
        self,
        client_message_id: ClientMessageId,
        code: str,
        reason: str,
        *,
        retry_after_ms: int,
        now_ms: int,
        after: str | None = None,
        outsiders: Sequence[str] = (),
    ) -> Refused | None:
        """The server refused an entry. It is sent again if the table of codes says so, else it has
        failed. None: it was not on its way (any more).

        `after`: it was refused only because this earlier one was, which has to be sent again first.
        `outsiders`: those of its mentions that are no members; it is sent again without them.
        """
        entry = self._entries.get(client_message_id)
        if entry is None or entry.state is not FLYING:
            return None
        lane = self._lanes[entry.chat_id]
        self._land(lane, entry)
        entry.tries += after is None
        is_rewritten = code == ErrorCode.INVALID_MENTION and _mention_less(entry, outsiders)
        dropped: Sequence[OutboxEntry] = ()
        if is_rewritten:
            # It was answered, and in its new form it has not left yet.
            entry.state, entry.left_at_ms = QUEUED, None
            self._requeue(lane, [entry])
        elif not self._may_retry(entry, code):
            entry.state, entry.code, entry.reason = FAILED, code, reason
            if is_retryable(code):
                self._given_up[entry.chat_id] = None
                # The server refuses those that left after it, and they have to go first.
                lane.is_refused = bool(lane.flying)
            dropped = self._gave_up(entry)
        else:
            entry.state, entry.is_doubtful = QUEUED, True
            self._requeue(lane, [entry])
            lane.is_refused = bool(lane.flying)
            if after is not None and not self._is_coming(lane, after):
                self._given_up[entry.chat_id] = None
            self._pause(lane, now_ms, retry_after_ms, is_failure=after is None)
        self._settle_lane(lane)
        return Refused(entry, is_rewritten, dropped)

    def _gave_up(self, entry: OutboxEntry) -> list[OutboxEntry]:
        """An entry has failed: remove entries that have no effect any more. The server does not
        have a message that it refused, so amendments that wait for it are applied here."""
        behind = list(self._behind.get(entry.client_message_id, ()))
        self._await_disk(entry)
        is_over = not entry.has_text
        if entry.amends is not None and entry.code == ErrorCode.MESSAGE_DELETED:
            _erase(entry)
            is_over = True
        for one in behind:
            one.code, one.reason = entry.code, entry.reason
            if one.kind is EntryKind.EDIT:
                entry.body = replace(entry.body, content=one.body.content)
            is_over |= one.kind is EntryKind.DELETE
        return self._forget_all([*behind, entry] if is_over else behind)

    def _pause(self, lane: _Lane, now_ms: int, retry_after_ms: int, *, is_failure: bool) -> None:
        """Let nothing leave for this chat for a while, longer after each failure."""
        lane.failures += is_failure or not lane.failures
        wait_ms = backoff_ms(lane.failures, self._random, self._options)
        if is_failure or lane.retry_at_ms is None:
            lane.retry_at_ms = now_ms + max(wait_ms, retry_after_ms)
        self._paused[lane.chat_id] = lane

    def _is_coming(self, lane: _Lane, client_message_id: str) -> bool:
        """Whether the entry that the server waits for is on its way, or waits to be sent."""
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
        for chat_id in self._lanes:
            self.hold(chat_id)

    def _may_retry(self, entry: OutboxEntry, code: str) -> bool:
        if known_code(code) in (None, ErrorCode.INTERNAL_ERROR):
            # Also a code that is newer than we are: a few more tries, then the user decides.
            return entry.tries < self._options.tries_max
        return is_retryable(code)

    def _is_too_old(self, entry: OutboxEntry, wall_ms: int) -> bool:
        left_at_ms = entry.left_at_ms
        return left_at_ms is not None and wall_ms - left_at_ms >= self._options.fate_ms_max

    # Lanes.

    def _queue(self, entry: OutboxEntry) -> None:
        target = None if entry.target_key is None else self._entries.get(entry.target_key)
        if target is not None and target.state in (FAILED, UNKNOWN):
            # It stays out of the lane: its message is sent again only if the user retries it.
            return
        lane = self._lanes.get(entry.chat_id)
        if lane is None:
            lane = self._lanes[entry.chat_id] = _Lane(entry.chat_id)
        if lane.queued and self._place(lane.queued[-1]) > self._place(entry):
            self._requeue(lane, [entry])
        else:
            lane.queued.append(entry)
        self._consider(lane)

    def _requeue(self, lane: _Lane, entries: Sequence[OutboxEntry]) -> None:
        if entries:
            lane.queued = deque(sorted([*entries, *lane.queued], key=self._place))

    def _place(self, entry: OutboxEntry) -> tuple[int, bool, int]:
        """By number, and an amendment behind its message, which `retry` may have numbered anew."""
        target = None if entry.target_key is None else self._entries.get(entry.target_key)
        number = entry.number if target is None else max(entry.number, target.number)
        return number, number > entry.number, entry.number

    def _consider(self, lane: _Lane) -> None:
        is_ready = (
            lane.queued
            # An amendment of a message that is on its way waits for the message's answer.
            and lane.queued[0].target_key is None
            and not lane.is_held
            and lane.retry_at_ms is None
            and lane.chat_id not in self._unsaved
            and not (lane.is_refused and lane.flying)
            and len(lane.flying) < self._options.window
            # What may leave at once does not pass what the disk has to mark first.
            and (lane.queued[0].left_at_ms is None or not _is_being_marked(lane))
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

    def _land(self, lane: _Lane, entry: OutboxEntry) -> None:
        if lane.flying.pop(entry.client_message_id, None) is not None:
            self.flying_count -= 1
            lane.is_refused = lane.is_refused and bool(lane.flying)

    def _await_disk(self, entry: OutboxEntry) -> None:
        self._unsaved.setdefault(entry.chat_id, set()).add(entry.client_message_id)

    def _forget_all(self, entries: Sequence[OutboxEntry]) -> list[OutboxEntry]:
        for entry in entries:
            self._await_disk(entry)
            self._forget(entry)
        return list(entries)

    def _forget(self, entry: OutboxEntry) -> None:
        key = entry.client_message_id
        del self._entries[key]
        self._behind.pop(key, None)
        if entry.target_key is not None and entry.target_key in self._behind:
            self._behind[entry.target_key].remove(entry)
        lane = self._lanes.get(entry.chat_id)
        if lane is None:
            return
        if entry.state is FLYING:
            self._land(lane, entry)
        elif entry.state is QUEUED and entry in lane.queued:
            lane.queued.remove(entry)
        self._settle_lane(lane)


def _is_being_marked(lane: _Lane) -> bool:
    return any(entry.left_at_ms is None for entry in lane.flying.values())


def name_target(entry: OutboxEntry, sequence: int) -> None:
    """Set the sequence of the message that an entry amends, now that it is known."""
    assert entry.amends is not None
    entry.amends = replace(entry.amends, target=sequence)
    entry.target_key = None


def _orphan(entry: OutboxEntry) -> None:
    """Let an amendment fail: nothing will ever tell the sequence of its message."""
    entry.state, entry.code = FAILED, ErrorCode.TARGET_NOT_FOUND
    entry.reason = "the message that it changes was not sent, or is no longer there"


def _erase(entry: OutboxEntry) -> None:
    """Its target was deleted: the text must not stay."""
    entry.body = replace(entry.body, content="")
    entry.code = ErrorCode.MESSAGE_DELETED
    entry.reason = entry.reason or "this message was deleted"


def _mention_less(entry: OutboxEntry, outsiders: Sequence[str]) -> bool:
    """Take mentions out of a message; False: none of them is in it."""
    kept = tuple(one for one in entry.body.mentions if one not in outsiders)
    if kept == entry.body.mentions:
        return False
    entry.body = replace(entry.body, mentions=kept)
    return True
