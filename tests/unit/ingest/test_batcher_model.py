"""The batcher against a naive model: a plain list that is searched from end to end every time.

Every call is made on both, and both must give the same batch and the same answers. Besides, what
the rules are for is checked on the stored messages: each send is answered exactly once, one message
per key, the order of a line is its arrival order, and nothing is left when all is done.
"""

from dataclasses import dataclass
from itertools import product

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from tests.unit.ingest.invariants import check_batcher
from tidewire.domain.errors import (
    CounterMissing,
    DeadlinePassed,
    KeyReused,
    NotAMember,
    Overloaded,
    StoreUnavailable,
    Unavailable,
)
from tidewire.domain.ids import ChatId, ClientMessageId, ConnectionId, MessageId, UserId
from tidewire.domain.messages import Appended, AppendOutcome, SendMessage
from tidewire.ingest.batcher import Answers, Batch, Batcher
from tidewire.ingest.options import IngestOptions

Key = tuple[ChatId, ClientMessageId]
Line = tuple[ConnectionId, ChatId]

# Few of each, so that keys and lines meet often; one draw a wish, so that it stays quick.
Wish = tuple[str, str, str, str, str | None, int]
WISHES: list[Wish] = list(
    product(
        ["chat_1", "chat_1", "chat_2"],
        "abcdefgh",
        ["anna", "anna", "anna", "bert"],
        ["short", "short", "short", "long", "wide"],
        [None, "phone", "phone", "laptop"],
        [5, 10, 20, 40],
    )
)
CONTENTS = {"short": "x", "long": "y" * 1500, "wide": "ü" * 1000}


def wish_at(index: int) -> Wish:
    return WISHES[index]


@dataclass(eq=False)
class Sent:
    """A send in the model; its number is its place in the order of arrival."""

    number: int
    send: SendMessage
    deadline_ms: int
    batch: Batch[int] | None = None
    is_answered: bool = False
    is_out: bool = False

    @property
    def key(self) -> Key:
        return self.send.chat_id, self.send.client_message_id

    @property
    def line(self) -> Line | None:
        origin = self.send.origin_connection_id
        return None if origin is None else (origin, self.send.chat_id)

    @property
    def is_queued(self) -> bool:
        return self.batch is None and not self.is_out

    def says(self) -> tuple[str, ...]:
        return (*self.key, self.send.sender_id, self.send.content, self.send.content_type)


class StoreModel:
    """Messages as the contract of `MessageStore.append` has them."""

    def __init__(self) -> None:
        self.stored: dict[Key, tuple[Sent, Appended]] = {}
        self.last_number_by_line: dict[Line, int] = {}

    def append(self, sent: Sent) -> AppendOutcome:
        if sent.key in self.stored:
            first, answer = self.stored[sent.key]
            if first.send.sender_id != sent.send.sender_id:
                return KeyReused()
            if first.says() != sent.says():
                return KeyReused(answer)
            return Appended(answer.message_id, answer.sequence, answer.prev_sequence, 5, True)
        sequence = len(self.stored) + 1
        answer = Appended(sent.send.message_id, sequence, sequence - 1, 5, False)
        self.stored[sent.key] = (sent, answer)
        if sent.line is not None:
            assert self.last_number_by_line.get(sent.line, -1) < sent.number, "out of order"
            self.last_number_by_line[sent.line] = sent.number
        return answer


