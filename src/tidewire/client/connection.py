"""One device's conversation with the server, over as many sockets as it takes. PURE.

Calls report events and return effects as values (`effects`); the module itself does no I/O. No
input from the server raises an exception.

    OFFLINE      no socket; `next_deadline_ms` says when the next try is
    CONNECTING   a socket is being opened, or is open and the server has not introduced itself
    SYNCING      the digest is being read, or chats are behind
    READY        this device holds everything that the digest listed
    CLOSED       closed for good; the status has the reason

The connection routes: each part keeps one thing, gets the inputs for it and returns effects.

    Link         the socket: its state, heartbeats, waits between tries
    Replicas     what is held of each chat, and what is missing
    Outbox       what waits to be sent, and in which order it leaves
    Acks         what is held and read, but not told to the server yet
    Requests     which requests are open, and when their answers are overdue

An entry without an answer is sent again on the next connection, after its chat is synced.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

from tidewire.client.acks import Acks
from tidewire.client.effects import (
    Dropped,
    Effect,
    Erased,
    Introduced,
    Keep,
    Mark,
    Now,
    Refusal,
    Release,
    ReplicaChanged,
    Rewritten,
    Send,
    SendFailed,
    Settled,
    Status,
    Typed,
)
from tidewire.client.entries import kind_of
from tidewire.client.link import CLOSED, CONNECTING, OFFLINE, READY, SYNCING, Link
from tidewire.client.options import ClientOptions
from tidewire.client.outbox import Outbox, OutboxEntry, Refused
from tidewire.client.replica import Replica, ReplicaRecord
from tidewire.client.replicas import Replicas
from tidewire.client.requests import DIGEST, Requests
from tidewire.domain.errors import ErrorCode
from tidewire.domain.ids import ChatId
from tidewire.domain.messages import EntryKind
from tidewire.wire.client_frames import (
    DigestRequestFrame,
    EmptyPayload,
    HeartbeatFrame,
    SyncRequestFrame,
    SyncRequestPayload,
    TypingPayload,
    TypingStartFrame,
    TypingStopFrame,
)
from tidewire.wire.codec import FrameRefusal, UnknownFrame
from tidewire.wire.features import Feature
from tidewire.wire.server_frames import (
    PROTOCOL_VERSION,
    ChatDigestFrame,
    ChatUpdateFrame,
    ConnectionClosingFrame,
    ConnectionEstablishedFrame,
    EntryFrame,
    ErrorFrame,
    HeartbeatAckFrame,
    MessageFrame,
    ResyncFrame,
    SendMessageAckFrame,
    ServerFrame,
    StatusUpdateFrame,
    SyncResponseFrame,
    TypingIndicatorFrame,
)
from tidewire.wire.timestamps import parse_time_ms

if TYPE_CHECKING:
    from random import Random

__all__ = ["CLOSED", "CONNECTING", "OFFLINE", "READY", "SYNCING", "Connection"]

_ACK_PAUSE_MS: Final = 1_000
_RETRY_AFTER_S_MAX: Final = 3_600
"""No server has to be left alone for longer; one that names more is broken."""
_OLDER_SERVER: Final = (
    "this server is an older one, which knows neither edits nor deletions nor reactions"
)

Effects = list[Effect]


class Connection:
    def __init__(
        self,
        options: ClientOptions,
        random: "Random",
        *,
        outbox: Outbox,
        replicas: Iterable[ReplicaRecord] = (),
        user_id: str | None = None,
        epoch: str | None = None,
    ) -> None:
        """`replicas`, `user_id` and `epoch` are those of the last run, if there was one."""
        self.outbox = outbox
        self.epoch = epoch
        self.unknown_frames = 0
        """Frames that were ignored because they are newer than we are, or broken."""
        self.skew_ms: int | None = None
        """How far the server's clock is ahead of ours; nothing depends on it."""
        self._knows_entries = False
        """The server takes edits, deletions and reactions."""
        self._options = options
        self._replicas = Replicas(options, random, records=replicas, user_id=user_id)
        self._link = Link(options, random)
        self._acks = Acks(options)
        self._requests = Requests(options.answer_ms_max)
        self._handlers: dict[type, Callable[[Any, Now], Effects]] = {
            ConnectionEstablishedFrame: self._on_established,
            ChatDigestFrame: self._on_digest,
            MessageFrame: lambda frame, now: self._replicas.message(frame.payload, now),
            EntryFrame: lambda frame, now: self._replicas.message(frame.payload, now),
            SendMessageAckFrame: self._on_send_ack,
            SyncResponseFrame: self._on_page,
            ErrorFrame: self._on_error,
            HeartbeatAckFrame: self._on_heartbeat_ack,
            StatusUpdateFrame: lambda frame, _: self._replicas.status(frame.payload),
            ChatUpdateFrame: lambda frame, now: self._replicas.chat_update(frame.payload, now),
            TypingIndicatorFrame: lambda frame, _: [Typed(frame.payload)],
            ResyncFrame: self._on_resync,
            ConnectionClosingFrame: self._on_closing,
        }

    @property
    def status(self) -> Status:
        return self._link.status

    @property
    def replicas(self) -> dict[ChatId, Replica]:
        """Every chat that this device knows of, also those that were left."""
        return self._replicas.by_chat

    @property
    def awaited_chats(self) -> Collection[ChatId]:
        """Chats that are not known yet, and in which the server has stored entries of ours."""
        return self._replicas.awaited_chats

    @property
    def user_id(self) -> str | None:
        """Our own user id; None until the server has sent it for the first time."""
        return self._replicas.user_id

    @property
    def round_trip_ms(self) -> int | None:
        """How long the last heartbeat's answer took."""
        return self._link.round_trip_ms

    # The socket.

    def start(self, now: Now) -> Sequence[Effect]:
        """Start, or try again at once if the next try is still to come."""
        orphans, self.outbox.orphans = self.outbox.orphans, []
        failed = [SendFailed(entry, is_kept=False) for entry in orphans]
        return self._finish([*failed, *self._link.start(now)], now)

    def opened(self, now: Now) -> Sequence[Effect]:
        """The socket is open. Nothing is sent before the server has introduced itself (CL-03)."""
        self._link.heard(now)
        return self._finish([], now)

    def refused(self, refusal: Refusal, now: Now) -> Sequence[Effect]:
        """The server did not upgrade the request."""
        return self._finish(self._link.refused(refusal, now), now)

    def lost(self, now: Now, *, code: int | None = None, reason: str = "lost") -> Sequence[Effect]:
        """The socket is gone, or could not be opened. Called once for each `Connect` that was
        neither refused nor ended by a `Disconnect`; a second call does nothing."""
        if self._link.has_socket:
            self._forget_socket()
        return self._finish(self._link.lost(now, code=code, reason=reason), now)

    def heard(self, now: Now) -> None:
        """A ping or pong: a sign of life like any frame."""
        self._link.heard(now)

    def renew(self, now: Now) -> Sequence[Effect]:
        """There is a new token: once all sends are answered, change to a connection with it."""
        self._link.renew(now)
        return self._finish([], now)

    def stop(self, now: Now, reason: str) -> Sequence[Effect]:
        """Close for good, after acknowledging what is on the disk (AK-04)."""
        effects = self._acks_due(now, is_last=True) if self._link.is_established else []
        self._forget_socket()
        return self._finish(effects + self._link.stop(reason), now)

    # Time.

    def tick(self, now: Now) -> Sequence[Effect]:
        """To be called when `next_deadline_ms` has come; earlier or later does no harm."""
        link = self._link
        if link.is_established:
            return self._finish(self._watch(now), now)
        if not link.is_due(now):
            return self._finish([], now)
        if link.has_socket:
            return self._finish(self._give_up(now, "handshake_timeout"), now)
        return self._finish(link.start(now), now)

    def next_deadline_ms(self) -> int | None:
        deadlines = [self._link.next_deadline_ms()]
        if self._link.is_established:
            deadlines.append(self._requests.next_deadline_ms())
        if self._link.may_send:
            # Only while sending is allowed: else these stay due, and the timer fires for ever.
            deadlines += [
                self._replicas.next_deadline_ms(),
                self._acks.next_deadline_ms(),
                self.outbox.next_deadline_ms(),
            ]
        return min((at_ms for at_ms in deadlines if at_ms is not None), default=None)

    # What the application and the store do.

    def submit(self, entry: OutboxEntry, now: Now) -> Sequence[Effect]:
        """Send an entry that is in the outbox on the disk."""
        if not self.outbox.add(entry):
            return self._finish([SendFailed(entry, is_kept=False)], now)
        return self.resubmit(entry, now)

    def resubmit(self, entry: OutboxEntry, now: Now) -> Sequence[Effect]:
        """An entry is in the queue again, because the user retries it."""
        if self._replicas.is_open(entry.chat_id):
            self.outbox.release(entry.chat_id)
        return self._finish([], now)

    def marked(self, entries: Sequence[OutboxEntry], left_at_ms: int, now: Now) -> Sequence[Effect]:
        """The disk has the mark that these are about to leave."""
        return self._finish(self._sends(self.outbox.marked(entries, left_at_ms), now), now)

    def saved(self, entries: Sequence[OutboxEntry], now: Now) -> Sequence[Effect]:
        """The disk has it that these have failed, or were dropped: later ones may leave."""
        self.outbox.saved(entries)
        return self._finish([], now)

    def stored(
        self, replica: Replica, through: int, count: int, generation: int, now: Now
    ) -> Sequence[Effect]:
        """The store has carried out a `Keep`: its entries are on the disk."""
        effects = self._replicas.stored(replica, through, count, generation)
        if generation == replica.generation:
            self._acks.stored(replica, count, now.ms)
        return self._finish(effects, now)

    def erased(self, keep: Keep, erased: Iterable[Erased], now: Now) -> Sequence[Effect]:
        """What the store has erased while it carried out a `Keep`."""
        return self._finish(self._replicas.erased(keep, erased), now)

    def erased_elsewhere(
        self, replica: Replica, erased: Iterable[Erased], now: Now
    ) -> Sequence[Effect]:
        """The same, for deletions that are known before their entries have come."""
        return self._finish(self._replicas.erased_elsewhere(replica, erased), now)

    def read(self, chat_id: ChatId, sequence: int, now: Now) -> Sequence[Effect]:
        """The user has seen everything up to here. The position never goes above what is held."""
        effects: Effects = []
        replica = self.replicas.get(chat_id)
        if replica is not None and replica.read_through(sequence):
            self._acks.read(replica, now.ms)
            effects.append(ReplicaChanged(replica))
        return self._finish(effects, now)

    def type(self, chat_id: ChatId, *, is_typing: bool, now: Now) -> Sequence[Effect]:
        """The user types, or has stopped. Without a connection nothing happens."""
        effects: Effects = []
        if self._link.may_send:
            kind = TypingStartFrame if is_typing else TypingStopFrame
            effects.append(Send(kind(payload=TypingPayload(chat_id=chat_id))))
        return self._finish(effects, now)

    def adopt(self, record: ReplicaRecord, now: Now) -> Sequence[Effect]:
        """Add a chat that was just made or found, but not over the socket."""
        return self._finish(self._replicas.adopt(record, now), now)

    # What the server says.

    def receive(
        self, frame: ServerFrame | UnknownFrame | FrameRefusal, now: Now
    ) -> Sequence[Effect]:
        link = self._link
        if not link.has_socket:
            return ()
        link.heard(now)
        handler = self._handlers.get(type(frame))
        if handler is None:
            self.unknown_frames += 1
        elif link.is_established or isinstance(frame, _BEFORE_THE_REST):
            return self._finish(handler(frame, now), now)
        return self._finish([], now)

    def _on_established(self, frame: ConnectionEstablishedFrame, now: Now) -> Effects:
        payload = frame.payload
        if self._link.is_established:
            return []
        if payload.protocol_version != PROTOCOL_VERSION:
            return self._link.stop("unsupported_version")
        if self.user_id is not None and payload.user_id != self.user_id:
            return self._link.stop("other_user")
        server_ms = parse_time_ms(payload.server_time)
        self.skew_ms = None if server_ms is None else server_ms - now.wall_ms
        is_new_epoch = self.epoch is not None and payload.epoch != self.epoch
        self.epoch = payload.epoch
        self._knows_entries = Feature.ENTRIES in payload.features
        self._requests.ask(DIGEST, now)
        return [
            *self._replicas.connected(payload.user_id, payload.epoch, is_new_epoch=is_new_epoch),
            # After `Restart`: a store that gets the new epoch first would keep its old cursors.
            Introduced(payload.user_id, payload.epoch, payload.features),
            *self._link.established(payload.heartbeat_interval_ms, now),
        ]

    def _on_digest(self, frame: ChatDigestFrame, now: Now) -> Effects:
        had_digest = self._replicas.is_digest_complete
        effects = self._replicas.digest(frame.payload, now)
        if frame.payload.last:
            self._requests.digest_answered()
            if not had_digest:
                self._acks.reconnected(self.replicas.values(), now.ms)
                for chat_id in self.outbox.waiting_chats():
                    if self._replicas.is_open(chat_id):
                        self.outbox.release(chat_id)
        return effects

    def _on_send_ack(self, frame: SendMessageAckFrame, now: Now) -> Effects:
        payload = frame.payload
        sent = self._requests.answered(frame.request_id, OutboxEntry)
        if sent is None:
            return []
        self._replicas.own_answered(sent.chat_id)
        entry = self.outbox.stored(payload.client_message_id, payload.sequence)
        if entry is None:
            # A page has brought the entry before its answer came.
            return []
        return [
            Settled(payload.client_message_id, payload.chat_id, payload.sequence),
            *self._replicas.own_stored(entry, payload, now),
        ]

    def _on_page(self, frame: SyncResponseFrame, now: Now) -> Effects:
        replica = self._requests.answered(frame.request_id, Replica)
        return [] if replica is None else self._replicas.page(replica, frame.payload, now)

    def _on_error(self, frame: ErrorFrame, now: Now) -> Effects:
        code, details = frame.payload.code, frame.payload.details
        retry_after_ms = _retry_after_ms(details)
        if code == ErrorCode.UNAUTHORIZED:
            self._link.needs_new_token = True
        if frame.request_id is None and code == ErrorCode.RATE_LIMITED:
            # Some of what it was told may be lost, and it names none of it.
            self._acks.dropped(now.ms + max(retry_after_ms, _ACK_PAUSE_MS))
        match self._requests.answered(frame.request_id, object):
            case OutboxEntry() as entry:
                return self._send_refused(entry, frame, retry_after_ms, now)
            case Replica() as replica:
                return self._replicas.page_refused(replica, code, details, retry_after_ms, now)
            case str():
                self._replicas.digest_failed(now.ms + max(retry_after_ms, self._options.backoff_ms))
            case _:
                pass
        return []

    def _send_refused(
        self, sent: OutboxEntry, frame: ErrorFrame, retry_after_ms: int, now: Now
    ) -> Effects:
        payload = frame.payload
        self._replicas.own_answered(sent.chat_id)
        if sent.kind is EntryKind.DELETE and payload.code == ErrorCode.MESSAGE_DELETED:
            return self._deleted_before(sent, payload.details)
        refused = self.outbox.refused(
            sent.client_message_id,
            payload.code,
            payload.message,
            retry_after_ms=retry_after_ms,
            now_ms=now.ms,
            after=_after(payload.details),
            outsiders=_outsiders(payload.details),
        )
        effects = [] if refused is None else self._told(refused)
        if payload.code in (ErrorCode.NOT_A_MEMBER, ErrorCode.NOT_FOUND):
            effects += self._replicas.leave(sent.chat_id)
        return effects

    def _told(self, refused: Refused) -> Effects:
        """The effects of a refusal: on the disk, and for callers that wait."""
        effects: Effects = []
        entry = refused.entry
        if refused.is_rewritten:
            effects.append(Rewritten(entry))
        elif entry.code is not None:
            effects.append(SendFailed(entry, is_kept=entry.client_message_id in self.outbox))
        others = [one for one in refused.dropped if one is not entry]
        if others:
            effects.append(Dropped(others))
        return effects

    def _deleted_before(self, sent: OutboxEntry, details: object) -> Effects:
        """Another entry has deleted the message that we wanted to delete: ours counts as done."""
        by = details.get("deleted_sequence") if isinstance(details, dict) else None
        sequence = by if isinstance(by, int) else 0
        entry = self.outbox.stored(sent.client_message_id, sequence)
        if entry is None:
            return []
        return [Settled(entry.client_message_id, entry.chat_id, sequence), Dropped([entry])]

    def _on_heartbeat_ack(self, frame: HeartbeatAckFrame, now: Now) -> Effects:
        if self._link.heartbeat_answered(frame.request_id, now):
            self._acks.heartbeat_answered()
        return []

    def _on_resync(self, frame: ResyncFrame, now: Now) -> Effects:
        self._replicas.want_digest(now.ms + frame.payload.delay_ms)
        return []

    def _on_closing(self, frame: ConnectionClosingFrame, now: Now) -> Effects:
        """Acknowledge what is on the disk; from here on send nothing new (CL-05, AK-04)."""
        effects = self._acks_due(now, is_last=True) if self._link.is_established else []
        self._link.closing = (frame.payload.reason, frame.payload.reconnect_delay_ms)
        return effects

    # Saying.

    def _finish(self, effects: Effects, now: Now) -> Sequence[Effect]:
        """Route effects to other parts, then send everything that can be sent now."""
        if effects:
            effects = self._routed(effects)
        if self._link.is_established:
            if self._replicas.is_complete and self.status.state is SYNCING:
                effects += self._link.ready()
            effects += self._due(now)
        return effects

    def _routed(self, effects: Effects) -> Effects:
        routed: Effects = []
        for effect in effects:
            if type(effect) is Release:
                self.outbox.release(effect.chat_id)
                continue
            if type(effect) is Keep and len(self.outbox):
                routed += self._outbox_concerned(effect)
            routed.append(effect)
        return routed

    def _outbox_concerned(self, keep: Keep) -> Effects:
        """Take out of the outbox entries of ours that came back, even if their answer is lost, and
        edits of a deleted message, which have no effect any more."""
        effects: Effects = []
        chat_id = keep.replica.chat_id
        for item in keep.items:
            if (
                item.sender_id == self.user_id
                and not item.is_damaged
                and self.outbox.stored(item.client_message_id, item.sequence) is not None
            ):
                effects.append(Settled(item.client_message_id, chat_id, item.sequence))
            if item.target is not None and kind_of(item) is EntryKind.DELETE:
                dropped = self.outbox.erased(chat_id, item.target)
                effects += [Dropped(dropped)] if dropped else []
        return effects

    def _due(self, now: Now) -> Effects:
        if not self._link.may_send:
            if self._link.is_renewing and not self.outbox.flying_count:
                return self._finish_renewal(now)
            return []
        effects: Effects = [
            Send(self._page_request(replica, now)) for replica in self._replicas.take_pages(now.ms)
        ]
        leaving, doubtful = self.outbox.take(now.ms, now.wall_ms)
        while not self._knows_entries and any(one.amends is not None for one in leaving):
            effects += self._not_known(leaving, now)
            more, more_doubtful = self.outbox.take(now.ms, now.wall_ms)
            leaving = [one for one in leaving if one.amends is None] + more
            doubtful += more_doubtful
        if leaving:
            effects += self._sends([one for one in leaving if one.left_at_ms is not None], now)
            unmarked = [entry for entry in leaving if entry.left_at_ms is None]
            if unmarked:
                effects.append(Mark(unmarked))
        effects += map(SendFailed, doubtful)
        return effects + self._acks_due(now)

    def _not_known(self, leaving: Iterable[OutboxEntry], now: Now) -> Effects:
        """The server is an older one without amendments: refuse them here in its place."""
        effects: Effects = []
        for entry in leaving:
            if entry.amends is not None:
                code, sentence = ErrorCode.INVALID_OPERATION, _OLDER_SERVER
                key = entry.client_message_id
                refused = self.outbox.refused(key, code, sentence, retry_after_ms=0, now_ms=now.ms)
                effects += [] if refused is None else self._told(refused)
        return effects

    def _page_request(self, replica: Replica, now: Now) -> SyncRequestFrame:
        return SyncRequestFrame(
            request_id=self._requests.ask(replica, now),
            payload=SyncRequestPayload(
                chat_id=replica.chat_id,
                last_acked_sequence=replica.cursor,
                limit=self._options.page_messages,
            ),
        )

    def _sends(self, entries: Iterable[OutboxEntry], now: Now) -> Effects:
        effects: Effects = []
        for entry in entries:
            self._replicas.own_sent(entry.chat_id)
            effects.append(Send(entry.frame(self._requests.ask(entry, now))))
        return effects

    def _acks_due(self, now: Now, *, is_last: bool = False) -> Effects:
        if self._link.closing is not None:
            return []
        return [Send(frame) for frame in self._acks.flush(now.ms, is_last=is_last)]

    # The end of a socket.

    def _watch(self, now: Now) -> Effects:
        link, requests = self._link, self._requests
        answer_by_ms = requests.next_deadline_ms()
        is_unanswered = answer_by_ms is not None and answer_by_ms <= now.ms
        if is_unanswered or link.is_silent(now):
            return self._give_up(now, "no_answer" if is_unanswered else "silence")
        if link.is_renewing and link.is_due(now):
            return self._finish_renewal(now)
        effects: Effects = []
        if link.is_heartbeat_due(now):
            request_id = requests.new_id()
            link.heartbeat_sent(request_id, now)
            self._acks.heartbeat_sent()
            effects.append(Send(HeartbeatFrame(request_id=request_id, payload=EmptyPayload())))
        if link.may_send and self._replicas.take_digest(now.ms):
            request_id = requests.ask(DIGEST, now)
            effects.append(Send(DigestRequestFrame(request_id=request_id, payload=EmptyPayload())))
        return effects

    def _give_up(self, now: Now, reason: str) -> Effects:
        self._forget_socket()
        return self._link.give_up(now, reason)

    def _finish_renewal(self, now: Now) -> Effects:
        effects = self._acks_due(now, is_last=True)
        self._forget_socket()
        return effects + self._link.finish_renewal(now)

    def _forget_socket(self) -> None:
        self._replicas.disconnected()
        self._requests.clear()
        self.outbox.lost()


_BEFORE_THE_REST: Final = (ConnectionEstablishedFrame, ConnectionClosingFrame, ErrorFrame)


def _after(details: object) -> str | None:
    """The key of the message that a refused one has to wait for."""
    found = details.get("after") if isinstance(details, dict) else None
    return found if isinstance(found, str) else None


def _outsiders(details: object) -> list[str]:
    """The mentioned users who are no members of the chat."""
    found = details.get("user_ids") if isinstance(details, dict) else None
    return [one for one in found if isinstance(one, str)] if isinstance(found, list) else []


def _retry_after_ms(details: object) -> int:
    seconds = details.get("retry_after_seconds") if isinstance(details, dict) else None
    if not isinstance(seconds, int | float) or seconds <= 0:
        return 0
    return int(min(seconds, _RETRY_AFTER_S_MAX) * 1000)
