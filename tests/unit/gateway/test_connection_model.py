"""The core against the rules it must keep whatever happens, in whatever order.

Hypothesis plays the peer, the planes behind and the clock. After every step: only documented error
codes, no push with a request_id, no answer to a one-way frame, at most one answer to a request, all
bounds, the end is final. When it is over and the connection lives: exactly one answer to each.
"""

from collections.abc import Callable
from typing import Any

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from tests.unit.gateway import fakes
from tests.unit.gateway.fakes import Submit, Wanted
from tests.unit.gateway.talk import STORED, Talk, check_connection, digest_page, message_page
from tidewire.domain.errors import (
    CursorAhead,
    KeyReused,
    NotAMember,
    SequenceAboveHead,
    StoreUnavailable,
    TidewireError,
)
from tidewire.domain.messages import AppendOutcome
from tidewire.domain.resync import ResyncReason
from tidewire.gateway.effects import (
    CLOSED,
    CLOSING,
    CONNECTING,
    READY,
    Close,
    Establish,
    FetchDigest,
    FetchPage,
    Send,
    SendPage,
    Unroute,
)
from tidewire.gateway.options import GatewayOptions
from tidewire.wire.client_frames import ONE_WAY_TYPES, ClientFrame, SubmitFrame
from tidewire.wire.codec import (
    FrameRefusal,
    decode_client_frame,
    decode_server_frame,
    encode_client_frame,
    encode_server_frame,
)
from tidewire.wire.error_table import ERROR_TABLE, CloseReason
from tidewire.wire.server_frames import (
    ChatDigestFrame,
    ConnectionClosingFrame,
    ConnectionEstablishedFrame,
    ErrorFrame,
    ServerFrame,
)

REQUESTS: list[Callable[[str], ClientFrame]] = [
    fakes.send,
    lambda request_id: fakes.send(request_id, chat_id="chat_2"),
    fakes.edit,
    fakes.delete,
    fakes.react,
    fakes.sync,
    lambda request_id: fakes.sync(request_id, chat_id="chat_2"),
    fakes.digest,
    fakes.heartbeat,
]
ONE_WAYS: list[ClientFrame] = [
    fakes.heartbeat(None),
    fakes.ack(),
    fakes.read(),
    fakes.typing_start(),
    fakes.typing_stop(),
]
NONSENSE = [
    b"",
    b"{",
    b"[]",
    b'{"type":"hello"}',
    b'{"type":"hello","request_id":"%s"}',
    b'{"type":"send_message","request_id":"%s","payload":{}}',
    b'{"type":"send_message","payload":{}}',
    b'{"type":"ack","request_id":"%s","payload":{"chat_id":"c","last_acked_sequence":-1}}',
    b'{"type":"sync_request","request_id":"%s","payload":{"chat_id":" ","last_acked_sequence":0}}',
    b'{"type":"typing_start","request_id":"%s"}',
]
OUTCOMES: list[AppendOutcome] = [STORED, NotAMember(), StoreUnavailable("no"), KeyReused(STORED)]
FAULTS: list[TidewireError] = [
    NotAMember(),
    CursorAhead(cursor=9, head=1),
    StoreUnavailable("no"),
]
LIFE_MS = 120_000


