"""The shell of one connection: feeds its core and carries out what the core wants.

There may be ten thousand of these, most of them quiet: no task, no timer and no buffer of its own.
What is to be written is gathered for one turn of the loop, by the hub, and goes out in one write.

An exception that no code expected ends this connection, with 1011, and no other: whoever calls a
driver catches it and calls `failed`, or the driver does so itself where the caller is the edge.
"""

import asyncio
import logging
from collections.abc import Coroutine
from functools import partial
from typing import Final, Protocol, TypeVar, assert_never

from tidewire.domain.errors import (
    ErrorCode,
    SequenceAboveHead,
    StoreUnavailable,
    TidewireError,
)
from tidewire.domain.ids import ChatId
from tidewire.domain.messages import AppendOutcome
from tidewire.domain.resync import ResyncReason
from tidewire.gateway.connection import Connection
from tidewire.gateway.counters import GatewayCounters, add
from tidewire.gateway.effects import (
    Acknowledge,
    Close,
    Effects,
    Establish,
    FetchDigest,
    FetchPage,
    Ping,
    Report,
    Send,
    SendPage,
    Submit,
    Typing,
    Unroute,
)
from tidewire.gateway.options import GatewayOptions
from tidewire.gateway.states import CONNECTING, READY
from tidewire.ports.pausing import pause
from tidewire.ports.runtime import FLOOD_KEY, Clock, RequestKind, Tasks
from tidewire.ports.services import Acknowledger, MessageIntake, TypingRelay
from tidewire.ports.storage import MessageStore, PositionStore
from tidewire.ports.transport import Admission, SocketListener, SocketTransport
from tidewire.wire.client_frames import SendMessageFrame, SyncRequestFrame
from tidewire.wire.codec import FrameRefusal, decode_client_frame, encode_server_frame
from tidewire.wire.error_table import CloseCode, CloseReason
from tidewire.wire.framing import frame_text
from tidewire.wire.server_frames import ErrorFrame, ServerFrame

Result = TypeVar("Result")

PAGE_BYTES_MIN: Final = 4096
"""What reading a page counts beside what is sent of it."""
CONFIRMED_CHATS_MAX: Final = 512
"""In how many chats a connection's first ack is remembered; then it counts as the first again."""

_logger = logging.getLogger(__name__)


class Switchboard(Protocol):
    """What a connection needs of the hub."""

    def mark(self, driver: "ConnectionDriver") -> None:
        """It has something to write: have `flush` called once in the next turn of the loop."""
        ...

    def unroute(self, driver: "ConnectionDriver") -> None:
        """No more pushes to it. Safe to call again."""
        ...

    def schedule(self, driver: "ConnectionDriver") -> None:
        """Have `tick` called when its next deadline has passed."""
        ...

    def watch_drain(self, driver: "ConnectionDriver") -> None:
        """Have `check_drained` called now and then until it says True."""
        ...

    def ended(self, driver: "ConnectionDriver") -> None:
        """Its socket is gone."""
        ...


class Desk:
    """What all connections of a process work with."""

    __slots__ = (
        "acknowledger",
        "clock",
        "counters",
        "intake",
        "messages",
        "options",
        "positions",
        "switchboard",
        "tasks",
        "typing",
    )

    def __init__(
        self,
        *,
        switchboard: Switchboard,
        intake: MessageIntake,
        acknowledger: Acknowledger,
        typing: TypingRelay,
        messages: MessageStore,
        positions: PositionStore,
        clock: Clock,
        tasks: Tasks,
        options: GatewayOptions,
        counters: GatewayCounters,
    ) -> None:
        self.switchboard = switchboard
        self.intake = intake
        self.acknowledger = acknowledger
        self.typing = typing
        self.messages = messages
        self.positions = positions
        self.clock = clock
        self.tasks = tasks
        self.options = options
        self.counters = counters


