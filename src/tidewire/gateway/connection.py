"""The core of one connection: decides what follows from each frame, answer, tick and notice. PURE.

Events go in as calls, effects come out as values (`effects`); the shell carries them out. `now_ms`
is a monotonic clock, for durations and deadlines; `wall_ms` is the wall clock, for timestamps.

Every request gets exactly one answer while the connection lives (a digest: one in pages). A one-way
frame gets none. A frame sent unasked has no request_id. Input of a peer never raises.
"""

from dataclasses import KW_ONLY, InitVar, dataclass, field
from typing import Final, assert_never
from zlib import crc32

from tidewire.domain.delivery import Advance, DigestPage
from tidewire.domain.errors import ErrorCode, SequenceAboveHead, TidewireError
from tidewire.domain.ids import ConnectionId, UserId
from tidewire.domain.messages import Appended, AppendOutcome, MessagePage
from tidewire.domain.rates import Rate
from tidewire.domain.resync import ResyncReason
from tidewire.gateway import frames
from tidewire.gateway.effects import (
    CLOSED,
    CLOSING,
    CONNECTING,
    LINGERING,
    NOTHING,
    PING,
    READY,
    TRANSITIONS,
    UNROUTE,
    Answered,
    Close,
    Effects,
    Establish,
    FetchDigest,
    FetchPage,
    Received,
    Report,
    Send,
    SendPage,
    State,
    Typing,
)
from tidewire.gateway.limits import Offences, Pulse, SendLimiter, TypingGate, Verdict
from tidewire.gateway.lines import LINES_MAX, ClosedLine, Lines
from tidewire.gateway.options import GatewayOptions
from tidewire.gateway.pages import DigestRun, PageLane, PageWork
from tidewire.wire.client_frames import (
    AckFrame,
    ClientFrame,
    DeleteMessageFrame,
    DigestRequestFrame,
    EditMessageFrame,
    HeartbeatFrame,
    OneWayFrame,
    ReactFrame,
    ReadFrame,
    SendMessageFrame,
    SubmitFrame,
    SubmitPayload,
    SyncRequestFrame,
    TypingStartFrame,
    TypingStopFrame,
)
from tidewire.wire.codec import FrameRefusal, refusal_payload
from tidewire.wire.error_table import (
    CLOSE_TABLE,
    ERROR_TABLE,
    CloseCode,
    CloseReason,
    error_payload,
)
from tidewire.wire.features import Feature
from tidewire.wire.frame_builders import send_message_ack_frame, sync_response_frame
from tidewire.wire.server_frames import ErrorPayload

_DIGEST_AGAIN_MS: Final = 2_000


class Rules:
    """The options and limits that all connections of a process share."""

    __slots__ = ("control_rate", "epoch", "options", "sends")

    def __init__(self, options: GatewayOptions, *, epoch: str, sends: SendLimiter) -> None:
        self.options = options
        self.epoch = epoch
        self.sends = sends
        self.control_rate = Rate(options.control_rate_per_second, burst=options.control_burst)