class ConnectionMachine(RuleBasedStateMachine):
    @initialize(
        waiting_max=st.sampled_from([1, 4, 30, 30]),
        invalid_max=st.sampled_from([3, 1_000, 1_000, 1_000]),
        throttled_max=st.sampled_from([5, 1_000, 1_000, 1_000]),
        control_burst=st.sampled_from([1, 50]),
        send_burst=st.integers(2, 20),
        has_pings=st.booleans(),
        is_early=st.sampled_from([False, False, False, True]),
    )
    def begin(
        self,
        waiting_max: int,
        invalid_max: int,
        throttled_max: int,
        control_burst: int,
        send_burst: int,
        has_pings: bool,
        is_early: bool,
    ) -> None:
        self.options = GatewayOptions(
            requests_waiting_max=waiting_max,
            invalid_frames_max=invalid_max,
            throttled_frames_max=throttled_max,
            control_rate_per_second=5,
            control_burst=control_burst,
            send_chat_burst=send_burst,
            ping_interval_ms=25_000 if has_pings else 0,
            outbound_bytes_max=100_000,
        )
        self.talk = Talk(self.options, token_ms=LIFE_MS)
        self.core = self.talk.core
        self.asked_count = 0
        # Requests that are not answered yet, and sends that are being stored.
        self.open_requests: set[str] = set()
        self.submitted: list[SubmitFrame] = []
        self.fetching: FetchPage | FetchDigest | None = None
        self.is_draining = False
        self.is_established = False
        self.is_routed = True
        self.is_told = False
        self.closed: Close | None = None
        self.take(self.core.opened())
        if not is_early:
            self.fetched(None, False)
            self.drained()

    # What must hold of everything that comes out.

    def take(self, effects: Wanted, *, is_one_way: bool = False) -> None:
        if self.closed is not None:
            assert effects == (), "nothing follows a close"
        for effect in effects:
            match effect:
                case Submit():
                    assert self.core.state is READY
                    self.submitted.append(effect.frame)
                case FetchPage() | FetchDigest():
                    assert self.fetching is None, "one page at a time"
                    assert not self.is_draining, "not before the last has drained"
                    self.fetching = effect
                case Establish():
                    assert not self.is_established
                    self.is_established = True
                    self.sent(effect.frame, is_one_way=is_one_way)
                    self.sent(effect.first_page, is_one_way=is_one_way)
                    self.is_draining = True
                case SendPage():
                    assert self.is_established
                    self.sent(effect.frame, is_one_way=is_one_way)
                    self.is_draining = True
                case Send():
                    self.sent(effect.frame, is_one_way=is_one_way)
                case Unroute():
                    assert self.is_routed, "it leaves once"
                    self.is_routed = False
                case Close():
                    assert self.closed is None, "it closes once"
                    assert not self.is_routed
                    assert self.is_told, "it never closes without a word"
                    self.closed = effect
                case _:
                    pass

    def sent(self, frame: ServerFrame, *, is_one_way: bool) -> None:
        assert decode_server_frame(encode_server_frame(frame)) == frame
        request_id: str | None = getattr(frame, "request_id", None)
        if isinstance(frame, ErrorFrame):
            assert frame.payload.code in ERROR_TABLE, "an error code that is not documented"
            if frame.payload.code == "RATE_LIMITED":
                details: Any = frame.payload.details
                assert details["retry_after_seconds"] >= 1
            is_behind = "after" in (frame.payload.details or {})
            if frame.payload.code == "SERVER_BUSY" and not is_behind:
                waiting_count = len(self.open_requests - {request_id})
                assert waiting_count == self.options.requests_waiting_max, "busy with nothing"
            self.is_told = True
        if isinstance(frame, ConnectionClosingFrame):
            self.is_told = True
        if isinstance(frame, ConnectionEstablishedFrame):
            assert frame.payload.protocol_version == 1
        if request_id is None:
            return
        assert not is_one_way, "an answer to a one-way frame"
        assert request_id in self.open_requests, "an answer to nothing, or a second one"
        if not isinstance(frame, ChatDigestFrame) or frame.payload.last:
            self.open_requests.remove(request_id)

    # What may happen.

    def new_request_id(self) -> str:
        self.asked_count += 1
        return f"q{self.asked_count}"

    @rule(makes=st.lists(st.sampled_from(REQUESTS), min_size=1, max_size=4))
    def requests(self, makes: list[Callable[[str], ClientFrame]]) -> None:
        for make in makes:
            self.request(make)

    def request(self, make: Callable[[str], ClientFrame]) -> None:
        request_id = self.new_request_id()
        frame = make(request_id)
        assert decode_client_frame(encode_client_frame(frame)) == frame
        if self.core.state in (CONNECTING, READY):
            self.open_requests.add(request_id)
        self.take(self.talk.receive(frame))

    @rule(frame=st.sampled_from(ONE_WAYS), times=st.integers(1, 4))
    def one_way(self, frame: ClientFrame, times: int) -> None:
        for _ in range(times):
            self.take(self.talk.receive(frame), is_one_way=True)

    @rule(raw=st.sampled_from(NONSENSE))
    def nonsense(self, raw: bytes) -> None:
        request_id = self.new_request_id()
        refusal = decode_client_frame(raw.replace(b"%s", request_id.encode()))
        assert isinstance(refusal, FrameRefusal)
        if refusal.request_id is not None and self.core.state in (CONNECTING, READY):
            self.open_requests.add(request_id)
        self.take(self.talk.receive(refusal), is_one_way=refusal.frame_type in ONE_WAY_TYPES)

    @precondition(lambda self: self.submitted)
    @rule(data=st.data(), outcome=st.sampled_from(OUTCOMES))
    def stored(self, data: st.DataObject, outcome: AppendOutcome) -> None:
        index = data.draw(st.integers(0, len(self.submitted) - 1))
        self.take(self.talk.stored(self.submitted.pop(index), outcome))

    @precondition(lambda self: self.fetching is not None)
    @rule(fault=st.none() | st.sampled_from(FAULTS), has_more=st.booleans())
    def fetched(self, fault: TidewireError | None, has_more: bool) -> None:
        fetching, self.fetching = self.fetching, None
        wall_ms = self.talk.wall_ms
        if isinstance(fetching, FetchPage):
            page = message_page(1, 2, has_more=has_more)
            self.take(self.core.page_fetched(fault or page, wall_ms))
        else:
            digest = digest_page("chat_9" if has_more else None)
            self.take(self.core.digest_fetched(fault or digest, wall_ms))

    @precondition(lambda self: self.fetching is not None or self.is_draining)
    @rule()
    def pages_catch_up(self) -> None:
        while self.fetching is not None or self.is_draining:
            if self.fetching is not None:
                self.fetched(None, False)
            else:
                self.drained()

    @precondition(lambda self: self.is_draining)
    @rule()
    def drained(self) -> None:
        self.is_draining = False
        self.take(self.core.drained())

    @rule(ms=st.integers(0, 30_000))
    def time_passes(self, ms: int) -> None:
        end_ms = self.talk.now_ms + ms
        while (deadline_ms := self.core.next_deadline_ms()) is not None and deadline_ms <= end_ms:
            self.talk.now_ms = max(self.talk.now_ms, deadline_ms)
            self.take(self.core.tick(self.talk.now_ms, self.talk.wall_ms))
        self.talk.now_ms = end_ms
        self.take(self.core.tick(end_ms, self.talk.wall_ms))

    @rule()
    def pong(self) -> None:
        self.core.heard(self.talk.now_ms)

    @rule(unsent_bytes=st.sampled_from([0, 70_000, 85_000, 100_000]))
    def backlog(self, unsent_bytes: int) -> None:
        self.take(self.talk.outbound(unsent_bytes))

    @rule()
    def planes_speak_up(self) -> None:
        self.take(self.core.resync(ResyncReason.FANOUT_OVERLOADED, 5, self.talk.wall_ms))
        above = SequenceAboveHead(sequence=9, head=1)
        self.take(self.core.position_refused(above, self.talk.wall_ms))

    @precondition(lambda self: self.submitted or self.asked_count > 12)
    @rule(reason=st.sampled_from(list(CloseReason)))
    def end(self, reason: CloseReason) -> None:
        self.take(self.talk.end(reason, delay_ms=1))

    @precondition(lambda self: self.asked_count > 12)
    @rule()
    def too_slow(self) -> None:
        self.take(self.talk.outbound(100_001))

    @precondition(lambda self: self.closed is not None or self.asked_count > 15)
    @rule()
    def lost(self) -> None:
        was_closing = self.core.state in (CLOSING, CLOSED)
        effects = self.core.lost()
        if was_closing:
            assert effects == ()
        else:
            self.take(effects)
        assert self.core.state is CLOSED
        assert not self.is_routed

    # What always holds.

    @invariant()
    def bounds_hold(self) -> None:
        check_connection(self.core)
        assert self.core.state is CLOSED or len(self.submitted) <= self.options.requests_waiting_max
        if self.core.state in (CONNECTING, READY):
            assert self.closed is None
            assert self.is_routed
            assert len(self.open_requests) <= self.options.requests_waiting_max

    @invariant()
    def established_means_ready(self) -> None:
        assert self.is_established or self.core.state is not READY

    @invariant()
    def living_connection_is_looked_after(self) -> None:
        if self.core.state in (CONNECTING, READY):
            deadline_ms = self.core.next_deadline_ms()
            assert deadline_ms is not None
            assert deadline_ms <= self.talk.now_ms + LIFE_MS

    def teardown(self) -> None:
        """Let everything come to its end; if the connection lives, everybody has his answer."""
        if not hasattr(self, "core"):
            return
        while self.submitted:
            self.take(self.talk.stored(self.submitted.pop(0)))
        self.pages_catch_up()
        if self.core.state is READY:
            assert self.open_requests == set()


ConnectionMachine.TestCase.settings = settings(
    max_examples=200, stateful_step_count=50, deadline=None
)
TestConnection = ConnectionMachine.TestCase