class ConnectionDriver:
    """Between one socket and one core. All of it happens on one event loop."""

    __slots__ = (
        "_confirmed",
        "_desk",
        "_held",
        "_held_bytes",
        "_opened_at_ms",
        "_page_bytes",
        "_pages_paid_at_ms",
        "_transport",
        "admission",
        "core",
        "out",
        "wheel_slot",
    )

    def __init__(
        self, desk: Desk, core: Connection, admission: Admission, transport: SocketTransport
    ) -> None:
        self.core = core
        self.admission = admission
        self.out: list[bytes] | None = None
        """Frames of this turn. Whoever puts the first one in marks the connection at the hub."""
        self.wheel_slot = -1
        """The hub's: in which of its places on the wheel this connection is to be found."""
        self._desk = desk
        self._transport = transport
        self._opened_at_ms = desk.clock.monotonic_ms()
        # Frames that wait for connection_established; None once it was sent.
        self._held: list[bytes] | None = []
        self._held_bytes = 0
        # The page that was written and has not drained yet; 0 if there is none.
        self._page_bytes = 0
        # When all pages of this connection are paid for, at the rate that they may go out.
        self._pages_paid_at_ms = 0
        # (chat, is it a read): acknowledged on this connection before.
        self._confirmed: set[tuple[ChatId, bool]] | None = None

    # From the edge (`ports.transport.SocketListener`).

    def text_received(self, payload: bytes | memoryview) -> None:
        desk = self._desk
        counters = desk.counters
        counters.bytes_received += len(payload)
        frame = decode_client_frame(payload)
        # `isinstance` of what it is not takes four times as long.
        if type(frame) is FrameRefusal:
            self._count_refusal(frame)
        else:
            received = counters.frames_received
            kind = type(frame)
            received[kind] = received.get(kind, 0) + 1
        now_ms = desk.clock.monotonic_ms()
        try:
            effects = self.core.receive(frame, now_ms, desk.clock.wall_ms())
            if effects:
                self._run(effects, now_ms)
        except Exception as error:  # noqa: BLE001 - it concerns this connection alone
            self.failed(error)

    def pong_received(self) -> None:
        self.core.heard(self._desk.clock.monotonic_ms())

    def overrun(self) -> None:
        self.end(CloseReason.RATE_LIMITED)

    def lost(self, *, is_closed_by_peer: bool = False) -> None:
        desk = self._desk
        now_ms = desk.clock.monotonic_ms()
        try:
            self._run(self.core.lost(), now_ms)
        except Exception as error:  # noqa: BLE001 - it concerns this connection alone
            desk.tasks.request_failed(RequestKind.CONNECTION, error, self._names())
            desk.switchboard.unroute(self)
        self.out = None
        self._held = None
        went = "closed_by_client" if is_closed_by_peer else "lost"
        reason = self.core.close_reason or went
        add(desk.counters.connections_by_status, reason)
        desk.switchboard.ended(self)
        _logger.info(
            "connection ended",
            extra={**self._names(), "reason": reason, "open_ms": now_ms - self._opened_at_ms},
        )

    # From the hub.

    def failed(self, error: Exception) -> None:
        """Log and count what no code expected, and end this connection."""
        self._desk.tasks.request_failed(RequestKind.CONNECTION, error, self._names())
        self.break_off(error)

    def break_off(self, _: Exception) -> None:
        """End this connection with 1011, whatever state it is in."""
        clock = self._desk.clock
        try:
            self._run(self.core.broken(clock.wall_ms()), clock.monotonic_ms())
        except Exception as error:  # noqa: BLE001 - then without its core
            self._desk.tasks.request_failed(RequestKind.CONNECTION, error, self._names())
            self._desk.switchboard.unroute(self)
            self.out = self._held = None
            self._page_bytes = 0
            self._transport.close(CloseCode.INTERNAL_ERROR, ErrorCode.INTERNAL_ERROR)

    def begin(self) -> None:
        """The route is registered."""
        self._run(self.core.opened(), self._opened_at_ms)
        self._desk.switchboard.schedule(self)

    def end(self, reason: CloseReason, *, delay_ms: int | None = None) -> None:
        """Close the connection, after saying why."""
        clock = self._desk.clock
        now_ms = clock.monotonic_ms()
        self._run(self.core.end(reason, now_ms, clock.wall_ms(), delay_ms=delay_ms), now_ms)
        # It may linger, and then not longer than its grace.
        self._desk.switchboard.schedule(self)

    def tick(self, now_ms: int, wall_ms: int) -> None:
        """Its deadline may have passed."""
        effects = self.core.tick(now_ms, wall_ms)
        if effects:
            self._run(effects, now_ms)
        self._desk.switchboard.schedule(self)

    def resync(self, reason: ResyncReason, delay_ms: int) -> None:
        clock = self._desk.clock
        self._run(self.core.resync(reason, delay_ms, clock.wall_ms()), clock.monotonic_ms())

    def position_refused(self, refusal: SequenceAboveHead) -> None:
        clock = self._desk.clock
        self._run(self.core.position_refused(refusal, clock.wall_ms()), clock.monotonic_ms())

    def is_first_confirmation(self, chat_id: ChatId, *, is_read: bool) -> bool:
        """True the first time that this is asked."""
        confirmed = self._confirmed
        if confirmed is None or len(confirmed) >= CONFIRMED_CHATS_MAX:
            confirmed = self._confirmed = set()
        key = (chat_id, is_read)
        if key in confirmed:
            return False
        confirmed.add(key)
        return True

    def unsent_bytes(self) -> int:
        return self._held_bytes + self._transport.unsent_bytes()

    def flush(self) -> None:
        """Write what this turn has gathered, and see if the peer keeps up."""
        out = self.out
        if out is None:
            return
        self.out = None
        if self._held is not None:
            self._hold(out, self._held)
            return
        framed = out[0] if len(out) == 1 else b"".join(out)
        transport = self._transport
        transport.write(framed)
        desk = self._desk
        desk.counters.bytes_sent += len(framed)
        unsent_bytes = transport.unsent_bytes()
        if self._page_bytes and not self.check_drained():
            desk.switchboard.watch_drain(self)
        unsent_bytes -= self._page_bytes
        if unsent_bytes >= desk.options.outbound_warning_bytes or self.core.is_backlogged:
            self._outbound(unsent_bytes)

    def check_drained(self) -> bool:
        """Go on with the next page if the last one has gone out; True if there is none to watch."""
        if not self._page_bytes:
            return True
        if self._transport.unsent_bytes() > self._desk.options.drained_bytes_max:
            return False
        self._page_bytes = 0
        self._run(self.core.drained(), self._desk.clock.monotonic_ms())
        return True

    # What the core wants.

    def _run(self, effects: Effects, now_ms: int) -> None:
        for effect in effects:
            match effect:
                case Submit():
                    self._submit(effect, now_ms)
                case Send():
                    self._write(self._framed(effect.frame))
                case Acknowledge():
                    self._acknowledge(effect)
                case SendPage():
                    framed = self._framed(effect.frame)
                    self._page_bytes = len(framed)
                    self._pay(len(framed), now_ms)
                    self._write(framed)
                case FetchPage():
                    self._desk.tasks.start_request(
                        RequestKind.SYNC, self._fetch_page(effect.request), self.break_off
                    )
                case FetchDigest():
                    self._desk.tasks.start_request(
                        RequestKind.DIGEST, self._fetch_digest(effect.after), self.break_off
                    )
                case Establish():
                    self._establish(effect)
                case Typing():
                    core = self.core
                    self._desk.typing.typing(
                        core.user_id,
                        effect.chat_id,
                        is_typing=effect.is_typing,
                        origin=core.connection_id,
                    )
                case Ping():
                    self._transport.ping()
                case Unroute():
                    self._unroute()
                case Close():
                    self._close(effect)
                case Report():
                    self._report(effect)
                case _:
                    assert_never(effect)

    def _submit(self, effect: Submit, now_ms: int) -> None:
        frame = effect.frame
        payload = frame.payload
        core = self.core
        self._desk.intake.submit_nowait(
            chat_id=payload.chat_id,
            sender_id=core.user_id,
            client_message_id=payload.client_message_id,
            content=payload.content,
            done=partial(self._submitted, frame, effect.number, now_ms),
            content_type=payload.content_type,
            seen_sequence=payload.seen_sequence,
            origin_connection_id=core.connection_id,
        )

    def _submitted(
        self, frame: SendMessageFrame, number: int, received_at_ms: int, outcome: AppendOutcome
    ) -> None:
        desk = self._desk
        now_ms = desk.clock.monotonic_ms()
        desk.counters.send_latency_ms.add(now_ms - received_at_ms)
        try:
            wall_ms = desk.clock.wall_ms()
            self._run(self.core.submitted(frame, number, outcome, now_ms, wall_ms), now_ms)
        except Exception as error:  # noqa: BLE001 - it concerns this connection alone
            self.failed(error)

    def _acknowledge(self, effect: Acknowledge) -> None:
        desk = self._desk
        core = self.core
        is_taken = desk.acknowledger.acknowledge_nowait(
            core.connection_id,
            core.user_id,
            effect.chat_id,
            delivered=effect.delivered,
            read=effect.read,
        )
        if not is_taken:
            desk.counters.acks_without_room += 1

    async def _fetch_page(self, request: SyncRequestFrame) -> None:
        desk = self._desk
        payload = request.payload
        if not await self._is_due():
            return
        page = await self._within_time(
            RequestKind.SYNC,
            desk.messages.messages_after(
                self.core.user_id,
                payload.chat_id,
                payload.last_acked_sequence,
                count_max=payload.limit,
                bytes_max=desk.options.page_bytes_max,
            ),
        )
        self._run(self.core.page_fetched(page, desk.clock.wall_ms()), desk.clock.monotonic_ms())

    async def _fetch_digest(self, after: ChatId | None) -> None:
        desk = self._desk
        if not await self._is_due():
            return
        page = await self._within_time(
            RequestKind.DIGEST,
            desk.positions.digest(
                self.core.user_id, after=after, count_max=desk.options.digest_chats_max
            ),
        )
        self._run(self.core.digest_fetched(page, desk.clock.wall_ms()), desk.clock.monotonic_ms())

    async def _is_due(self) -> bool:
        """Wait until the budget of pages allows another one; False if it is not wanted any more."""
        desk = self._desk
        now_ms = desk.clock.monotonic_ms()
        wait_ms = self._pages_paid_at_ms - now_ms - desk.options.page_slack_ms
        if wait_ms > 0:
            await pause(wait_ms)
        self._pay(PAGE_BYTES_MIN, desk.clock.monotonic_ms())
        return self.core.state is CONNECTING or self.core.state is READY

    def _pay(self, page_bytes: int, now_ms: int) -> None:
        """Count what a page costs: its bytes, and reading it."""
        paid_at_ms = max(self._pages_paid_at_ms, now_ms)
        cost_ms = -(-page_bytes * 1000 // self._desk.options.page_bytes_per_second)
        self._pages_paid_at_ms = paid_at_ms + cost_ms

    async def _within_time(
        self, kind: RequestKind, reading: Coroutine[object, object, Result]
    ) -> Result | TidewireError:
        """What was read, or the error to answer with: INTERNAL_ERROR if no code expected it."""
        try:
            async with asyncio.timeout(self._desk.options.store_timeout_ms / 1000):
                return await reading
        except TimeoutError:
            return StoreUnavailable("the store did not answer in time; ask again")
        except Exception as error:  # noqa: BLE001 - it concerns this request alone
            if isinstance(error, TidewireError) and error.code is not ErrorCode.INTERNAL_ERROR:
                return error
            self._desk.tasks.request_failed(kind, error, self._names())
            return TidewireError()

    # Writing.

    def _framed(self, frame: ServerFrame) -> bytes:
        counters = self._desk.counters
        sent = counters.frames_sent
        kind = type(frame)
        sent[kind] = sent.get(kind, 0) + 1
        if type(frame) is ErrorFrame:
            add(counters.errors_sent_by_code, frame.payload.code)
        return frame_text(encode_server_frame(frame))

    def _write(self, framed: bytes) -> None:
        if self.out is None:
            self.out = [framed]
            self._desk.switchboard.mark(self)
        else:
            self.out.append(framed)

    def _establish(self, effect: Establish) -> None:
        assert self._held is not None
        first = self._framed(effect.frame)
        page = self._framed(effect.first_page)
        is_marked = self.out is not None
        self.out = [first, page, *self._held, *(self.out or ())]
        self._held = None
        self._held_bytes = 0
        self._page_bytes = len(page)
        self._pay(len(page), self._desk.clock.monotonic_ms())
        add(self._desk.counters.connections_by_status, "established")
        if not is_marked:
            self._desk.switchboard.mark(self)

    def _hold(self, out: list[bytes], held: list[bytes]) -> None:
        """Keep frames until connection_established went out before them, within the bound."""
        held += out
        self._held_bytes += sum(map(len, out))
        if self._held_bytes > self._desk.options.outbound_bytes_max:
            self._outbound(self._held_bytes)

    def _outbound(self, unsent_bytes: int) -> None:
        clock = self._desk.clock
        now_ms = clock.monotonic_ms()
        self._run(self.core.outbound(unsent_bytes, now_ms, clock.wall_ms()), now_ms)

    def _unroute(self) -> None:
        self._desk.switchboard.unroute(self)
        if self._held is not None:
            # Nothing was established, so nothing that was held back is owed to anybody.
            self._held = None
            self._held_bytes = 0
            self.out = None

    def _close(self, effect: Close) -> None:
        out, self.out = self.out, None
        if out is not None:
            framed = b"".join(out)
            self._desk.counters.bytes_sent += len(framed)
            self._transport.write(framed)
        self._page_bytes = 0
        self._transport.close(effect.code, effect.reason)

    # Counting.

    def _count_refusal(self, refusal: FrameRefusal) -> None:
        counters = self._desk.counters
        if refusal.is_unknown_type:
            counters.frames_unknown += 1
        else:
            counters.frames_invalid += 1
            _logger.info(
                "frame refused",
                extra={
                    **self._names(),
                    "code": refusal.code,
                    "type": refusal.frame_type,
                    FLOOD_KEY: self.core.user_id,
                },
            )

    def _report(self, report: Report) -> None:
        counters = self._desk.counters
        match report:
            case Report.TYPING_DROPPED:
                counters.typing_dropped += 1
            case Report.FLOOD_DROPPED:
                counters.frames_flood_dropped += 1
            case Report.BACKLOG:
                counters.backlogs += 1
                self._log_slow("connection is slow")
            case Report.SLOW_CONSUMER:
                counters.slow_consumers += 1
                self._log_slow("connection is too slow")

    def _log_slow(self, sentence: str) -> None:
        _logger.warning(
            sentence,
            extra={
                **self._names(),
                "unsent_bytes": self._transport.unsent_bytes(),
                FLOOD_KEY: self.core.user_id,
            },
        )

    def _names(self) -> dict[str, object]:
        """Whom a line in the log is about."""
        return {
            "connection_id": self.core.connection_id,
            "user_id": self.core.user_id,
            "device_id": self.core.device_id,
            "client_ip": self.admission.client_ip,
        }


_CONFORMS: type[SocketListener] = ConnectionDriver