class BatcherMachine(RuleBasedStateMachine):
    @initialize(
        per_chat=st.booleans(),
        batch_sends_max=st.integers(1, 6),
        queue_sends_max=st.integers(4, 20),
        queue_chat_sends_max=st.integers(2, 12),
        appends_in_flight_max=st.integers(1, 3),
    )
    def begin(
        self,
        per_chat: bool,
        batch_sends_max: int,
        queue_sends_max: int,
        queue_chat_sends_max: int,
        appends_in_flight_max: int,
    ) -> None:
        self.options = IngestOptions(
            batch_sends_max=batch_sends_max,
            batch_bytes_max=4096,
            queue_sends_max=queue_sends_max,
            queue_chat_sends_max=queue_chat_sends_max,
            appends_in_flight_max=appends_in_flight_max,
        )
        self.per_chat = per_chat
        self.batcher: Batcher[int] = Batcher(self.options, per_chat=per_chat)
        self.now_ms = 0
        self.all_sent: list[Sent] = []
        self.batches: list[Batch[int]] = []
        self.store = StoreModel()
        self.suspects: dict[ChatId, int] = {}
        self.failed_lines: set[Line | None] = set()
        """Whose failures are decided and not told yet."""

    # The model.

    def queued(self) -> list[Sent]:
        return [sent for sent in self.all_sent if sent.is_queued]

    def in_flight(self, batch: Batch[int]) -> list[Sent]:
        return [sent for sent in self.all_sent if sent.batch is batch]

    def lane_of(self, send: SendMessage) -> ChatId | None:
        return send.chat_id if self.per_chat else None

    def expected_batch(self, lane: ChatId | None) -> list[Sent]:
        alive = [sent for sent in self.all_sent if not sent.is_out]
        picked: list[Sent] = []
        held_lines = []
        for sent in self.queued():
            if self.lane_of(sent.send) != lane:
                continue
            if len(picked) == self.options.batch_sends_max:
                break
            is_waiting = any(
                other.key == sent.key and other.number < sent.number for other in alive
            )
            if is_waiting or (sent.line is not None and sent.line in held_lines):
                held_lines.append(sent.line)
                continue
            if sent.send.chat_id in self.suspects:
                if not picked:
                    return [sent]
                continue
            if sum(len(one.send.content.encode()) for one in [*picked, sent]) > 4096:
                break
            picked.append(sent)
        return picked

    def check_answers(self, answers: Answers[int], expected: dict[int, AppendOutcome]) -> None:
        assert len({number for number, _ in answers}) == len(answers)
        for number, _ in answers:
            assert not self.all_sent[number].is_answered, "answered twice"
            self.all_sent[number].is_answered = True
            if self.all_sent[number].is_queued:
                self.all_sent[number].is_out = True
        actual = dict(answers)
        assert actual.keys() == expected.keys()
        for number, outcome in expected.items():
            if isinstance(outcome, DeadlinePassed):
                assert isinstance(actual[number], DeadlinePassed)
            else:
                assert actual[number] == outcome

    def acquit(self, sent: Sent) -> None:
        left = self.suspects.pop(sent.send.chat_id, 1) - 1
        if left > 0:
            self.suspects[sent.send.chat_id] = left

    def land(self, batch: Batch[int]) -> None:
        for sent in self.in_flight(batch):
            sent.batch = None
            sent.is_out = True
        self.batches.remove(batch)

    # What may happen.

    @rule(wishes=st.lists(st.integers(0, len(WISHES) - 1).map(wish_at), min_size=1, max_size=8))
    def offer(self, wishes: list[Wish]) -> None:
        for wish in wishes:
            self.offer_one(*wish)

    def offer_one(
        self, chat: str, key: str, sender: str, content: str, line: str | None, patience_ms: int
    ) -> None:
        number = len(self.all_sent)
        send = SendMessage(
            chat_id=ChatId(chat),
            sender_id=UserId(sender),
            client_message_id=ClientMessageId(key),
            content=CONTENTS[content],
            message_id=MessageId(f"msg_{number}"),
            origin_connection_id=None if line is None else ConnectionId(line),
        )
        lane = self.batcher._lanes.get(self.lane_of(send))
        lane_room = self.options.queue_chat_sends_max if self.per_chat else 1 << 30
        is_full = self.batcher.queued_count >= self.options.queue_sends_max
        is_lane_full = lane is not None and len(lane.queue) >= lane_room
        sent = Sent(number, send, self.now_ms + patience_ms)
        is_failed = sent.line is not None and sent.line in self.failed_lines
        if is_full or is_lane_full or is_failed:
            with pytest.raises(Unavailable if is_failed else Overloaded):
                self.batcher.offer(send, number, sent.deadline_ms)
            self.failed_lines.add(sent.line)
        else:
            self.batcher.offer(send, number, sent.deadline_ms)
            self.all_sent.append(sent)

    @rule()
    def answers_given(self) -> None:
        self.batcher.answers_given()
        self.failed_lines.clear()

    @rule()
    def take(self) -> None:
        can_take = self.batcher.can_take()
        batch = self.batcher.take()
        busy = [self.lane_of(batch.sends[0]) for batch in self.batches]
        if batch is None:
            assert not can_take
            idle = [sent for sent in self.queued() if self.lane_of(sent.send) not in busy]
            assert not idle or len(self.batches) == self.options.appends_in_flight_max
            return
        assert can_take
        lane = self.lane_of(batch.sends[0])
        assert lane not in busy
        expected = self.expected_batch(lane)
        assert [entry.token for entry in batch.entries] == [sent.number for sent in expected]
        assert batch.sends == [sent.send for sent in expected]
        for sent in expected:
            sent.batch = batch
        self.batches.append(batch)

    @precondition(lambda self: self.batches)
    @rule(data=st.data(), broken_chat=st.sampled_from([None, None, "chat_1"]))
    def complete(self, data: st.DataObject, broken_chat: str | None) -> None:
        batch = data.draw(st.sampled_from(self.batches), label="batch")
        outcomes: list[AppendOutcome] = []
        expected: dict[int, AppendOutcome] = {}
        failed_lines: dict[Line, AppendOutcome] = {}
        for sent in self.in_flight(batch):
            outcome: AppendOutcome
            if sent.send.chat_id == broken_chat:
                outcome = CounterMissing(broken_chat)
            elif data.draw(st.integers(0, 4), label="refuse if 0") == 0:
                outcome = NotAMember()
            else:
                outcome = self.store.append(sent)
            outcomes.append(outcome)
            self.acquit(sent)
            if not sent.is_answered:
                expected[sent.number] = outcome
            if isinstance(outcome, Appended):
                repeated = Appended(*_fields(outcome), True)
                same = [other for other in self.queued() if other.says() == sent.says()]
                expected |= {other.number: repeated for other in same}
            elif isinstance(outcome, Unavailable) and sent.line is not None:
                failed_lines.setdefault(sent.line, outcome)
        for sent in self.queued():
            if sent.line in failed_lines and sent.number not in expected:
                expected[sent.number] = failed_lines[sent.line]
        self.failed_lines |= failed_lines.keys()
        self.check_answers(self.batcher.completed(batch, outcomes), expected)
        self.land(batch)

    @precondition(lambda self: self.batches)
    @rule(
        data=st.data(),
        is_stored_all_the_same=st.booleans(),
        is_unexpected=st.sampled_from([False, False, True]),
    )
    def fail(self, data: st.DataObject, is_stored_all_the_same: bool, is_unexpected: bool) -> None:
        batch = data.draw(st.sampled_from(self.batches), label="batch")
        under_way = self.in_flight(batch)
        if is_stored_all_the_same:
            for sent in under_way:
                self.store.append(sent)
        lines = [sent.line for sent in under_way if sent.line is not None]
        self.failed_lines.update(lines)
        error = StoreUnavailable("away")
        expected: dict[int, AppendOutcome] = {
            sent.number: error
            for sent in [*under_way, *(sent for sent in self.queued() if sent.line in lines)]
            if not sent.is_answered
        }
        if is_unexpected:
            for sent in under_way:
                successes = 100 if len(under_way) == 1 else 1
                before = self.suspects.get(sent.send.chat_id, 0)
                self.suspects[sent.send.chat_id] = max(before, successes)
        answers = self.batcher.failed(batch, error, is_unexpected=is_unexpected)
        self.check_answers(answers, expected)
        self.land(batch)

    @rule(pause_ms=st.integers(0, 12))
    def expire(self, pause_ms: int) -> None:
        self.now_ms += pause_ms
        expected: dict[int, AppendOutcome] = {}
        lines = []
        for sent in self.all_sent:
            is_due = sent.deadline_ms <= self.now_ms
            if sent.is_queued and (is_due or (sent.line is not None and sent.line in lines)):
                expected[sent.number] = DeadlinePassed()
                lines.append(sent.line)
            elif sent.batch is not None and is_due and not sent.is_answered:
                expected[sent.number] = DeadlinePassed()
        self.failed_lines.update(lines)
        self.check_answers(self.batcher.expire(self.now_ms), expected)

    @precondition(lambda self: len(self.all_sent) > 30)
    @rule()
    def abandon(self) -> None:
        self.failed_lines.update(sent.line for sent in self.queued())
        error = Unavailable("the end")
        expected: dict[int, AppendOutcome] = {
            sent.number: error for sent in self.all_sent if not sent.is_answered
        }
        self.check_answers(self.batcher.abandon(error), expected)

    # What must hold.

    @invariant()
    def holds_together(self) -> None:
        if not hasattr(self, "batcher"):
            return
        check_batcher(self.batcher)
        waiting = [sent.deadline_ms for sent in self.all_sent if not sent.is_answered]
        next_ms = self.batcher.next_deadline_ms()
        assert not waiting or (next_ms is not None and next_ms <= min(waiting))
        assert self.batcher.is_idle == (not self.batches and not self.queued())

    def teardown(self) -> None:
        if not hasattr(self, "batcher"):
            return
        while not self.batcher.is_idle:
            self.take()
            batch = self.batches[0]
            outcomes = [self.store.append(sent) for sent in self.in_flight(batch)]
            for sent in self.in_flight(batch):
                self.acquit(sent)
            for number, _ in self.batcher.completed(batch, outcomes):
                assert not self.all_sent[number].is_answered
                self.all_sent[number].is_answered = True
                self.all_sent[number].is_out = True
            self.land(batch)
        assert all(sent.is_answered for sent in self.all_sent), "somebody was never answered"
        leftovers = (self.batcher._lanes, self.batcher._ready, self.batcher._first_by_key)
        assert not any(leftovers)
        assert (self.batcher.queued_count, self.batcher.in_flight_count) == (0, 0)


def _fields(answer: Appended) -> tuple[MessageId, int, int, int]:
    return answer.message_id, answer.sequence, answer.prev_sequence, answer.created_at_ms


TestBatcherAgainstModel = BatcherMachine.TestCase
TestBatcherAgainstModel.settings = settings(max_examples=100, stateful_step_count=30, deadline=None)
