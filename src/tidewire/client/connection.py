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
from tidewire.client.effects import (
    Effect,
    EntryChanged,
    Introduced,
    Mark,
    Now,
    PlaceChanged,
    Refusal,
    Send,
    Settled,
    Status,
    Typed,
)
from tidewire.client.holdings import Holdings
from tidewire.client.link import CLOSED, CONNECTING, OFFLINE, READY, SYNCING, Link
from tidewire.client.options import ClientOptions
from tidewire.client.outbox import Entry, Outbox
from tidewire.client.places import Place, PlaceRecord
from tidewire.client.sends import Sends
from tidewire.domain.errors import ErrorCode
from tidewire.domain.ids import ChatId
from tidewire.wire.client_frames import (
    ClientFrame,
    DigestRequestFrame,
    EmptyPayload,
    HeartbeatFrame,
    TypingPayload,
    TypingStartFrame,
    TypingStopFrame,
)
from tidewire.wire.codec import FrameRefusal, UnknownFrame
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
        self.outbox = outbox
        self.epoch = epoch
        self.unknown_frames = 0
        """Frames that were ignored because they are newer than we are, or broken."""
        self.skew_ms: int | None = None
        """How far the server's clock is ahead of ours; nothing depends on it."""
        self._options = options
        self._effects: list[Effect] = []
        self._holdings = Holdings(
            options,
            random,
            outbox=outbox,
            effects=self._effects,
            records=places,
            user_id=user_id,
        )
        self._link = Link(options, random)
        self._acks = Acks(options)
        self._sends = Sends(self.places, options.answer_ms_max)
        self._requests_made = 0
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

    @property
    def status(self) -> Status:
        return self._link.status

    @property
    def places(self) -> dict[ChatId, Place]:
        """Every chat that this device knows of, also those that were left."""
        return self._holdings.places

    @property
    def user_id(self) -> str | None:
        """Who we are; None until the server has said it for the first time."""
        return self._holdings.user_id

    @property
    def round_trip_ms(self) -> int | None:
        """How long the last heartbeat's answer took."""
        return self._link.round_trip_ms

    # The socket.

    def start(self, now: Now) -> Sequence[Effect]:
        """Begin, or try again at once if a try is being waited for."""
        return self._done(now, self._link.start(now))

    def opened(self, now: Now) -> Sequence[Effect]:
        """The socket is open. Nothing is said before the server has introduced itself (CL-03)."""
        self._link.heard(now)
        return self._done(now)

    def refused(self, refusal: Refusal, now: Now) -> Sequence[Effect]:
        """The server did not upgrade the request."""
        return self._done(now, self._link.refused(refusal, now))

    def lost(self, now: Now, *, code: int | None = None, reason: str = "lost") -> Sequence[Effect]:
        """The socket is gone, or never came about. Told once for each `Connect` that was not
        refused; told again, it means nothing."""
        if self._link.has_socket:
            self._forget_socket()
        return self._done(now, self._link.lost(now, code=code, reason=reason))

    def heard(self, now: Now) -> None:
        """A ping or pong: a sign of life like any frame."""
        self._link.heard(now)

    def renew(self, now: Now) -> Sequence[Effect]:
        """There is a new token: change to a connection of its own, when all answers are here."""
        self._link.renew(now)
        return self._done(now)

    def stop(self, now: Now, reason: str) -> Sequence[Effect]:
        """Close for good, after telling what is on the disk (AK-04)."""
        if self._link.is_established:
            self._flush_acks(now, is_last=True)
        self._forget_socket()
        return self._done(now, self._link.stop(reason))

    # Time.

    def tick(self, now: Now) -> Sequence[Effect]:
        """To be called when `next_deadline_ms` has come; earlier or later does no harm."""
        link = self._link
        if link.is_established:
            self._watch(now)
        elif link.is_due(now):
            if link.has_socket:
                self._give_up(now, "handshake_timeout")
            else:
                self._effects.extend(link.start(now))
        return self._done(now)

    def next_deadline_ms(self) -> int | None:
        deadlines = [self._link.next_deadline_ms()]
        if self._link.is_established:
            holdings, may_send = self._holdings, self._link.may_send
            # What may not be said now is not waited for either, or waiting would never end.
            deadlines += [
                holdings.digests.next_deadline_ms(may_ask=may_send),
                holdings.syncs.next_deadline_ms(may_ask=may_send and not holdings.is_full),
                self._sends.next_deadline_ms(),
            ]
            if may_send:
                deadlines += [self._acks.next_deadline_ms(), self.outbox.next_deadline_ms()]
        return min((at_ms for at_ms in deadlines if at_ms is not None), default=None)

    # Wishes.

    def submit(self, entry: Entry, now: Now) -> Sequence[Effect]:
        """Send a message that is in the outbox on the disk."""
        self.outbox.add(entry)
        return self.resubmit(entry, now)

    def resubmit(self, entry: Entry, now: Now) -> Sequence[Effect]:
        """An entry is in the queue again, because its user wants it to be."""
        if self._holdings.is_open(entry.chat_id):
            self.outbox.release(entry.chat_id)
        return self._done(now)

    def marked(self, entries: Sequence[Entry], left_at_ms: int, now: Now) -> Sequence[Effect]:
        """It is on the disk that these are about to leave."""
        for entry in entries:
            entry.left_at_ms = left_at_ms
        for entry in self._sends.marked(entries):
            # A page may have brought it meanwhile, from an earlier life.
            if entry.client_message_id not in self.outbox:
                continue
            self._send(self._sends.frame(entry, self._new_request_id, now))
        return self._done(now)

    def stored(
        self, place: Place, through: int, count: int, life: int, now: Now
    ) -> Sequence[Effect]:
        """What a `Keep` asked for is on the disk."""
        if self._holdings.stored(place, through, count, life):
            self._acks.stored(place, count, now.ms)
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
        """The user types, or has stopped. Without a connection nothing happens."""
        if self._link.may_send:
            payload = TypingPayload(chat_id=chat_id)
            self._send((TypingStartFrame if is_typing else TypingStopFrame)(payload=payload))
        return self._done(now)

    def adopt(self, record: PlaceRecord, now: Now) -> Sequence[Effect]:
        """A chat that was just made or found by other means than the socket."""
        self._holdings.adopt(record, now)
        return self._done(now)

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
            handler(frame, now)
        return self._done(now)

    def _on_established(self, frame: ConnectionEstablishedFrame, now: Now) -> None:
        payload = frame.payload
        if self._link.is_established:
            return
        if payload.protocol_version != PROTOCOL_VERSION:
            self._effects.extend(self._link.stop("unsupported_version"))
            return
        if self.user_id is not None and payload.user_id != self.user_id:
            self._effects.extend(self._link.stop("other_user"))
            return
        server_ms = parse_time_ms(payload.server_time)
        self.skew_ms = None if server_ms is None else server_ms - now.wall_ms
        is_new_epoch = self.epoch is not None and payload.epoch != self.epoch
        self.epoch = payload.epoch
        self._holdings.begin(
            payload.user_id, is_new_epoch=is_new_epoch, epoch=payload.epoch, now=now
        )
        # After the restart: a store that knew the new epoch and had old cursors would keep them.
        self._effects.append(Introduced(payload.user_id, payload.epoch))
        self._effects.extend(self._link.established(payload.heartbeat_interval_ms, now))

    def _on_digest(self, frame: ChatDigestFrame, now: Now) -> None:
        if self._holdings.digest(frame.payload, now):
            self._acks.reconnected(self.places.values(), now.ms)

    def _on_message(self, frame: MessageFrame, now: Now) -> None:
        self._holdings.message(frame.payload, now)

    def _on_send_ack(self, frame: SendMessageAckFrame, now: Now) -> None:
        payload = frame.payload
        if self._sends.answered(frame.request_id) is None:
            return
        entry = self.outbox.stored(payload.client_message_id)
        # None: a page was quicker to bring the message than this is to bring its answer.
        if entry is not None:
            self._effects.append(
                Settled(payload.client_message_id, payload.chat_id, payload.sequence)
            )
            self._holdings.own_stored(entry, payload, now)

    def _on_page(self, frame: SyncResponseFrame, now: Now) -> None:
        self._holdings.page(frame, now)

    def _on_error(self, frame: ErrorFrame, now: Now) -> None:
        payload = frame.payload
        code, request_id = payload.code, frame.request_id
        retry_after_ms = _retry_after_ms(payload.details)
        if code == ErrorCode.UNAUTHORIZED:
            self._link.needs_new_token = True
        if request_id is None:
            if code == ErrorCode.RATE_LIMITED:
                self._acks.wait(now.ms + max(retry_after_ms, _ACK_PAUSE_MS))
            return
        sent = self._sends.answered(request_id)
        if sent is not None:
            entry = self.outbox.refused(
                sent.client_message_id,
                code,
                payload.message,
                retry_after_ms=retry_after_ms,
                now_ms=now.ms,
                after=_after(payload.details),
            )
            if entry is not None and entry.code is not None:
                self._effects.append(EntryChanged(entry))
            place = self.places.get(sent.chat_id)
            if place is not None and code in (ErrorCode.NOT_A_MEMBER, ErrorCode.NOT_FOUND):
                self._holdings.leave(place)
            return
        flight = self._holdings.syncs.answered(request_id)
        if flight is not None:
            self._holdings.sync_refused(flight.place, code, retry_after_ms, payload.details, now)
        elif self._holdings.digests.is_asked(request_id):
            self._holdings.digests.failed(now.ms + max(retry_after_ms, self._options.backoff_ms))

    def _on_heartbeat_ack(self, frame: HeartbeatAckFrame, now: Now) -> None:
        self._link.heartbeat_answered(frame.request_id, now)

    def _on_status(self, frame: StatusUpdateFrame, now: Now) -> None:
        self._holdings.status(frame.payload)

    def _on_chat_update(self, frame: ChatUpdateFrame, now: Now) -> None:
        self._holdings.chat_update(frame.payload, now)

    def _on_typing(self, frame: TypingIndicatorFrame, now: Now) -> None:
        self._effects.append(Typed(frame.payload))

    def _on_resync(self, frame: ResyncFrame, now: Now) -> None:
        self._holdings.digests.want(now.ms + frame.payload.delay_ms)

    def _on_closing(self, frame: ConnectionClosingFrame, now: Now) -> None:
        """Nothing new is said from here on; what is on the disk is told (CL-05, AK-04)."""
        if self._link.is_established:
            self._flush_acks(now, is_last=True)
        self._link.closing = (frame.payload.reason, frame.payload.reconnect_delay_ms)

    # Sending.

    def _pump(self, now: Now) -> None:
        """Say everything that can be said now."""
        if not self._link.may_send:
            if self._link.is_renewing and self._sends.is_empty:
                self._finish_renewal(now)
            return
        if not self._holdings.is_full:
            syncs = self._holdings.syncs
            for place in syncs.due(now.ms):
                self._send(syncs.ask(place, self._new_request_id(), now.ms))
        leaving, doubtful = self.outbox.take(now.ms, now.wall_ms)
        if leaving:
            marked, unmarked = self._sends.divide(leaving)
            for entry in marked:
                self._send(self._sends.frame(entry, self._new_request_id, now))
            if unmarked:
                self._effects.append(Mark(unmarked))
        for entry in doubtful:
            self._effects.append(EntryChanged(entry))
        self._flush_acks(now)

    def _flush_acks(self, now: Now, *, is_last: bool = False) -> None:
        if self._link.closing is None:
            for frame in self._acks.flush(now.ms, is_last=is_last):
                self._send(frame)

    def _send(self, frame: ClientFrame) -> None:
        self._effects.append(Send(frame))

    def _new_request_id(self) -> str:
        self._requests_made += 1
        return str(self._requests_made)

    # The life of a socket.

    def _watch(self, now: Now) -> None:
        link = self._link
        sends_by_ms = self._sends.next_deadline_ms()
        is_unanswered = (
            (sends_by_ms is not None and sends_by_ms <= now.ms)
            or self._holdings.syncs.is_overdue(now.ms)
            or self._holdings.digests.is_overdue(now.ms)
        )
        if is_unanswered or link.is_silent(now):
            self._give_up(now, "no_answer" if is_unanswered else "silence")
            return
        if link.is_renewing and link.is_due(now):
            self._finish_renewal(now)
            return
        if link.is_heartbeat_due(now):
            request_id = self._new_request_id()
            link.heartbeat_sent(request_id, now)
            self._send(HeartbeatFrame(request_id=request_id, payload=EmptyPayload()))
        if link.may_send and self._holdings.digests.is_due(now.ms):
            request_id = self._new_request_id()
            self._holdings.digests.ask(request_id, self._holdings.member_ids(), now.ms)
            self._send(DigestRequestFrame(request_id=request_id, payload=EmptyPayload()))

    def _give_up(self, now: Now, reason: str) -> None:
        self._forget_socket()
        self._effects.extend(self._link.give_up(now, reason))

    def _finish_renewal(self, now: Now) -> None:
        self._flush_acks(now, is_last=True)
        self._forget_socket()
        self._effects.extend(self._link.finish_renewal(now))

    def _forget_socket(self) -> None:
        self._holdings.disconnected()
        self._sends.clear()
        self.outbox.lost()

    def _done(self, now: Now, effects: Sequence[Effect] = ()) -> Sequence[Effect]:
        self._effects.extend(effects)
        if self._link.is_established:
            if self._holdings.is_complete and self.status.state is SYNCING:
                self._effects.extend(self._link.ready())
            self._pump(now)
        if not self._effects:
            return ()
        done = self._effects.copy()
        self._effects.clear()
        return done


_BEFORE_THE_REST: Final = (ConnectionEstablishedFrame, ConnectionClosingFrame, ErrorFrame)


def _after(details: object) -> str | None:
    """The message that a refused one has to wait for."""
    found = details.get("after") if isinstance(details, dict) else None
    return found if isinstance(found, str) else None


def _retry_after_ms(details: object) -> int:
    seconds = details.get("retry_after_seconds") if isinstance(details, dict) else None
    return int(seconds * 1000) if isinstance(seconds, int | float) and seconds > 0 else 0
