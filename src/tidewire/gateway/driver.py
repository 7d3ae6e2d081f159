"""The shell of one connection: feeds its core and carries out what the core wants.

There may be ten thousand drivers, most of them quiet, so none has a task, timer or buffer of its
own. The frames of one turn of the loop are gathered; then the hub has them sent in one write.

An unexpected exception ends this connection, with 1011, and no other: the caller of a driver
catches it and calls `failed`, or the driver does so itself where the caller is the edge.
"""

import asyncio
import logging
from collections.abc import Coroutine
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar, assert_never

from tidewire.domain.delivery import Advance
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
    CLOSING,
    CONNECTING,
    READY,
    Close,
    Effects,
    Establish,
    FetchDigest,
    FetchPage,
    Ping,
    Report,
    Send,
    SendPage,
    Typing,
    Unroute,
)
from tidewire.gateway.options import GatewayOptions
from tidewire.ports.audit import Origin, origin_noted
from tidewire.ports.runtime import FLOOD_KEY, Clock, RequestKind, Tasks, pause
from tidewire.ports.services import Acknowledger, MessageIntake, TypingRelay
from tidewire.ports.storage import MessageStore, PositionStore
from tidewire.ports.transport import Admission, SocketListener, SocketTransport
from tidewire.wire.client_frames import (
    SUBMIT_FRAMES,
    SendMessagePayload,
    SubmitFrame,
    SyncRequestFrame,
    amendment_of,
)
from tidewire.wire.codec import (
    FrameRefusal,
    decode_client_frame,
    decode_client_frames,
    encode_server_frame,
)
from tidewire.wire.error_table import CloseCode, CloseReason
from tidewire.wire.features import Feature
from tidewire.wire.framing import SEAM, frame_text, frame_together
from tidewire.wire.server_frames import ErrorFrame, SendMessageAckFrame, ServerFrame

if TYPE_CHECKING:
    from tidewire.gateway.hub import Hub

Result = TypeVar("Result")
Shared = dict[tuple[int, ...], tuple[bytes, list[bytes]]]
"""Cache of the arrays written in one turn, by the `id()` of each frame in them, because many
recipients get the same frames. It keeps the frames: an `id()` holds only while its object lives."""

