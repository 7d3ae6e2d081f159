"""One device's conversation with the server, over as many sockets as it takes. PURE.

Events go in as calls, effects come out as values (`effects`), and nothing is done here. What a
server sends never raises.

    OFFLINE      no socket; `next_deadline_ms` says when the next try is
    CONNECTING   a socket is being opened, or has been and the server has not introduced itself
    SYNCING      the digest is being read, or chats are behind
    READY        everything that the digest told of is held
    CLOSED       for good, for a reason

What was sent and not answered is sent again on the next connection, after the chat was synced.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

from tidewire.client.acks import Acks
from tidewire.client.backoff import backoff_ms, varied
from tidewire.client.digests import Digests
from tidewire.client.effects import (
    PAUSE,
    RESUME,
    ChatChanged,
    Connect,
    ConnectionState,
    Disconnect,
    Effect,
    EntryChanged,
    Introduced,
    Keep,
    Mark,
    Now,
    PlaceChanged,
    Refusal,
    Restart,
    Send,
    Settled,
    Status,
    StatusChanged,
    Typed,
)
from tidewire.client.options import ClientOptions
from tidewire.client.outbox import FLYING, Entry, Outbox
from tidewire.client.places import Item, Place, PlaceRecord
from tidewire.client.syncs import Syncs
from tidewire.domain.errors import AuthFailure, ErrorCode
from tidewire.domain.ids import ChatId, ClientMessageId, UserId
from tidewire.domain.limits import HEARTBEAT_INTERVAL_MS
from tidewire.wire.client_frames import (
    ClientFrame,
    DigestRequestFrame,
    EmptyPayload,
    HeartbeatFrame,
    SendMessageFrame,
    SendMessagePayload,
    TypingPayload,
    TypingStartFrame,
    TypingStopFrame,
)
from tidewire.wire.codec import FrameRefusal, UnknownFrame
from tidewire.wire.error_table import CLOSE_TABLE, ERROR_TABLE, CloseReason
from tidewire.wire.server_frames import (
    PROTOCOL_VERSION,
    ChatDigestFrame,
    ChatUpdateFrame,
    ConnectionClosingFrame,
    ConnectionEstablishedFrame,
    ErrorFrame,
    HeartbeatAckFrame,
    MessageFrame,
    ResyncFrame,
    SendMessageAckFrame,
    SendMessageAckPayload,
    ServerFrame,
    StatusUpdateFrame,
    SyncItem,
    SyncResponseFrame,
    TypingIndicatorFrame,
)

if TYPE_CHECKING:
    from random import Random

OFFLINE: Final = ConnectionState.OFFLINE
CONNECTING: Final = ConnectionState.CONNECTING
SYNCING: Final = ConnectionState.SYNCING
READY: Final = ConnectionState.READY
CLOSED: Final = ConnectionState.CLOSED

TRANSITIONS: Final[dict[ConnectionState, frozenset[ConnectionState]]] = {
    OFFLINE: frozenset({OFFLINE, CONNECTING, CLOSED}),
    CONNECTING: frozenset({CONNECTING, SYNCING, OFFLINE, CLOSED}),
    SYNCING: frozenset({READY, OFFLINE, CLOSED}),
    READY: frozenset({OFFLINE, CLOSED}),
    CLOSED: frozenset(),
}

NORMAL_CLOSE: Final = 1000
GONE_AWAY: Final = 1001
HEARTBEAT_VARIATION: Final = 0.1
_HEARTBEAT_MS_MIN: Final = 100
_FATAL_CODES: Final = range(4500, 5000)
_GONE: Final = frozenset({ErrorCode.NOT_A_MEMBER, ErrorCode.NOT_FOUND, ErrorCode.FORBIDDEN})


class Connection:
    def __init__(
        self,
        options: ClientOptions,
        random: "Random",
        *,
        outbox: Outbox,
        places: Iterable[PlaceRecord] = (),
        user_id: str | None = None,
        epoch: str | None = None,
    ) -> None:
        """`places`, `user_id` and `epoch` are those of the last life, if there was one."""
        self.status = Status(OFFLINE)
        self.outbox = outbox
        self.places: dict[ChatId, Place] = {
            record.chat_id: Place(record, waiting_max=options.waiting_max) for record in places
        }
        self.user_id = user_id
        self.epoch = epoch
        self.unknown_frames = 0
        """Frames that were ignored because they are newer than we are, or broken."""
        self.round_trip_ms: int | None = None
        self.skew_ms: int | None = None
        """How far the server's clock is ahead of ours."""
        self._options = options
        self._random = random
        self._acks = Acks(options)
        self._syncs = Syncs(options, random)
        self._digests = Digests(options)
        self._effects: list[Effect] = []
        self._requests_made = 0
        # What is on its way: the message and when its answer is overdue, oldest first.
        self._sends: dict[str, tuple[ClientMessageId, ChatId, int]] = {}
        self._marking: dict[ClientMessageId, Entry] = {}
        # Chats that are behind since the connection began: it is ready when none is left.
        self._behind: dict[ChatId, None] = {}
        self._failures = 0
        self._unstored = 0
        self._is_paused = False
        self._is_established = False
        self._is_digest_complete = False
        self._closing: tuple[str, int] | None = None
        self._is_renewing = False
        self._needs_new_token = False
        self._had_new_token = False
        self._deadline_ms: int | None = None
        """When the next try is due, or the introduction overdue, or the renewal has to be done."""
        self._interval_ms = HEARTBEAT_INTERVAL_MS
        self._heartbeat_at_ms: int | None = None
        self._heartbeats: tuple[str, int] | None = None
        self._heard_at_ms = 0
        self._handlers: dict[type, Callable[[Any, Now], None]] = {
            ConnectionEstablishedFrame: self._on_established,
            ChatDigestFrame: self._on_digest,
            MessageFrame: self._on_message,
            SendMessageAckFrame: self._on_send_ack,
            SyncResponseFrame: self._on_page,
            ErrorFrame: self._on_error,
            HeartbeatAckFrame: self._on_heartbeat_ack,
            StatusUpdateFrame: self._on_status,
            ChatUpdateFrame: self._on_chat_update,
            TypingIndicatorFrame: self._on_typing,
            ResyncFrame: self._on_resync,
            ConnectionClosingFrame: self._on_closing,
        }

    # The socket.

    def start(self, now: Now) -> Sequence[Effect]:
        """Begin, or try again at once if a try is being waited for."""
        if self.status.state is OFFLINE:
            self._connect(now)
        return self._done(now)

    def opened(self, now: Now) -> Sequence[Effect]:
        """The socket is open. Nothing is said before the server has introduced itself (CL-03)."""
        self._heard_at_ms = now.ms
        return self._done(now)

    def refused(self, refusal: Refusal, now: Now) -> Sequence[Effect]:
        """The server did not upgrade the request."""
        if self.status.state is not CONNECTING:
            return self._done(now)
        is_auth = refusal.status == 401
        if is_auth and refusal.error == AuthFailure.TOKEN_REVOKED:
            self._close_for(CloseReason.SESSION_REVOKED)
        elif is_auth and refusal.reason == AuthFailure.DEVICE_MISMATCH:
            self._close_for(AuthFailure.DEVICE_MISMATCH)
        elif is_auth and self._had_new_token:
            self._close_for(AuthFailure.INVALID_TOKEN)
        elif is_auth:
            self._needs_new_token = True
            self._connect(now)
        elif refusal.status in (408, 425, 429) or refusal.status >= 500:
            self._wait(now, refusal.error, at_least_ms=refusal.retry_after_ms)
        else:
            self._close_for(refusal.error or f"http_{refusal.status}")
        return self._done(now)

    def lost(self, now: Now, *, code: int | None = None, reason: str = "lost") -> Sequence[Effect]:
        """The socket is gone, or never came about. Told once for each `Connect` that was not
        refused; told again, it means nothing."""
        if self.status.state in (CLOSED, OFFLINE):
            return self._done(now)
        closing, is_renewing = self._closing, self._is_renewing
        self._forget_socket()
        if closing is not None:
            reason = closing[0]
        if closing is not None and not _comes_back(reason):
            self._close_for(reason)
        elif closing is None and code in _FATAL_CODES:
            self._close_for(f"code_{code}")
        elif is_renewing:
            self._set(OFFLINE, CloseReason.TOKEN_EXPIRED)
            self._connect(now)
        else:
            self._needs_new_token |= reason == CloseReason.TOKEN_EXPIRED
            self._wait(now, reason, told_ms=0 if closing is None else closing[1])
        return self._done(now)

    def heard(self, now: Now) -> None:
        """A ping or pong: a sign of life like any frame."""
        self._heard_at_ms = now.ms

    def renew(self, now: Now) -> Sequence[Effect]:
        """There is a new token: change to a connection of its own, when all answers are here."""
        if self.status.state in (SYNCING, READY) and not self._is_renewing:
            self._is_renewing = True
            self._deadline_ms = now.ms + self._options.renew_grace_ms
        return self._done(now)

    def stop(self, now: Now, reason: str) -> Sequence[Effect]:
        """Close for good, after telling what is on the disk (AK-04)."""
        if self.status.state is CLOSED:
            return self._done(now)
        if self._is_established:
            self._flush_acks(now, is_last=True)
        if self.status.state is not OFFLINE:
            self._effects.append(Disconnect(NORMAL_CLOSE))
        self._forget_socket()
        self._close_for(reason)
        return self._done(now)

    # Time.

    def tick(self, now: Now) -> Sequence[Effect]:
        """To be called when `next_deadline_ms` has come; earlier or later does no harm."""
        state = self.status.state
        if state is OFFLINE and _is_due(self._deadline_ms, now):
            self._connect(now)
        elif state is CONNECTING and _is_due(self._deadline_ms, now):
            self._give_up(now, "handshake_timeout")
        elif self._is_established:
            self._watch(now)
        return self._done(now)

    def next_deadline_ms(self) -> int | None:
        deadlines = [self._deadline_ms]
        if self._is_established:
            deadlines += [
                self._heartbeat_at_ms,
                self._heard_at_ms + 2 * self._interval_ms,
                self._acks.next_deadline_ms(),
                self._digests.next_deadline_ms(),
                self._syncs.next_deadline_ms(is_paused=self._is_full),
                self._send_deadline_ms(),
            ]
            if self._may_send:
                deadlines.append(self.outbox.next_deadline_ms())
        return min((at_ms for at_ms in deadlines if at_ms is not None), default=None)

    # Wishes.

    def submit(self, entry: Entry, now: Now) -> Sequence[Effect]:
        """Send a message that is in the outbox on the disk."""
        self.outbox.add(entry)
        return self.resubmit(entry, now)

    def resubmit(self, entry: Entry, now: Now) -> Sequence[Effect]:
        """An entry is in the queue again, because its user wants it to be."""
        if self._is_open(entry.chat_id):
            self.outbox.release(entry.chat_id)
        return self._done(now)

    def marked(self, entries: Sequence[Entry], left_at_ms: int, now: Now) -> Sequence[Effect]:
        """It is on the disk that these are about to leave."""
        for entry in entries:
            entry.left_at_ms = left_at_ms
            if self._marking.pop(entry.client_message_id, None) is not None:
                self._send_entry(entry, now)
        return self._done(now)

    def stored(
        self, place: Place, through: int, count: int, life: int, now: Now
    ) -> Sequence[Effect]:
        """What a `Keep` asked for is on the disk."""
        self._unstored -= count
        if life == place.life and through >= place.stored:
            place.stored = through
            self._acks.stored(place, count, now.ms)
        if self._is_paused and self._unstored <= self._options.unstored_max // 2:
            self._is_paused = False
            self._effects.append(RESUME)
        return self._done(now)

    def read(self, chat_id: ChatId, sequence: int, now: Now) -> Sequence[Effect]:
        """The user has seen everything up to here. Never above what is held."""
        place = self.places.get(chat_id)
        if place is not None:
            sequence = min(sequence, place.cursor)
            place.seen = max(place.seen, sequence)
            if sequence > place.read:
                place.read = sequence
                self._acks.read(place, now.ms)
                self._effects.append(PlaceChanged(place))
        return self._done(now)

    def type(self, chat_id: ChatId, *, is_typing: bool, now: Now) -> Sequence[Effect]:
        """The user types, or has stopped. Nobody waits for this: without a connection it is gone."""
        if self._may_send:
            payload = TypingPayload(chat_id=chat_id)
            self._send((TypingStartFrame if is_typing else TypingStopFrame)(payload=payload))
        return self._done(now)

    def adopt(self, record: PlaceRecord, now: Now) -> Sequence[Effect]:
        """A chat that was just made or found by other means than the socket."""
        place = self.places.get(record.chat_id)
        if place is None:
            place = self._new_place(record)
            place.is_listed = self._is_established
        elif record.membership_version >= place.membership_version:
            place.is_member = True
            place.membership_version = record.membership_version
            place.name = record.name
            place.head = max(place.head, record.head)
        self._effects.append(PlaceChanged(place))
        self._progress(place, now)
        return self._done(now)

    # What the server says.

    def receive(
        self, frame: ServerFrame | UnknownFrame | FrameRefusal, now: Now
    ) -> Sequence[Effect]:
        if self.status.state in (OFFLINE, CLOSED):
            return self._done(now)
        self._heard_at_ms = now.ms
        handler = self._handlers.get(type(frame))
        if handler is None:
            self.unknown_frames += 1
        elif self._is_established or isinstance(
            frame, ConnectionEstablishedFrame | ConnectionClosingFrame | ErrorFrame
        ):
            handler(frame, now)
        return self._done(now)

    def _on_established(self, frame: ConnectionEstablishedFrame, now: Now) -> None:
        payload = frame.payload
        if self._is_established:
            return
        if payload.protocol_version != PROTOCOL_VERSION:
            self._hang_up("unsupported_version")
            return
        if self.user_id is not None and payload.user_id != self.user_id:
            self._hang_up("other_user")
            return
        self._is_established = True
        self._deadline_ms = None
        self._had_new_token = False
        self.user_id = payload.user_id
        if self.epoch is not None and payload.epoch != self.epoch:
            for place in self.places.values():
                place.restarted(place.start)
            self._effects.append(Restart(list(self.places.values()), payload.epoch))
        self.epoch = payload.epoch
        self._effects.append(Introduced(payload.user_id, payload.epoch))
        self._interval_ms = max(payload.heartbeat_interval_ms, _HEARTBEAT_MS_MIN)
        self._schedule_heartbeat(now)
        self._digests.begin(self._member_ids(), now.ms)
        self._set(SYNCING)

    def _on_digest(self, frame: ChatDigestFrame, now: Now) -> None:
        payload = frame.payload
        for entry in payload.chats:
            place, is_news = self._digests.merge(self.places, entry)
            if is_news:
                place.is_listed = True
                self._effects.append(PlaceChanged(place))
                self._progress(place, now)
                if place.is_behind and not self._is_digest_complete:
                    self._behind[place.chat_id] = None
        if payload.last:
            for chat_id in self._digests.complete(now.ms):
                self._leave(self.places[chat_id])
            if not self._is_digest_complete:
                self._is_digest_complete = True
                self._acks.reconnected(self.places.values(), now.ms)
                for chat_id in self.outbox.waiting_chats():
                    if self._is_open(chat_id):
                        self.outbox.release(chat_id)
            self._check_ready()

    def _on_message(self, frame: MessageFrame, now: Now) -> None:
        item = frame.payload
        place = self.places.get(item.chat_id)
        if place is None or not place.is_member:
            # A push was missed that told of this chat.
            self._digests.want(now.ms)
            return
        self._keep(place, place.offer(item), now)

    def _on_send_ack(self, frame: SendMessageAckFrame, now: Now) -> None:
        payload = frame.payload
        if not self._answered(frame.request_id):
            return
        entry = self.outbox.stored(payload.client_message_id)
        place = self.places.get(payload.chat_id)
        if entry is not None:
            self._effects.append(
                Settled(payload.client_message_id, payload.chat_id, payload.sequence)
            )
        if place is None:
            self._digests.want(now.ms)
        elif entry is not None:
            item = _own_item(entry, payload, self.user_id or "")
            if payload.sequence <= place.cursor:
                # Of an earlier life, and below where this device began: it is shown all the same.
                self._effects.append(Keep(place, (item,), place.cursor, place.life))
                self._unstored += 1
            else:
                self._keep(place, place.offer(item), now)

    def _on_page(self, frame: SyncResponseFrame, now: Now) -> None:
        flight = self._syncs.answered(frame.request_id)
        if flight is None or flight.place.chat_id != frame.payload.chat_id:
            return
        place, page = flight.place, frame.payload
        before = place.cursor
        taken = place.offer_page(page.messages, page.synced_through)
        is_complete = not page.has_more and place.cursor >= page.synced_through
        if is_complete:
            self._syncs.succeeded(place)
            place.is_in_doubt = False
        self._keep(place, taken, now, is_complete=is_complete, is_page=True)
        if place.is_behind:
            # Nothing new in a page that has more: ask again later, not at once and for ever.
            if place.cursor == before and not taken:
                self._syncs.failed(place, now.ms, 0)
            else:
                self._syncs.want(place, now.ms)

    def _on_error(self, frame: ErrorFrame, now: Now) -> None:
        payload = frame.payload
        code, request_id = payload.code, frame.request_id
        retry_after_ms = _retry_after_ms(payload.details)
        if code == ErrorCode.UNAUTHORIZED:
            self._needs_new_token = True
        if request_id is None:
            if code == ErrorCode.RATE_LIMITED:
                self._acks.wait(now.ms + max(retry_after_ms, 1_000))
            return
        sent = self._sends.get(request_id)
        if sent is not None:
            self._answered(request_id)
            entry = self.outbox.refused(
                sent[0], code, payload.message, retry_after_ms=retry_after_ms, now_ms=now.ms
            )
            if entry is not None and entry.code is not None:
                self._effects.append(EntryChanged(entry))
            place = self.places.get(sent[1])
            if place is not None and code in (ErrorCode.NOT_A_MEMBER, ErrorCode.NOT_FOUND):
                self._leave(place)
            return
        flight = self._syncs.answered(request_id)
        if flight is not None:
            self._sync_refused(flight.place, code, retry_after_ms, payload.details, now)
        elif self._digests.is_asked(request_id):
            self._digests.failed(now.ms + max(retry_after_ms, self._options.backoff_ms))

    def _sync_refused(
        self, place: Place, code: str, retry_after_ms: int, details: object, now: Now
    ) -> None:
        if code in _GONE:
            self._leave(place)
        elif code == ErrorCode.CURSOR_AHEAD:
            head = details.get("head") if isinstance(details, dict) else None
            place.restarted(head if isinstance(head, int) else 0)
            self._effects.append(Restart([place], None))
            self._syncs.want(place, now.ms)
        elif _is_retryable(code):
            self._syncs.failed(place, now.ms, retry_after_ms)
        else:
            # It will not get better by asking again; the next digest will tell.
            place.head = place.cursor
            place.is_in_doubt = False
            self._progress(place, now)

    def _on_heartbeat_ack(self, frame: HeartbeatAckFrame, now: Now) -> None:
        if self._heartbeats is not None and frame.request_id == self._heartbeats[0]:
            self.round_trip_ms = now.ms - self._heartbeats[1]
            self._heartbeats = None

    def _on_status(self, frame: StatusUpdateFrame, now: Now) -> None:
        place = self.places.get(frame.payload.chat_id)
        if place is not None:
            place.merge_status(frame.payload)
            self._effects.append(PlaceChanged(place))

    def _on_chat_update(self, frame: ChatUpdateFrame, now: Now) -> None:
        update = frame.payload
        place = self.places.get(update.chat_id)
        if place is not None and update.membership_version < place.membership_version:
            return
        is_me = update.user_id == self.user_id
        self._digests.updated(update.chat_id)
        if update.change == "member_removed" and is_me:
            if place is not None:
                place.membership_version = update.membership_version
                self._leave(place)
        else:
            if place is None:
                if update.change != "created" and not (is_me and update.change == "member_added"):
                    self._digests.want(now.ms)
                    return
                start = min(update.joined_sequence or 0, update.head)
                place = self._new_place(
                    PlaceRecord(
                        chat_id=update.chat_id,
                        chat_type=update.chat_type,
                        start=start,
                        cursor=start,
                        head=update.head,
                    )
                )
            place.is_listed = place.is_member = True
            place.membership_version = update.membership_version
            place.name = update.name
            place.head = max(place.head, update.head)
            self._effects.append(PlaceChanged(place))
            self._progress(place, now)
        self._effects.append(ChatChanged(update))

    def _on_typing(self, frame: TypingIndicatorFrame, now: Now) -> None:
        self._effects.append(Typed(frame.payload))

    def _on_resync(self, frame: ResyncFrame, now: Now) -> None:
        self._digests.want(now.ms + frame.payload.delay_ms)

    def _on_closing(self, frame: ConnectionClosingFrame, now: Now) -> None:
        """Nothing new is said from here on; what is on the disk is told (CL-05, AK-04)."""
        if self._is_established:
            self._flush_acks(now, is_last=True)
        self._closing = (frame.payload.reason, frame.payload.reconnect_delay_ms)

    # Messages.

    def _keep(
        self,
        place: Place,
        items: Sequence[Item],
        now: Now,
        *,
        is_complete: bool = False,
        is_page: bool = False,
    ) -> None:
        """What continues the prefix goes to the disk; what is behind it is asked for."""
        if items:
            own_id = self.user_id or ""
            place.count_unread(items, own_id)
            if len(self.outbox):
                for item in items:
                    if item.sender_id == own_id:
                        self._own_arrived(place, item)
            self._unstored += len(items)
            if self._is_full and not self._is_paused:
                self._is_paused = True
                self._effects.append(PAUSE)
        if items or is_page:
            self._effects.append(
                Keep(place, items, place.cursor, place.life, is_complete=is_complete)
            )
        self._progress(place, now)

    def _own_arrived(self, place: Place, item: Item) -> None:
        """A message of ours came back: it is stored, whatever became of the answer."""
        if self.outbox.stored(item.client_message_id) is not None:
            self._marking.pop(item.client_message_id, None)
            self._effects.append(Settled(item.client_message_id, place.chat_id, item.sequence))

    def _progress(self, place: Place, now: Now) -> None:
        if place.is_behind:
            if place.is_member and self._is_established:
                # While an answer to an own message is due, it may be what fills the gap.
                is_own = place.is_caught_up and place.sends_flying > 0
                self._syncs.want(place, now.ms + self._options.gap_grace_ms * is_own)
            return
        if place.is_listed and not place.is_caught_up:
            place.is_caught_up = True
            self.outbox.release(place.chat_id)
        if place.chat_id in self._behind:
            del self._behind[place.chat_id]
            self._check_ready()

    def _check_ready(self) -> None:
        if self._is_digest_complete and not self._behind and self.status.state is SYNCING:
            self._failures = 0
            self._set(READY)

    def _leave(self, place: Place) -> None:
        """The chat is not the user's any more. What is held stays."""
        place.is_member = False
        place.waiting.clear()
        place.head = place.cursor
        place.is_in_doubt = False
        self._syncs.forget(place.chat_id)
        self._behind.pop(place.chat_id, None)
        self._effects.append(PlaceChanged(place))
        # What waits for it is for the server to refuse, not for us (EH-03).
        if self._is_digest_complete:
            self.outbox.release(place.chat_id)
        self._check_ready()

    def _new_place(self, record: PlaceRecord) -> Place:
        place = Place(record, waiting_max=self._options.waiting_max)
        self.places[place.chat_id] = place
        return place

    # Sending.

    @property
    def _may_send(self) -> bool:
        return self._is_established and self._closing is None and not self._is_renewing

    def _is_open(self, chat_id: ChatId) -> bool:
        """Whether what waits for this chat may leave: it is synced, or none of ours to know."""
        place = self.places.get(chat_id)
        if place is not None and place.is_member:
            return place.is_caught_up
        return self._is_digest_complete

    def _pump(self, now: Now) -> None:
        """Say everything that can be said now."""
        if not self._may_send:
            if self._is_renewing and not self._sends and not self._marking:
                self._finish_renewal(now)
            return
        if not self._is_full:
            for place in self._syncs.due(now.ms):
                self._send(self._syncs.ask(place, self._new_request_id(), now.ms))
        leaving, doubtful = self.outbox.take(now.ms, now.wall_ms)
        unmarked: list[Entry] = []
        for entry in leaving:
            if entry.left_at_ms is None:
                self._marking[entry.client_message_id] = entry
                unmarked.append(entry)
            else:
                self._send_entry(entry, now)
        if unmarked:
            self._effects.append(Mark(unmarked))
        self._effects.extend(EntryChanged(entry) for entry in doubtful)
        self._flush_acks(now)

    def _send_entry(self, entry: Entry, now: Now) -> None:
        assert entry.state is FLYING
        request_id = self._new_request_id()
        self._sends[request_id] = (
            entry.client_message_id,
            entry.chat_id,
            now.ms + self._options.answer_ms_max,
        )
        place = self.places.get(entry.chat_id)
        if place is not None:
            place.sends_flying += 1
        self._send(
            SendMessageFrame(
                request_id=request_id,
                payload=SendMessagePayload(
                    client_message_id=entry.client_message_id,
                    chat_id=entry.chat_id,
                    content=entry.content,
                    content_type=entry.content_type,
                    seen_sequence=entry.seen_sequence,
                ),
            )
        )

    def _answered(self, request_id: str) -> bool:
        sent = self._sends.pop(request_id, None)
        if sent is None:
            return False
        place = self.places.get(sent[1])
        if place is not None and place.sends_flying:
            place.sends_flying -= 1
        return True

    def _send_deadline_ms(self) -> int | None:
        for _, _, expires_at_ms in self._sends.values():
            return expires_at_ms
        return None

    def _flush_acks(self, now: Now, *, is_last: bool = False) -> None:
        if self._closing is None:
            for frame in self._acks.flush(now.ms, is_last=is_last):
                self._send(frame)

    def _send(self, frame: ClientFrame) -> None:
        self._effects.append(Send(frame))

    def _new_request_id(self) -> str:
        self._requests_made += 1
        return str(self._requests_made)

    @property
    def _is_full(self) -> bool:
        return self._unstored >= self._options.unstored_max

    def _member_ids(self) -> list[ChatId]:
        return [place.chat_id for place in self.places.values() if place.is_member]

    # The life of a socket.

    def _watch(self, now: Now) -> None:
        is_silent = now.ms >= self._heard_at_ms + 2 * self._interval_ms
        is_unanswered = (
            _is_due(self._send_deadline_ms(), now)
            or self._syncs.is_overdue(now.ms)
            or self._digests.is_overdue(now.ms)
        )
        if is_silent or is_unanswered:
            self._give_up(now, "silence" if is_silent else "no_answer")
            return
        if self._is_renewing and _is_due(self._deadline_ms, now):
            self._finish_renewal(now)
            return
        if _is_due(self._heartbeat_at_ms, now) and self._closing is None:
            request_id = self._new_request_id()
            self._heartbeats = (request_id, now.ms)
            self._send(HeartbeatFrame(request_id=request_id, payload=EmptyPayload()))
            self._schedule_heartbeat(now)
        if self._may_send and self._digests.is_due(now.ms):
            request_id = self._new_request_id()
            self._digests.ask(request_id, self._member_ids(), now.ms)
            self._send(DigestRequestFrame(request_id=request_id, payload=EmptyPayload()))

    def _schedule_heartbeat(self, now: Now) -> None:
        wait_ms = varied(self._interval_ms, self._random, HEARTBEAT_VARIATION)
        self._heartbeat_at_ms = now.ms + wait_ms

    def _connect(self, now: Now) -> None:
        self._had_new_token = self._needs_new_token
        self._needs_new_token = False
        self._deadline_ms = now.ms + self._options.handshake_ms_max
        self._set(CONNECTING)
        self._effects.append(Connect(self._had_new_token))

    def _wait(self, now: Now, reason: str, *, told_ms: int = 0, at_least_ms: int = 0) -> None:
        """Come back later: when the server said, or ever more slowly."""
        self._failures += 1
        if told_ms:
            wait_ms = told_ms + round(told_ms * 0.25 * self._random.random())
        else:
            wait_ms = backoff_ms(
                self._failures,
                self._random,
                first_ms=self._options.backoff_ms,
                longest_ms=self._options.backoff_ms_max,
            )
        self._deadline_ms = now.ms + max(wait_ms, at_least_ms)
        self._set(OFFLINE, reason)

    def _give_up(self, now: Now, reason: str) -> None:
        """This connection leads nowhere: its end is not waited for."""
        self._effects.append(Disconnect(GONE_AWAY))
        self._forget_socket()
        self._wait(now, reason)

    def _finish_renewal(self, now: Now) -> None:
        self._flush_acks(now, is_last=True)
        self._effects.append(Disconnect(NORMAL_CLOSE))
        self._forget_socket()
        self._set(OFFLINE, CloseReason.TOKEN_EXPIRED)
        self._connect(now)

    def _hang_up(self, reason: str) -> None:
        self._effects.append(Disconnect(NORMAL_CLOSE))
        self._forget_socket()
        self._close_for(reason)

    def _forget_socket(self) -> None:
        self._is_established = self._is_digest_complete = self._is_renewing = False
        self._closing = None
        self._deadline_ms = self._heartbeat_at_ms = None
        self._heartbeats = None
        self._sends.clear()
        self._marking.clear()
        self._behind.clear()
        self._syncs.clear()
        self._digests.clear()
        self.outbox.lost()
        for place in self.places.values():
            place.disconnected()

    def _close_for(self, reason: str) -> None:
        self._deadline_ms = None
        self._set(CLOSED, reason)

    def _set(self, state: ConnectionState, reason: str | None = None) -> None:
        assert state in TRANSITIONS[self.status.state], (self.status, state)
        status = Status(state, None if reason is None else str(reason))
        if status != self.status:
            self.status = status
            self._effects.append(StatusChanged(status))

    def _done(self, now: Now) -> Sequence[Effect]:
        if self._is_established:
            self._pump(now)
        effects = self._effects
        if effects:
            self._effects = []
        return effects


def _own_item(entry: Entry, ack: SendMessageAckPayload, own_id: str) -> SyncItem:
    """An own message as others get it: the text that was sent, with the numbers of the answer."""
    return SyncItem(
        message_id=ack.message_id,
        sequence=ack.sequence,
        prev_sequence=ack.prev_sequence,
        sender_id=UserId(own_id),
        client_message_id=ack.client_message_id,
        content=entry.content,
        content_type=entry.content_type,
        created_at=ack.created_at,
    )


def _is_due(at_ms: int | None, now: Now) -> bool:
    return at_ms is not None and at_ms <= now.ms


def _comes_back(reason: str) -> bool:
    """Reasons that are newer than we are end no conversation."""
    try:
        return CLOSE_TABLE[CloseReason(reason)].reconnects
    except ValueError:
        return True


def _is_retryable(code: str) -> bool:
    try:
        return ERROR_TABLE[ErrorCode(code)].retryable
    except ValueError:
        return True


def _retry_after_ms(details: object) -> int:
    seconds = details.get("retry_after_seconds") if isinstance(details, dict) else None
    return int(seconds * 1000) if isinstance(seconds, int | float) and seconds > 0 else 0