@dataclass(slots=True, eq=False, repr=False)
class Connection:
    """The state of one conversation. There may be ten thousand: rare parts are made on use."""

    _rules: Rules
    _: KW_ONLY
    connection_id: ConnectionId
    user_id: UserId
    device_id: str
    token_ends_at_ms: InitVar[int]
    """On the clock of `now_ms`, not on the wall clock."""
    now_ms: InitVar[int]
    features: tuple[str, ...] = ()
    withheld: tuple[str, ...] = ()
    """Those of `features` that are not possible yet: the client is not told of them."""

    state: State = field(default=CONNECTING, init=False)
    close_reason: str | None = field(default=None, init=False)
    """Why we closed or are closing it; None if we did not."""
    is_backlogged: bool = field(default=False, init=False)
    """The peer is slow: `outbound` must be called also when fewer bytes wait."""
    _lane: PageLane = field(default_factory=PageLane, init=False)
    _pulse: Pulse = field(init=False)
    # How many requests have no answer yet, and how many of them are being stored.
    _requests_waiting: int = field(default=0, init=False)
    _sends_waiting: int = field(default=0, init=False)
    _sends_count: int = field(default=0, init=False)
    _lines: Lines | None = field(default=None, init=False)
    _token_ends_at_ms: int = field(init=False)
    _returns_at_ms: int | None = field(default=None, init=False)
    _linger_until_ms: int | None = field(default=None, init=False)
    _control_full_at_us: int = field(default=0, init=False)
    _offences: Offences | None = field(default=None, init=False)
    _typing: TypingGate | None = field(default=None, init=False)

    def __post_init__(self, token_ends_at_ms: int, now_ms: int) -> None:
        self._token_ends_at_ms = token_ends_at_ms
        self._pulse = Pulse(self._rules.options, now_ms)
        age_ms_max = self._rules.options.connection_age_ms_max
        if age_ms_max is not None:
            # Connections that were opened together must not all end at once.
            early_ms = age_ms_max * (crc32(self.connection_id.encode()) % 1000) // 4000
            self._returns_at_ms = now_ms + age_ms_max - early_ms

    # The beginning and the end.

    def opened(self) -> Effects:
        """Read the first digest. The route is registered by now, so no push is lost in between."""
        assert self.state is CONNECTING
        return self._fetch(self._lane.offer(self._lane.begin_digest(None)))

    def end(
        self, reason: CloseReason, now_ms: int, wall_ms: int, *, delay_ms: int | None = None
    ) -> Effects:
        """Close, after telling the reason. `delay_ms`: how soon the client may come back."""
        if self.state is CLOSED:
            return NOTHING
        if self.state is CLOSING:
            # A reason that may not wait overrides one that lingers.
            is_urgent = self._linger_until_ms is not None and reason not in LINGERING
            return self._close(reason) if is_urgent else NOTHING
        self._transition(CLOSING)
        self._lane.clear()
        closing = Send(frames.closing_frame(reason, delay_ms=delay_ms, wall_ms=wall_ms))
        if self._sends_waiting and reason in LINGERING:
            self.close_reason = reason
            self._linger_until_ms = now_ms + self._rules.options.closing_grace_ms
            return UNROUTE, closing
        return UNROUTE, closing, *self._close(reason)

    def lost(self) -> Effects:
        """The socket is gone. Sends under way are still stored; there is no peer to answer."""
        if self.state is CLOSED:
            return NOTHING
        is_routed = self.state is not CLOSING
        self._transition(CLOSED)
        self._lane.clear()
        self._linger_until_ms = None
        return (UNROUTE,) if is_routed else NOTHING

    def broken(self, wall_ms: int) -> Effects:
        """End the connection after an unexpected exception: its effects may be half carried out,
        and a new connection begins from a clean state."""
        if self.state is CLOSED:
            return NOTHING
        self.close_reason = ErrorCode.INTERNAL_ERROR
        self._linger_until_ms = None
        close = Close(CloseCode.INTERNAL_ERROR, ErrorCode.INTERNAL_ERROR)
        if self.state is CLOSING:
            return (close,)
        self._transition(CLOSING)
        self._lane.clear()
        return UNROUTE, _error(None, error_payload(TidewireError()), wall_ms), close

    # Time.

    def heard(self, now_ms: int) -> None:
        """A pong: a sign of life like any frame."""
        self._pulse.heard_at_ms = now_ms

    def next_deadline_ms(self) -> int | None:
        """When to call `tick`; it may then find nothing to do. None: not at all."""
        if self.state is CLOSED:
            return None
        if self.state is CLOSING:
            return self._linger_until_ms
        deadline_ms = min(self._pulse.next_deadline_ms(), self._token_ends_at_ms)
        return deadline_ms if self._returns_at_ms is None else min(deadline_ms, self._returns_at_ms)

    def tick(self, now_ms: int, wall_ms: int) -> Effects:
        """Act on any deadline that has passed."""
        if self.state is CLOSED:
            return NOTHING
        if self.state is CLOSING:
            has_lingered = self._linger_until_ms is not None and now_ms >= self._linger_until_ms
            return self._close_lingering() if has_lingered else NOTHING
        if now_ms >= self._token_ends_at_ms:
            return self.end(CloseReason.TOKEN_EXPIRED, now_ms, wall_ms)
        if self._returns_at_ms is not None and now_ms >= self._returns_at_ms:
            return self.end(CloseReason.SERVER_SHUTDOWN, now_ms, wall_ms)
        match self._pulse.look(now_ms):
            case Verdict.ALIVE:
                return NOTHING
            case Verdict.ASK:
                return (PING,)
            case Verdict.DEAD:
                return self.end(CloseReason.IDLE_TIMEOUT, now_ms, wall_ms)

    # From the peer.

    def receive(self, frame: ClientFrame | FrameRefusal, now_ms: int, wall_ms: int) -> Received:
        """Handle a frame of the peer, or the refusal of one that could not be decoded."""
        self._pulse.heard_at_ms = now_ms
        if self.state is READY:
            # Frequent frames come first: this is on the path of every message.
            match frame:
                case SendMessageFrame():
                    return self._receive_send(frame, now_ms, wall_ms)
                case AckFrame() | ReadFrame() | TypingStartFrame() | TypingStopFrame():
                    return self._receive_one_way(frame, now_ms, wall_ms)
                case HeartbeatFrame():
                    return self._receive_heartbeat(frame, now_ms, wall_ms)
                case SyncRequestFrame() | DigestRequestFrame():
                    return self._receive_page_request(frame, now_ms, wall_ms)
                case EditMessageFrame() | DeleteMessageFrame() | ReactFrame():
                    return self._receive_send(frame, now_ms, wall_ms)
                case FrameRefusal():
                    return self._refuse(frame, now_ms, wall_ms)
                case _:
                    assert_never(frame)
        if self.state is CONNECTING:
            return self._receive_early(frame, now_ms, wall_ms)
        return NOTHING

    def _receive_send(self, frame: SubmitFrame, now_ms: int, wall_ms: int) -> Received:
        payload = frame.payload
        number = self._sends_count = self._sends_count + 1
        if self._lines is not None:
            closed = self._lines.admit(payload, number, now_ms)
            if closed is not None:
                behind = frames.behind_payload(closed, now_ms)
                return (_error(frame.request_id, behind, wall_ms),)
        if self._requests_waiting >= self._rules.options.requests_waiting_max:
            self._close_line(payload, number, now_ms, ErrorCode.SERVER_BUSY)
            return self._refuse_as_busy(frame.request_id, now_ms, wall_ms)
        sends = self._rules.sends
        if type(frame) is ReactFrame:
            wait_ms = sends.take_reaction(self.user_id, payload.chat_id, now_ms)
        else:
            wait_ms = sends.take(self.user_id, payload.chat_id, now_ms)
        if wait_ms:
            self._close_line(payload, number, now_ms, ErrorCode.RATE_LIMITED, wait_ms)
            return self._throttle(frame.request_id, wait_ms, now_ms, wall_ms)
        self._requests_waiting += 1
        self._sends_waiting += 1
        return number

    def _receive_one_way(self, frame: OneWayFrame, now_ms: int, wall_ms: int) -> Received:
        wait_ms = self._spend_control(now_ms)
        if wait_ms:
            return Report.FLOOD_DROPPED, *self._tell_of_flood(wait_ms, now_ms, wall_ms)
        match frame:
            case AckFrame():
                ack = frame.payload
                return Advance(
                    user_id=self.user_id, chat_id=ack.chat_id, delivered=ack.last_acked_sequence
                )
            case ReadFrame():
                seen = frame.payload
                return Advance(
                    user_id=self.user_id, chat_id=seen.chat_id, read=seen.last_read_sequence
                )
            case TypingStartFrame() | TypingStopFrame():
                return self._receive_typing(frame, now_ms)
            case _:
                assert_never(frame)

    def _receive_typing(self, frame: TypingStartFrame | TypingStopFrame, now_ms: int) -> Effects:
        if self._typing is None:
            options = self._rules.options
            self._typing = TypingGate(
                interval_ms=options.typing_interval_ms, chats_max=options.typing_chats_max
            )
        chat_id = frame.payload.chat_id
        is_typing = isinstance(frame, TypingStartFrame)
        gate = self._typing
        is_passed = gate.start(chat_id, now_ms) if is_typing else gate.stop(chat_id)
        return (Typing(chat_id, is_typing) if is_passed else Report.TYPING_DROPPED,)

    def _receive_page_request(
        self, frame: SyncRequestFrame | DigestRequestFrame, now_ms: int, wall_ms: int
    ) -> Effects:
        if self._requests_waiting >= self._rules.options.requests_waiting_max:
            return self._refuse_as_busy(frame.request_id, now_ms, wall_ms)
        self._requests_waiting += 1
        lane = self._lane
        if isinstance(frame, SyncRequestFrame):
            return self._fetch(lane.offer(frame))
        return self._fetch(lane.offer(lane.begin_digest(frame.request_id)))

    def _receive_heartbeat(self, frame: HeartbeatFrame, now_ms: int, wall_ms: int) -> Effects:
        wait_ms = self._spend_control(now_ms)
        if wait_ms:
            return self._throttle(frame.request_id, wait_ms, now_ms, wall_ms)
        return (Send(frames.heartbeat_ack_frame(frame.request_id, wall_ms=wall_ms)),)

    def _receive_early(
        self, frame: ClientFrame | FrameRefusal, now_ms: int, wall_ms: int
    ) -> Effects:
        """Refuse frames before connection_established, except heartbeats, which do no harm."""
        request_id: str | None
        match frame:
            case FrameRefusal():
                return self._refuse(frame, now_ms, wall_ms)
            case HeartbeatFrame():
                return self._receive_heartbeat(frame, now_ms, wall_ms)
            case AckFrame() | ReadFrame() | TypingStartFrame() | TypingStopFrame():
                request_id = None
            case _:
                request_id = frame.request_id
        error = _error(request_id, frames.too_early_payload(), wall_ms)
        return error, *self._count_invalid(now_ms, wall_ms)

    # From the planes behind.

    def submitted(
        self,
        frame: SubmitFrame,
        number: int,
        outcome: AppendOutcome,
        now_ms: int,
        wall_ms: int,
    ) -> Answered:
        """Answer a frame whose entry was stored or refused."""
        assert self._sends_waiting > 0
        self._requests_waiting -= 1
        self._sends_waiting -= 1
        is_lingering = self._linger_until_ms is not None
        if self.state is not READY and not is_lingering:
            return NOTHING
        if isinstance(outcome, Appended):
            payload = frame.payload
            ack = send_message_ack_frame(
                outcome,
                request_id=frame.request_id,
                chat_id=payload.chat_id,
                client_message_id=payload.client_message_id,
                now_ms=wall_ms,
            )
            if not is_lingering:
                return ack
            answer = Send(ack)
        else:
            answer = _error(
                frame.request_id, self._send_refused(frame, number, outcome, now_ms), wall_ms
            )
        if is_lingering and not self._sends_waiting:
            return answer, *self._close_lingering()
        if not is_lingering and self._has_too_many_lines():
            return answer, *self.end(CloseReason.RATE_LIMITED, now_ms, wall_ms)
        return (answer,)

    def page_fetched(self, outcome: MessagePage | TidewireError, wall_ms: int) -> Effects:
        """The messages that FetchPage asked for, or why there are none."""
        if self.state is not READY:
            return NOTHING
        request = self._lane.current
        assert isinstance(request, SyncRequestFrame)
        self._requests_waiting -= 1
        request_id = request.request_id
        if isinstance(outcome, TidewireError):
            error = _error(request_id, error_payload(outcome), wall_ms)
            return error, *self._fetch(self._lane.next())
        self._lane.is_draining = True
        chat_id = request.payload.chat_id
        page = sync_response_frame(
            outcome,
            request_id=request_id,
            chat_id=chat_id,
            now_ms=wall_ms,
            has_entries=Feature.ENTRIES in self.features,
        )
        return (SendPage(page),)

    def digest_fetched(self, outcome: DigestPage | TidewireError, wall_ms: int) -> Effects:
        """The chats that FetchDigest asked for, or why there are none."""
        if self.state is CLOSING or self.state is CLOSED:
            return NOTHING
        lane = self._lane
        run = lane.current
        assert isinstance(run, DigestRun)
        if isinstance(outcome, TidewireError):
            return self._digest_failed(run, outcome, wall_ms)
        page = frames.chat_digest_frame(run, outcome, wall_ms=wall_ms)
        lane.is_draining = True
        if outcome.next_chat_id is not None:
            lane.offer(run.continued(outcome.next_chat_id))
        elif run.request_id is not None:
            self._requests_waiting -= 1
        if self.state is READY:
            return (SendPage(page),)
        self._transition(READY)
        told = tuple(one for one in self.features if one not in self.withheld)
        established = frames.established_frame(
            connection_id=self.connection_id,
            user_id=self.user_id,
            device_id=self.device_id,
            epoch=self._rules.epoch,
            heartbeat_interval_ms=self._rules.options.heartbeat_interval_ms,
            features=told,
            wall_ms=wall_ms,
        )
        return (Establish(established, page),)

    def drained(self) -> Effects:
        """The page has gone out: the next may be read."""
        if self.state is not READY:
            return NOTHING
        assert self._lane.is_draining
        return self._fetch(self._lane.next())

    def outbound(self, unsent_bytes: int, now_ms: int, wall_ms: int) -> Effects:
        """`unsent_bytes`, pages aside, wait for the peer to read them."""
        if self.state is CLOSING or self.state is CLOSED:
            return NOTHING
        options = self._rules.options
        bytes_max = options.outbound_bytes_max
        if unsent_bytes > bytes_max:
            # Tell the peer and close at once: a grace would let the buffer grow (N-01).
            payload = frames.slow_consumer_payload(unsent_bytes, bytes_max)
            unrouted, *rest = self.end(CloseReason.SLOW_CONSUMER, now_ms, wall_ms)
            return Report.SLOW_CONSUMER, unrouted, _error(None, payload, wall_ms), *rest
        was_backlogged = self.is_backlogged
        self.is_backlogged = unsent_bytes >= options.outbound_warning_bytes
        return (Report.BACKLOG,) if self.is_backlogged and not was_backlogged else NOTHING

    def position_refused(self, refusal: SequenceAboveHead, wall_ms: int) -> Effects:
        """An ack or a read lies above the head: it is ignored, and the peer is told so (D-04)."""
        if self.state is not READY:
            return NOTHING
        return (_error(None, error_payload(refusal), wall_ms),)

    def resync(self, reason: ResyncReason, delay_ms: int, wall_ms: int) -> Effects:
        """A push may have been missed: the client is to ask for a digest."""
        if self.state is CLOSING or self.state is CLOSED:
            return NOTHING
        return (Send(frames.resync_frame(reason, delay_ms=delay_ms, wall_ms=wall_ms)),)

    # Inside.

    def _send_refused(
        self, frame: SubmitFrame, number: int, error: TidewireError, now_ms: int
    ) -> ErrorPayload:
        """The error for the author. If the message may be sent again, its line closes."""
        if ERROR_TABLE[error.code].retryable:
            earlier = self._close_line(frame.payload, number, now_ms, error.code)
            if earlier is not None:
                return frames.behind_payload(earlier, now_ms)
        return error_payload(error)

    def _close_line(
        self, send: SubmitPayload, number: int, now_ms: int, code: ErrorCode, wait_ms: int = 0
    ) -> ClosedLine | None:
        if self._lines is None:
            self._lines = Lines(waiting_max=self._rules.options.requests_waiting_max)
        return self._lines.refused(send, number, now_ms, code=code, retry_after_ms=wait_ms)

    def _has_too_many_lines(self) -> bool:
        """Too many to remember which message waits for which; a new connection begins without."""
        return self._lines is not None and len(self._lines) > LINES_MAX

    def _digest_failed(self, run: DigestRun, error: TidewireError, wall_ms: int) -> Effects:
        if self.state is CONNECTING:
            if error.code is ErrorCode.INTERNAL_ERROR:
                return self.broken(wall_ms)
            # Nothing was promised yet: the client comes back later (N-08).
            self._transition(CLOSING)
            self._lane.clear()
            self.close_reason = error.code
            failure = _error(None, error_payload(error), wall_ms)
            return UNROUTE, failure, Close(CloseCode.TRY_AGAIN_LATER, error.code)
        next_work = self._fetch(self._lane.next())
        if run.request_id is None:
            # A digest without an end would leave the client waiting for its last page.
            again = frames.resync_frame(
                ResyncReason.DIGEST_INCOMPLETE, delay_ms=_DIGEST_AGAIN_MS, wall_ms=wall_ms
            )
            return Send(again), *next_work
        self._requests_waiting -= 1
        return _error(run.request_id, error_payload(error), wall_ms), *next_work

    def _refuse(self, refusal: FrameRefusal, now_ms: int, wall_ms: int) -> Effects:
        if refusal.counts_against_budget:
            error = _error(refusal.request_id, refusal_payload(refusal), wall_ms)
            return error, *self._count_invalid(now_ms, wall_ms)
        wait_ms = self._spend_control(now_ms)
        if wait_ms:
            if refusal.request_id is None:
                return Report.FLOOD_DROPPED, *self._tell_of_flood(wait_ms, now_ms, wall_ms)
            return self._throttle(refusal.request_id, wait_ms, now_ms, wall_ms)
        if not refusal.is_answered:
            return NOTHING
        return (_error(refusal.request_id, refusal_payload(refusal), wall_ms),)

    def _refuse_as_busy(self, request_id: str, now_ms: int, wall_ms: int) -> Effects:
        error = _error(request_id, frames.server_busy_payload(), wall_ms)
        return error, *self._count_throttled(now_ms, wall_ms)

    def _throttle(self, request_id: str | None, wait_ms: int, now_ms: int, wall_ms: int) -> Effects:
        error = _error(request_id, frames.rate_limited_payload(wait_ms), wall_ms)
        return error, *self._count_throttled(now_ms, wall_ms)

    def _tell_of_flood(self, wait_ms: int, now_ms: int, wall_ms: int) -> Effects:
        if self._offences_made().flooded(now_ms):
            return self._throttle(None, wait_ms, now_ms, wall_ms)
        return self._count_throttled(now_ms, wall_ms)

    def _count_invalid(self, now_ms: int, wall_ms: int) -> Effects:
        is_spent = self._offences_made().invalid(now_ms)
        return self.end(CloseReason.PROTOCOL_ERROR, now_ms, wall_ms) if is_spent else NOTHING

    def _count_throttled(self, now_ms: int, wall_ms: int) -> Effects:
        is_spent = self._offences_made().throttled(now_ms) or self._has_too_many_lines()
        return self.end(CloseReason.RATE_LIMITED, now_ms, wall_ms) if is_spent else NOTHING

    def _offences_made(self) -> Offences:
        if self._offences is None:
            options = self._rules.options
            self._offences = Offences(
                invalid_max=options.invalid_frames_max,
                throttled_max=options.throttled_frames_max,
                window_ms=options.offence_window_ms,
            )
        return self._offences

    def _spend_control(self, now_ms: int) -> int:
        """Count a control frame and return 0, or return how long to wait, in ms."""
        full_at_us = self._rules.control_rate.taken(self._control_full_at_us, now_ms)
        if full_at_us < 0:
            return -full_at_us
        self._control_full_at_us = full_at_us
        return 0

    def _fetch(self, work: PageWork | None) -> Effects:
        match work:
            case None:
                return NOTHING
            case SyncRequestFrame():
                return (FetchPage(work),)
            case DigestRun():
                return (FetchDigest(work.after),)
            case _:
                assert_never(work)

    def _close(self, reason: CloseReason) -> Effects:
        self.close_reason = reason
        self._linger_until_ms = None
        return (Close(CLOSE_TABLE[reason].close_code, reason),)

    def _close_lingering(self) -> Effects:
        assert self.close_reason is not None
        return self._close(CloseReason(self.close_reason))

    def _transition(self, state: State) -> None:
        assert state in TRANSITIONS[self.state], (self.state, state)
        self.state = state


def _error(request_id: str | None, payload: ErrorPayload, wall_ms: int) -> Send:
    return Send(frames.error_frame(request_id, payload, wall_ms=wall_ms))