PAGE_BYTES_MIN: Final = 4096
"""What reading a page costs of the page budget, besides the bytes that are sent."""
CONFIRMED_CHATS_MAX: Final = 512
"""How many first acks and reads of chats a connection remembers; then it forgets all of them."""

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Desk:
    """The services and options that all connections of a process use."""

    hub: "Hub"
    intake: MessageIntake
    acknowledger: Acknowledger
    typing: TypingRelay
    messages: MessageStore
    positions: PositionStore
    clock: Clock
    tasks: Tasks
    options: GatewayOptions
    outbound_warning_bytes: int = field(init=False)
    """From the options, computed once, because every write compares with it."""
    counters: GatewayCounters = field(init=False)
    """The hub's counters."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "outbound_warning_bytes", self.options.outbound_warning_bytes)
        object.__setattr__(self, "counters", self.hub.counters)


class ConnectionDriver:
    """Connects one socket with one core. Runs on one event loop."""

    __slots__ = (
        "_confirmed",
        "_desk",
        "_held",
        "_held_bytes",
        "_is_batching",
        "_opened_at_ms",
        "_page_bytes",
        "_pages_paid_at_ms",
        "_transport",
        "admission",
        "core",
        "has_entries",
        "out",
        "wheel_slot",
    )

    def __init__(
        self, desk: Desk, core: Connection, admission: Admission, transport: SocketTransport
    ) -> None:
        self.core = core
        self.admission = admission
        self.out: list[bytes] | None = None
        """Frames of this turn. Code that adds the first one must mark this driver at the hub."""
        self.wheel_slot = -1
        """Set by the hub: the one slot of its wheel that is valid for this driver; -1: none."""
        self.has_entries = Feature.ENTRIES in core.features
        """The peer knows entries that are no messages."""
        self._desk = desk
        self._transport = transport
        self._opened_at_ms = desk.clock.monotonic_ms()
        # Frames are sent in arrays, and may arrive in arrays.
        self._is_batching = Feature.BATCH in core.features
        # Frames held back until connection_established is sent; None afterwards or if it ended.
        self._held: list[bytes] | None = []
        self._held_bytes = 0
        # The size of the page that was written and has not drained yet; 0 if there is none.
        self._page_bytes = 0
        # When the page budget has paid for all pages so far, at `page_bytes_per_second`.
        self._pages_paid_at_ms = 0
        # The (chat, is_read) pairs that were acknowledged on this connection before.
        self._confirmed: set[tuple[ChatId, bool]] | None = None
        transport.tell_drained_below(desk.options.drained_bytes_max)

    # From the edge (`ports.transport.SocketListener`).

    def text_received(self, payload: bytes | memoryview) -> int:
        desk = self._desk
        core = self.core
        counters = desk.counters
        counters.bytes_received += len(payload)
        frames = (
            decode_client_frames(payload) if self._is_batching else (decode_client_frame(payload),)
        )
        now_ms, wall_ms = desk.clock.monotonic_ms(), desk.clock.wall_ms()
        count = 0
        for frame in frames:
            count += 1
            # An `isinstance` that is False takes four times as long.
            if type(frame) is FrameRefusal:
                self._count_refusal(frame)
            else:
                kind, received = type(frame), counters.frames_received
                received[kind] = received.get(kind, 0) + 1
            try:
                wanted = core.receive(frame, now_ms, wall_ms)
                if isinstance(wanted, int):
                    assert isinstance(frame, SUBMIT_FRAMES)
                    self._submit(frame, wanted, now_ms)
                elif isinstance(wanted, Advance):
                    self._acknowledge(wanted)
                elif wanted:
                    self._run(wanted, now_ms)
            except Exception as error:  # noqa: BLE001 - it concerns this connection alone
                self.failed(error)
            if core.state is CLOSING:
                # The core would ignore the rest of an array.
                break
        return count

    def pong_received(self) -> None:
        self.core.heard(self._desk.clock.monotonic_ms())

    def drained(self) -> None:
        """Go on with the next page if the last one has gone out."""
        is_written = self._page_bytes > 0 and self.out is None
        if not is_written or self.unsent_bytes() > self._desk.options.drained_bytes_max:
            return
        self._page_bytes = 0
        self._run(self.core.drained(), self._desk.clock.monotonic_ms())

    def overrun(self) -> None:
        self.end(CloseReason.RATE_LIMITED)

    def lost(self, *, is_closed_by_peer: bool = False) -> None:
        desk = self._desk
        now_ms = desk.clock.monotonic_ms()
        try:
            self._run(self.core.lost(), now_ms)
        except Exception as error:  # noqa: BLE001 - it concerns this connection alone
            desk.tasks.request_failed(RequestKind.CONNECTION, error, self._names())
            desk.hub.unroute(self)
        self.out = None
        self._held = None
        went = "closed_by_client" if is_closed_by_peer else "lost"
        reason = self.core.close_reason or went
        add(desk.counters.connections_by_status, reason)
        desk.hub.ended(self)
        _logger.info(
            "connection ended",
            extra={**self._names(), "reason": reason, "open_ms": now_ms - self._opened_at_ms},
        )

    # From the hub.

    def failed(self, error: Exception) -> None:
        """Log and count an unexpected exception, and end this connection."""
        self._desk.tasks.request_failed(RequestKind.CONNECTION, error, self._names())
        self.break_off(error)

    def break_off(self, _: Exception) -> None:
        """End this connection with 1011, whatever state it is in."""
        clock = self._desk.clock
        try:
            self._run(self.core.broken(clock.wall_ms()), clock.monotonic_ms())
        except Exception as error:  # noqa: BLE001 - then close without the core
            self._desk.tasks.request_failed(RequestKind.CONNECTION, error, self._names())
            self._desk.hub.unroute(self)
            self.out = self._held = None
            self._page_bytes = 0
            self._transport.close(CloseCode.INTERNAL_ERROR, ErrorCode.INTERNAL_ERROR)

    def begin(self) -> None:
        """Begin the conversation: the route is registered."""
        self._run(self.core.opened(), self._opened_at_ms)
        self._desk.hub.schedule(self)

    def is_connecting(self) -> bool:
        """True until the connection is established or ends."""
        return self.core.state is CONNECTING

    def end(self, reason: CloseReason, *, delay_ms: int | None = None) -> None:
        """Close the connection, after saying why."""
        clock = self._desk.clock
        now_ms = clock.monotonic_ms()
        self._run(self.core.end(reason, now_ms, clock.wall_ms(), delay_ms=delay_ms), now_ms)
        # If it lingers, `tick` must end it after its grace.
        self._desk.hub.schedule(self)

    def tick(self, now_ms: int, wall_ms: int) -> None:
        """Act on a deadline that may have passed."""
        effects = self.core.tick(now_ms, wall_ms)
        if effects:
            self._run(effects, now_ms)
        self._desk.hub.schedule(self)

    def resync(self, reason: ResyncReason, delay_ms: int) -> None:
        clock = self._desk.clock
        self._run(self.core.resync(reason, delay_ms, clock.wall_ms()), clock.monotonic_ms())

    def position_refused(self, refusal: SequenceAboveHead) -> None:
        clock = self._desk.clock
        self._run(self.core.position_refused(refusal, clock.wall_ms()), clock.monotonic_ms())

    def is_first_confirmation(self, chat_id: ChatId, *, is_read: bool) -> bool:
        """True at the first call for this chat and kind, as far as remembered."""
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

    def flush(self, shared: Shared) -> None:
        """Write the frames of this turn, and check whether the peer keeps up."""
        out = self.out
        if out is None:
            return
        self.out = None
        if self._held is not None:
            self._hold(out, self._held)
            return
        if len(out) == 1:
            framed = out[0]
        elif not self._is_batching or self.core.state is not READY:
            # From connection_closing on, frames are not put into arrays.
            framed = b"".join(out)
        elif SEAM in out:
            # A page goes to one connection only, so it is not shared.
            framed = frame_together(out)
        else:
            key = tuple(map(id, out))
            known = shared.get(key)
            if known is None:
                known = shared[key] = frame_together(out), out
            framed = known[0]
        transport = self._transport
        transport.write(framed)
        desk = self._desk
        desk.counters.bytes_sent += len(framed)
        unsent_bytes = transport.unsent_bytes()
        if self._page_bytes:
            self.drained()
        unsent_bytes -= self._page_bytes
        if unsent_bytes >= desk.outbound_warning_bytes or self.core.is_backlogged:
            self._outbound(unsent_bytes)

    # What the core wants.

    def _run(self, effects: Effects, now_ms: int) -> None:
        for effect in effects:
            match effect:
                case Send():
                    self._write(self._framed(effect.frame))
                case SendPage():
                    framed = self._framed(effect.frame)
                    self._page_bytes = len(framed)
                    self._pay(len(framed), now_ms)
                    self._write_alone(framed)
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

    def _submit(self, frame: SubmitFrame, number: int, now_ms: int) -> None:
        payload = frame.payload
        core = self.core
        desk = self._desk
        desk.acknowledger.hasten(core.user_id, payload.chat_id)
        if isinstance(payload, SendMessagePayload):
            desk.intake.submit_nowait(
                payload,
                chat_id=payload.chat_id,
                sender_id=core.user_id,
                client_message_id=payload.client_message_id,
                done=partial(self._submitted, frame, number, now_ms),
                seen_sequence=payload.seen_sequence,
                origin_connection_id=core.connection_id,
                is_checked=True,
            )
            return
        body, amends, base = amendment_of(payload)
        # For the audit trail, because a moderator may be the one who deletes.
        with origin_noted(Origin(self.admission.client_ip)):
            desk.intake.submit_nowait(
                body,
                chat_id=payload.chat_id,
                sender_id=core.user_id,
                client_message_id=payload.client_message_id,
                done=partial(self._submitted, frame, number, now_ms),
                origin_connection_id=core.connection_id,
                is_checked=True,
                amends=amends,
                base=base,
            )

    def _submitted(
        self, frame: SubmitFrame, number: int, received_at_ms: int, outcome: AppendOutcome
    ) -> None:
        desk = self._desk
        now_ms = desk.clock.monotonic_ms()
        desk.counters.send_latency_ms.add(now_ms - received_at_ms)
        try:
            answer = self.core.submitted(frame, number, outcome, now_ms, desk.clock.wall_ms())
            if isinstance(answer, SendMessageAckFrame):
                self._write(self._framed(answer))
            else:
                self._run(answer, now_ms)
        except Exception as error:  # noqa: BLE001 - it concerns this connection alone
            self.failed(error)

    def _acknowledge(self, wish: Advance) -> None:
        desk = self._desk
        is_taken = desk.acknowledger.acknowledge_nowait(self.core.connection_id, wish)
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
        """Wait until the page budget allows another page; False if the connection ended."""
        desk = self._desk
        now_ms = desk.clock.monotonic_ms()
        wait_ms = self._pages_paid_at_ms - now_ms - desk.options.page_slack_ms
        if wait_ms > 0:
            await pause(wait_ms)
        self._pay(PAGE_BYTES_MIN, desk.clock.monotonic_ms())
        return self.core.state is CONNECTING or self.core.state is READY

    def _pay(self, page_bytes: int, now_ms: int) -> None:
        """Charge the page budget for a page's bytes, or for reading a page."""
        paid_at_ms = max(self._pages_paid_at_ms, now_ms)
        cost_ms = -(-page_bytes * 1000 // self._desk.options.page_bytes_per_second)
        self._pages_paid_at_ms = paid_at_ms + cost_ms

    async def _within_time(
        self, kind: RequestKind, reading: Coroutine[object, object, Result]
    ) -> Result | TidewireError:
        """What was read, or the error to answer with: INTERNAL_ERROR for an unexpected one."""
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
            self._desk.hub.mark(self)
        else:
            self.out.append(framed)

    def _write_alone(self, framed: bytes) -> None:
        if self._is_batching:
            self._write(SEAM)
            self._write(framed)
            self._write(SEAM)
        else:
            self._write(framed)

    def _establish(self, effect: Establish) -> None:
        assert self._held is not None
        first = self._framed(effect.frame)
        page = self._framed(effect.first_page)
        is_marked = self.out is not None
        seam = (SEAM,) if self._is_batching else ()
        self.out = [first, *seam, page, *seam, *self._held, *(self.out or ())]
        self._held = None
        self._held_bytes = 0
        self._page_bytes = len(page)
        self._pay(len(page), self._desk.clock.monotonic_ms())
        add(self._desk.counters.connections_by_status, "established")
        if not is_marked:
            self._desk.hub.mark(self)

    def _hold(self, out: list[bytes], held: list[bytes]) -> None:
        """Keep frames, within the bound, until connection_established has gone out first."""
        held += out
        self._held_bytes += sum(map(len, out))
        if self._held_bytes > self._desk.options.outbound_bytes_max:
            self._outbound(self._held_bytes)

    def _outbound(self, unsent_bytes: int) -> None:
        clock = self._desk.clock
        now_ms = clock.monotonic_ms()
        self._run(self.core.outbound(unsent_bytes, now_ms, clock.wall_ms()), now_ms)

    def _unroute(self) -> None:
        self._desk.hub.unroute(self)
        if self._held is not None:
            # The connection was never established, so the peer is not owed the held frames.
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
        """The fields of a log line that identify this connection."""
        return {
            "connection_id": self.core.connection_id,
            "user_id": self.core.user_id,
            "device_id": self.core.device_id,
            "client_ip": self.admission.client_ip,
        }


_CONFORMS: type[SocketListener] = ConnectionDriver
