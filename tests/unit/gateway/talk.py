"""A connection's core on a test bench: short words for what happens to it, and a clock."""

from tests.unit.gateway.fakes import CHAT, DEVICE, WALL_MS, Submit, Wanted
from tidewire.domain.chats import ChatType
from tidewire.domain.delivery import Advance, DigestEntry, DigestPage
from tidewire.domain.errors import ErrorCode, TidewireError
from tidewire.domain.ids import ChatId, ClientMessageId, ConnectionId, MessageId, UserId
from tidewire.domain.messages import Appended, AppendOutcome, Message, MessagePage
from tidewire.gateway.connection import Connection, Rules
from tidewire.gateway.effects import CLOSING, Effects, Send, State
from tidewire.gateway.options import GatewayOptions
from tidewire.gateway.pages import DigestRun
from tidewire.gateway.service import send_limiter
from tidewire.wire.client_frames import ClientFrame, SubmitFrame
from tidewire.wire.codec import FrameRefusal
from tidewire.wire.error_table import CloseReason
from tidewire.wire.server_frames import SendMessageAckFrame

START_MS = 1_000_000
TOKEN_MS = 3_600_000
STORED = Appended(MessageId("msg_1"), 7, 6, WALL_MS - 5, False)


class Talk:
    """One connection, from the start; READY if it is made by `ready`."""

    def __init__(
        self,
        options: GatewayOptions | None = None,
        *,
        token_ms: int = TOKEN_MS,
        connection_id: str = "conn_1",
    ) -> None:
        options = GatewayOptions() if options is None else options
        self.now_ms = START_MS
        self._numbers: dict[str, int] = {}
        self.core = Connection(
            Rules(options, epoch="epoch_1", sends=send_limiter(options)),
            connection_id=ConnectionId(connection_id),
            user_id=UserId("user_1"),
            device_id=DEVICE,
            token_ends_at_ms=START_MS + token_ms,
            now_ms=START_MS,
        )

    @classmethod
    def ready(cls, options: GatewayOptions | None = None, *, token_ms: int = TOKEN_MS) -> "Talk":
        talk = cls(options, token_ms=token_ms)
        talk.core.opened()
        talk.digest_page()
        talk.core.drained()
        return talk

    @property
    def wall_ms(self) -> int:
        return WALL_MS + self.now_ms - START_MS

    def receive(self, frame: ClientFrame | FrameRefusal) -> Wanted:
        received = self.core.receive(frame, self.now_ms, self.wall_ms)
        if isinstance(received, int):
            assert isinstance(frame, SubmitFrame)
            self._numbers[frame.request_id] = received
            return (Submit(frame, received),)
        return (received,) if isinstance(received, Advance) else received

    def stored(self, frame: SubmitFrame, outcome: AppendOutcome = STORED) -> Effects:
        number = self._numbers[frame.request_id]
        answer = self.core.submitted(frame, number, outcome, self.now_ms, self.wall_ms)
        return (Send(answer),) if isinstance(answer, SendMessageAckFrame) else answer

    def page(self, *sequences: int, has_more: bool = False) -> Effects:
        return self.core.page_fetched(message_page(*sequences, has_more=has_more), self.wall_ms)

    def page_failed(self, error: TidewireError) -> Effects:
        return self.core.page_fetched(error, self.wall_ms)

    def digest_page(self, next_chat_id: str | None = None) -> Effects:
        return self.core.digest_fetched(digest_page(next_chat_id), self.wall_ms)

    def digest_failed(self, error: TidewireError) -> Effects:
        return self.core.digest_fetched(error, self.wall_ms)

    def end(self, reason: CloseReason, delay_ms: int | None = None) -> Effects:
        return self.core.end(reason, self.now_ms, self.wall_ms, delay_ms=delay_ms)

    def outbound(self, unsent_bytes: int) -> Effects:
        return self.core.outbound(unsent_bytes, self.now_ms, self.wall_ms)

    def tick_after(self, ms: int) -> Effects:
        """Let time pass, with a tick at every deadline on the way; what the last one gave."""
        end_ms = self.now_ms + ms
        effects: Effects = ()
        while (deadline_ms := self.core.next_deadline_ms()) is not None and deadline_ms <= end_ms:
            self.now_ms = max(self.now_ms, deadline_ms)
            effects = self.core.tick(self.now_ms, self.wall_ms)
        self.now_ms = end_ms
        return effects


def message_page(*sequences: int, has_more: bool = False) -> MessagePage:
    messages = [
        Message(
            CHAT,
            sequence,
            sequence - 1,
            MessageId(f"msg_{sequence}"),
            UserId("user_2"),
            ClientMessageId(f"{sequence:08x}-0000-4000-8000-000000000000"),
            "hello",
            "text/plain",
            WALL_MS,
        )
        for sequence in sequences
    ]
    synced_through = sequences[-1] if sequences else 0
    return MessagePage(messages, synced_through, has_more, synced_through + has_more)


def digest_page(next_chat_id: str | None = None) -> DigestPage:
    entry = DigestEntry(CHAT, ChatType.DIRECT, 9, 1, 0, 9, 8, 7, 6, 1)
    return DigestPage([entry], None if next_chat_id is None else ChatId(next_chat_id))


def refusal(
    request_id: str | None = None,
    *,
    code: ErrorCode = ErrorCode.INVALID_MESSAGE,
    counts: bool = True,
    is_unknown: bool = False,
) -> FrameRefusal:
    return FrameRefusal(
        code=code,
        message="no",
        request_id=request_id,
        counts_against_budget=counts,
        frame_type="odd",
        is_unknown_type=is_unknown,
    )


def check_connection(core: Connection) -> None:
    """What must hold between any two calls."""
    lane = core._lane
    assert 0 <= core._sends_waiting <= core._requests_waiting
    assert core._requests_waiting <= core._rules.options.requests_waiting_max
    assert not lane.is_draining or lane.current is not None
    match core.state:
        case State.CONNECTING:
            assert core._requests_waiting == 0
            assert isinstance(lane.current, DigestRun)
            assert len(lane) == 1
        case State.READY:
            # Besides what was asked for: the digest that comes unasked, and what drains.
            assert len(lane) <= core._requests_waiting - core._sends_waiting + 2
        case State.CLOSING | State.CLOSED:
            assert len(lane) == 0
    if core._linger_until_ms is not None:
        assert core.state is CLOSING
        assert core._sends_waiting > 0
