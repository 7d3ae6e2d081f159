"""The order of a connection, over the two cores that keep it: the connection's and the batcher's.

A client writes messages into two chats and keeps many of them on their way. Limits, a full queue,
deadlines and a store that fails refuse some of them; answers become known late. The client does as
protocol.md says: it sends the refused ones again, in the order of writing, at once or when all its
sends of the chat are answered, or it gives them up. What is stored is looked at: in each chat it is
what was written, in that order, with nothing missing in between but what was refused for good or
given up.
"""

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)

from tests.unit.gateway.fakes import Submit, Wanted, sent
from tests.unit.gateway.talk import Talk
from tidewire.domain.errors import ErrorCode, NotAMember, StoreUnavailable, TidewireError
from tidewire.domain.ids import ChatId, ClientMessageId, ConnectionId, MessageId, UserId
from tidewire.domain.messages import Appended, AppendOutcome, SendMessage
from tidewire.gateway.options import GatewayOptions
from tidewire.ingest.batcher import Answers, Batch, Batcher
from tidewire.ingest.options import IngestOptions
from tidewire.wire.client_frames import (
    EditMessageFrame,
    EditMessagePayload,
    ReactFrame,
    ReactPayload,
    SendMessageFrame,
    SendMessagePayload,
    SubmitFrame,
)
from tidewire.wire.error_table import ERROR_TABLE
from tidewire.wire.server_frames import ErrorFrame, SendMessageAckFrame

CHATS = (ChatId("chat_1"), ChatId("chat_2"))
Written = tuple[ChatId, int]
"""A message: its chat, and its place among those written into it."""


def frame_of(chat_id: ChatId, place: int, request_id: str, *, is_first: bool) -> SubmitFrame:
    """Every kind of entry is in the line: each third is an edit, each fifth a reaction."""
    the_key = key(chat_id, place)
    if place % 3 == 2:
        return EditMessageFrame(
            request_id=request_id,
            payload=EditMessagePayload(
                client_message_id=the_key,
                chat_id=chat_id,
                is_first=is_first,
                target=1,
                content="x",
            ),
        )
    if place % 5 == 4:
        return ReactFrame(
            request_id=request_id,
            payload=ReactPayload(
                client_message_id=the_key,
                chat_id=chat_id,
                is_first=is_first,
                target=1,
                emoji="x",
            ),
        )
    return SendMessageFrame(
        request_id=request_id,
        payload=SendMessagePayload(
            client_message_id=the_key, chat_id=chat_id, is_first=is_first, content="x"
        ),
    )


class LinesMachine(RuleBasedStateMachine):
    @initialize(per_chat=st.booleans(), queue=st.integers(2, 6), waiting=st.integers(3, 8))
    def begin(self, per_chat: bool, queue: int, waiting: int) -> None:
        self.talk = Talk.ready(
            GatewayOptions(
                send_chat_rate_per_second=2,
                send_chat_burst=3,
                send_user_burst=5,
                requests_waiting_max=waiting,
                throttled_frames_max=100_000,
                ping_interval_ms=0,
            ),
            token_ms=1 << 40,
        )
        self.batcher: Batcher[SubmitFrame] = Batcher(
            IngestOptions(batch_sends_max=2, queue_sends_max=queue, queue_chat_sends_max=queue),
            per_chat=per_chat,
        )
        self.request_count = 0
        self.written_count = dict.fromkeys(CHATS, 0)
        self.message_of: dict[str, Written] = {}
        self.unanswered: dict[ChatId, list[str]] = {chat: [] for chat in CHATS}
        self.refused: dict[ChatId, list[int]] = {chat: [] for chat in CHATS}
        self.is_next_first = dict.fromkeys(CHATS, False)
        self.given_up: set[Written] = set()
        self.barred: set[Written] = set()
        """Refused for good."""
        self.stored: dict[ChatId, list[int]] = {chat: [] for chat in CHATS}
        self.batches: list[Batch[SubmitFrame]] = []
        self.decided: Answers[SubmitFrame] = []

    # The client.

    def send(self, chat_id: ChatId, place: int, *, is_first: bool = False) -> None:
        self.request_count += 1
        request_id = f"r{self.request_count}"
        self.message_of[request_id] = (chat_id, place)
        self.unanswered[chat_id].append(request_id)
        self.take(self.talk.receive(frame_of(chat_id, place, request_id, is_first=is_first)))

    def take(self, effects: Wanted) -> None:
        for effect in effects:
            if isinstance(effect, Submit):
                self.offer(effect.frame)
        for frame in sent(effects):
            assert isinstance(frame, SendMessageAckFrame | ErrorFrame), frame
            assert frame.request_id is not None
            chat_id, place = self.message_of[frame.request_id]
            self.unanswered[chat_id].remove(frame.request_id)
            if isinstance(frame, SendMessageAckFrame):
                continue
            if not ERROR_TABLE[ErrorCode(frame.payload.code)].retryable:
                assert (chat_id, place) in self.barred
            elif place not in self.refused[chat_id]:
                self.refused[chat_id].append(place)
            after = (frame.payload.details or {}).get("after")
            if after is not None:
                earlier = [key(chat_id, one) for one in range(place)]
                assert after in earlier, "it waits for one that was written after it"

    @rule(chat_id=st.sampled_from(CHATS), count=st.integers(1, 6))
    def write(self, chat_id: ChatId, count: int) -> None:
        """New messages; a client that knows of a refusal sends nothing new before it."""
        for _ in range(count):
            if self.refused[chat_id]:
                return
            place = self.written_count[chat_id]
            self.written_count[chat_id] += 1
            is_first, self.is_next_first[chat_id] = self.is_next_first[chat_id], False
            self.send(chat_id, place, is_first=is_first)

    @rule(chat_id=st.sampled_from(CHATS), is_first=st.booleans())
    def send_again(self, chat_id: ChatId, is_first: bool) -> None:
        if self.unanswered[chat_id] or not self.refused[chat_id]:
            return
        again, self.refused[chat_id] = sorted(self.refused[chat_id]), []
        for place in again:
            self.send(chat_id, place, is_first=is_first and place == again[0])

    @rule(chat_id=st.sampled_from(CHATS))
    def send_again_at_once(self, chat_id: ChatId) -> None:
        """Whatever becomes of those that are not answered, which may be earlier ones."""
        again, self.refused[chat_id] = sorted(self.refused[chat_id]), []
        for place in again:
            self.send(chat_id, place)

    @rule(chat_id=st.sampled_from(CHATS))
    def give_up(self, chat_id: ChatId) -> None:
        if self.unanswered[chat_id] or not self.refused[chat_id]:
            return
        self.given_up.update((chat_id, place) for place in self.refused[chat_id])
        self.refused[chat_id] = []
        self.is_next_first[chat_id] = True

    # The server.

    def offer(self, frame: SubmitFrame) -> None:
        payload = frame.payload
        send = SendMessage(
            chat_id=payload.chat_id,
            sender_id=UserId("user_1"),
            client_message_id=payload.client_message_id,
            content="x",
            message_id=MessageId(f"msg_{frame.request_id}"),
            origin_connection_id=ConnectionId("conn_1"),
        )
        try:
            self.batcher.offer(send, frame, self.talk.now_ms + 5_000)
        except TidewireError as error:
            self.decided.append((frame, error))

    @rule()
    def begin_append(self) -> None:
        batch = self.batcher.take()
        if batch is not None:
            self.batches.append(batch)

    @precondition(lambda self: self.batches)
    @rule(data=st.data(), fate=st.sampled_from(["store", "store", "fail", "vanish"]))
    def end_append(self, data: st.DataObject, fate: str) -> None:
        """`vanish`: it is stored, and the answer is lost."""
        batch = self.batches.pop(data.draw(st.integers(0, len(self.batches) - 1), label="batch"))
        if fate == "fail":
            self.decided += self.batcher.failed(batch, StoreUnavailable("away"))
            return
        outcomes: list[AppendOutcome] = []
        for one in batch.sends:
            chat_id, place = place_of(one)
            is_new = place not in self.stored[chat_id]
            if is_new and fate == "store" and data.draw(st.integers(0, 9), label="0: no") == 0:
                self.barred.add((chat_id, place))
            if (chat_id, place) in self.barred:
                outcomes.append(NotAMember())
                continue
            outcomes.append(self.store(chat_id, place))
        if fate == "vanish":
            self.decided += self.batcher.failed(batch, StoreUnavailable("gone"))
        else:
            self.decided += self.batcher.completed(batch, outcomes)

    def store(self, chat_id: ChatId, place: int) -> Appended:
        stored = self.stored[chat_id]
        is_known = place in stored
        if not is_known:
            before = [
                one
                for one in range(stored[-1] + 1 if stored else 0, place)
                if (chat_id, one) not in self.given_up | self.barred
            ]
            assert not stored or stored[-1] < place, f"{place} is stored after {stored[-1]}"
            assert not before, f"{place} is stored before {before}"
            stored.append(place)
        sequence = stored.index(place) + 1
        return Appended(MessageId(f"msg_{place}"), sequence, sequence - 1, 5, is_known)

    @rule()
    def give_answers(self) -> None:
        decided, self.decided = self.decided, []
        self.batcher.answers_given()
        for frame, outcome in decided:
            self.take(self.talk.stored(frame, outcome))

    @rule(ms=st.sampled_from([0, 100, 1_000, 5_000, 12_000]))
    def time_passes(self, ms: int) -> None:
        # Nothing is decided so late that its line is open again before its sender knows.
        while ms >= 0:
            self.give_answers()
            self.talk.now_ms += min(ms, 5_000)
            self.decided += self.batcher.expire(self.talk.now_ms)
            ms -= 5_000


def key(chat_id: ChatId, place: int) -> ClientMessageId:
    return ClientMessageId(f"{place:08x}-0000-4000-8000-00000000000{chat_id[-1]}")


def place_of(send: SendMessage) -> Written:
    return send.chat_id, int(send.client_message_id[:8], 16)


def test_order_of_writing_holds_whatever_is_refused() -> None:
    run_state_machine_as_test(
        LinesMachine, settings=settings(max_examples=80, stateful_step_count=40, deadline=None)
    )
