"""Decides which sends go into which append, and who gets which answer. PURE.

A lane is a queue with at most one append in flight: one for everything, or one per chat, as the
store wants it (`MessageStore.appends_per_chat`). Two rules shape a batch (decision 0008):

- One send per key (chat_id, client_message_id) is under way. A later one of the same key waits
  behind it as its follower; when the first is stored, followers that say the same are answered
  with it, and otherwise the next follower takes its place and is asked of the store.
- A line is what one connection sends to one chat. Its sends are appended in arrival order, and a
  failure that may be retried also fails the later ones (P-13): else m2 would be stored before the
  retry of m1. Sends without a connection (REST) have no line. The gateway keeps a line closed
  after such a failure (decision 0008), but it learns of the failure only by the answer: until then
  the batcher refuses new sends of the line.

- If an append fails unexpectedly, one faulty send among many may be the cause, and its retry will
  come. So the chats of such a batch become suspects: their sends are appended one by one, until
  enough of them have been stored. A damaged chat is a suspect, too.

Every send is answered exactly once, with the token it was offered with. This is on the path of
every message: nothing here walks a queue per send. Only `failed`, `expire` and `abandon` do.
"""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, Generic, TypeVar

import msgspec

from tidewire.domain.errors import (
    DeadlinePassed,
    Overloaded,
    StoreDamaged,
    TidewireError,
    Unavailable,
)
from tidewire.domain.ids import ChatId, ClientMessageId, ConnectionId
from tidewire.domain.messages import Appended, AppendOutcome, SendMessage, said_by
from tidewire.ingest.options import IngestOptions

Token = TypeVar("Token")
Key = tuple[ChatId, ClientMessageId]
Line = tuple[ConnectionId, ChatId]

_NEVER_MS: Final = 1 << 62

SUSPECTS_MAX: Final = 1_024
"""How many chats are suspects at most; then the first of them is trusted again."""
_SUCCESSES_OF_THE_ACCUSED: Final = 1
_SUCCESSES_OF_THE_GUILTY: Final = 100
"""How many sends of a suspect must do no harm before it is trusted again: the first number if it
was in a batch that failed, the second if it failed alone."""


class Entry(msgspec.Struct, Generic[Token], gc=False, eq=False):
    """A queued or appended send. The garbage collector does not track it (`gc=False`): it refers to
    nothing that refers back to it, and there is one for every message."""

    send: SendMessage
    token: Token
    key: Key
    deadline_at_ms: int
    is_follower: bool = False
    """Another send of this key is before it, queued or in flight."""
    followers: "deque[Entry[Token]] | None" = None
    """Queued sends of the same key, in arrival order; only the first of a key has any."""
    is_answered: bool = False
    """Answered already. In a queue it must be skipped; in flight it must not be answered again."""


class Lane(msgspec.Struct, Generic[Token], eq=False):
    """A queue in arrival order and the append in flight. Exists only while it has either."""

    chat_id: ChatId | None
    queue: deque[Entry[Token]]
    in_flight: "Batch[Token] | None" = None


class Batch(msgspec.Struct, Generic[Token], eq=False, frozen=True):
    """What goes into one append: give `sends` to the store, then call `completed` or `failed`."""

    lane: Lane[Token]
    entries: list[Entry[Token]]
    sends: list[SendMessage]


Answers = list[tuple[Token, AppendOutcome]]


class Batcher(Generic[Token]):
    """Sends in (`offer`), batches out (`take`), outcomes in (`completed`, `failed`), answers out.

    Time is milliseconds of a monotonic clock.
    """

    def __init__(self, options: IngestOptions, *, per_chat: bool) -> None:
        self._per_chat = per_chat
        self._batch_sends_max = options.batch_sends_max
        self._batch_bytes_max = options.batch_bytes_max
        self._queue_sends_max = options.queue_sends_max
        self._lane_sends_max = options.queue_chat_sends_max if per_chat else options.queue_sends_max
        self._appends_in_flight_max = options.appends_in_flight_max
        self._lanes: dict[ChatId | None, Lane[Token]] = {}
        # Lanes with a queue and nothing in flight, longest waiting first.
        self._ready: deque[Lane[Token]] = deque()
        # The first send of every key that is queued or in flight.
        self._first_by_key: dict[Key, Entry[Token]] = {}
        self._queued_count = 0
        self._in_flight_count = 0
        # Chats whose sends are appended one by one, and how many more must do no harm.
        self._suspects: dict[ChatId, int] = {}
        # Lines with a failure that is decided but not yet told to the gateway.
        self._failed_lines: dict[Line | None, Unavailable] = {}
        # No later than the earliest deadline; made exact by `expire`.
        self._deadline_at_ms_min = _NEVER_MS

    @property
    def queued_count(self) -> int:
        """How many sends wait for an append. A follower answered early counts until its turn."""
        return self._queued_count

    @property
    def in_flight_count(self) -> int:
        """How many appends are under way."""
        return self._in_flight_count

    @property
    def is_idle(self) -> bool:
        """True if nothing is queued and nothing is in flight."""
        return not self._lanes

    def can_take(self) -> bool:
        """True if `take` would give a batch now."""
        return bool(self._ready) and self._in_flight_count < self._appends_in_flight_max

    def offer(self, send: SendMessage, token: Token, deadline_at_ms: int) -> None:
        """Queue a send. At the bound raises Overloaded, and queues nothing. Until `answers_given`,
        raises the error that an earlier send of the same line has failed with."""
        if self._failed_lines and (line := _line(send)) in self._failed_lines:
            raise self._failed_lines[line].with_traceback(None)
        chat_id = send.chat_id
        lane_id = chat_id if self._per_chat else None
        lane = self._lanes.get(lane_id)
        if self._queued_count >= self._queue_sends_max:
            raise self._fail_line(
                send, Overloaded("too many messages are waiting to be stored; send it again soon")
            )
        if lane is None:
            lane = Lane(lane_id, deque())
            self._lanes[lane_id] = lane
            self._ready.append(lane)
        elif len(lane.queue) >= self._lane_sends_max:
            raise self._fail_line(
                send, Overloaded("too many messages are waiting in this chat; send it again soon")
            )
        key = (chat_id, send.client_message_id)
        entry = Entry(send, token, key, deadline_at_ms)
        first = self._first_by_key.setdefault(key, entry)
        if first is not entry:
            entry.is_follower = True
            if first.followers is None:
                first.followers = deque()
            first.followers.append(entry)
        lane.queue.append(entry)
        self._queued_count += 1
        if deadline_at_ms < self._deadline_at_ms_min:
            self._deadline_at_ms_min = deadline_at_ms

    def answers_given(self) -> None:
        """The senders are being told all answers so far: failed lines may take sends again."""
        if self._failed_lines:
            self._failed_lines = {}

    def take(self) -> Batch[Token] | None:
        """The next batch to append; None if there is nothing to do, or enough is in flight."""
        if not self.can_take():
            return None
        lane = self._ready.popleft()
        queue = lane.queue
        queued_before = len(queue)
        entries: list[Entry[Token]] = []
        sends: list[SendMessage] = []
        held: list[Entry[Token]] = []
        held_lines: set[Line] = set()
        room_bytes = self._batch_bytes_max
        while queue and len(entries) < self._batch_sends_max:
            entry = queue.popleft()
            if entry.is_answered:
                continue
            send = entry.send
            if entry.is_follower or (held_lines and _line(send) in held_lines):
                # The later sends of its line have to wait as well.
                held.append(entry)
                if (line := _line(send)) is not None:
                    held_lines.add(line)
                continue
            if self._suspects and send.chat_id in self._suspects:
                if entries:
                    held.append(entry)
                    continue
                entries.append(entry)
                sends.append(send)
                break
            content = send.content
            room_bytes -= len(content) if content.isascii() else len(content.encode())
            if room_bytes < 0 and entries:
                queue.appendleft(entry)
                break
            entries.append(entry)
            sends.append(send)
        if held:
            queue.extendleft(reversed(held))
        # A ready lane has a first send, which is no follower and has no earlier send in its line.
        assert entries
        self._queued_count -= queued_before - len(queue)
        self._in_flight_count += 1
        batch = Batch(lane, entries, sends)
        lane.in_flight = batch
        return batch

    def completed(self, batch: Batch[Token], outcomes: Sequence[AppendOutcome]) -> Answers[Token]:
        """The answers after the store has answered a batch with one outcome per send."""
        assert batch.lane.in_flight is batch
        assert len(outcomes) == len(batch.entries)
        answers: Answers[Token] = []
        failed_lines: dict[Line | None, Unavailable] = {}
        for entry, outcome in zip(batch.entries, outcomes, strict=True):
            if not entry.is_answered:
                entry.is_answered = True
                answers.append((entry.token, outcome))
            if isinstance(outcome, StoreDamaged):
                # Otherwise the store would redo in parts every append that has a send of this chat.
                self._suspect(entry.send.chat_id, _SUCCESSES_OF_THE_GUILTY)
            elif self._suspects:
                self._acquit(entry.send.chat_id)
            if entry.followers is None:
                del self._first_by_key[entry.key]
            else:
                if isinstance(outcome, Appended):
                    _answer_equal_followers(entry, outcome, answers)
                self._leave_key(entry)
            if isinstance(outcome, Unavailable) and (line := _line(entry.send)) is not None:
                failed_lines.setdefault(line, outcome)
                self._fail_line(entry.send, outcome)
        self._landed(batch, failed_lines, answers)
        return answers

    def failed(
        self, batch: Batch[Token], error: Unavailable, *, is_unexpected: bool = False
    ) -> Answers[Token]:
        """The answers after an append failed as a whole; it is unknown what was stored.
        `is_unexpected`: one of the sends may be the reason."""
        if is_unexpected:
            is_alone = len(batch.sends) == 1
            successes = _SUCCESSES_OF_THE_GUILTY if is_alone else _SUCCESSES_OF_THE_ACCUSED
            for send in batch.sends:
                self._suspect(send.chat_id, successes)
        assert batch.lane.in_flight is batch
        answers: Answers[Token] = []
        failed_lines: dict[Line | None, Unavailable] = {}
        for entry in batch.entries:
            if not entry.is_answered:
                entry.is_answered = True
                answers.append((entry.token, error))
            self._leave_key(entry)
            if (line := _line(entry.send)) is not None:
                failed_lines[line] = error
                self._fail_line(entry.send, error)
        self._landed(batch, failed_lines, answers)
        return answers

    def next_deadline_ms(self) -> int | None:
        """When to call `expire` next; it may find nothing then, but no deadline is missed."""
        return None if self._deadline_at_ms_min == _NEVER_MS else self._deadline_at_ms_min

    def expire(self, now_ms: int) -> Answers[Token]:
        """Answer the sends that have waited too long.

        A queued send leaves, with the later ones of its line. A send in flight is answered and
        stays in flight: a deadline does not undo a commit, and a retry gets the stored answer.
        """
        answers: Answers[Token] = []
        if now_ms < self._deadline_at_ms_min:
            return answers
        passed = DeadlinePassed()
        expired_lines: set[Line] = set()

        def fate(entry: Entry[Token]) -> Unavailable | None:
            line = _line(entry.send)
            if entry.deadline_at_ms > now_ms and line not in expired_lines:
                return None
            if line is not None:
                expired_lines.add(line)
            return passed

        for lane in list(self._lanes.values()):
            _answer_in_flight(lane, now_ms, passed, answers)
            self._sweep(lane, fate, answers)
        self._tidy_lanes()
        self._deadline_at_ms_min = self._earliest_deadline_ms()
        return answers

    def abandon(self, error: Unavailable) -> Answers[Token]:
        """Answer all sends with the error and empty the queues. Sends in flight stay in flight."""
        answers: Answers[Token] = []
        for lane in list(self._lanes.values()):
            _answer_in_flight(lane, _NEVER_MS, error, answers)
            self._sweep(lane, lambda _entry: error, answers)
        self._tidy_lanes()
        self._deadline_at_ms_min = _NEVER_MS
        return answers

    def _landed(
        self,
        batch: Batch[Token],
        failed_lines: dict[Line | None, Unavailable],
        answers: Answers[Token],
    ) -> None:
        """End the flight of a batch; a failure also fails the later sends of its line."""
        lane = batch.lane
        lane.in_flight = None
        self._in_flight_count -= 1
        if failed_lines:
            self._sweep(lane, lambda entry: failed_lines.get(_line(entry.send)), answers)
        queue = lane.queue
        # Followers that were answered with the first of their key are usually at the front.
        while queue and queue[0].is_answered:
            queue.popleft()
            self._queued_count -= 1
        if queue:
            self._ready.append(lane)
        else:
            del self._lanes[lane.chat_id]
            if not self._lanes:
                self._deadline_at_ms_min = _NEVER_MS

    def _suspect(self, chat_id: ChatId, successes: int) -> None:
        """Append the sends of this chat one by one, until `successes` of them did no harm."""
        suspects = self._suspects
        suspects[chat_id] = max(successes, suspects.pop(chat_id, 0))
        if len(suspects) > SUSPECTS_MAX:
            del suspects[next(iter(suspects))]

    def _acquit(self, chat_id: ChatId) -> None:
        """Count a send of this chat that has done no harm."""
        left = self._suspects.get(chat_id)
        if left is None:
            return
        if left > 1:
            self._suspects[chat_id] = left - 1
        else:
            del self._suspects[chat_id]

    def _fail_line(self, send: SendMessage, error: Unavailable) -> Unavailable:
        """Refuse the line of a send until its sender is told of the error. Returns the error."""
        if send.origin_connection_id is not None:
            self._failed_lines.setdefault(_line(send), error)
        return error

    def _leave_key(self, entry: Entry[Token]) -> None:
        """Remove the entry from its key: if it was the first, the next follower takes its place."""
        if entry.is_follower:
            followers = self._first_by_key[entry.key].followers
            assert followers is not None
            # A sweep goes in arrival order, so the entry is found at the front.
            followers.remove(entry)
        elif entry.followers:
            successor = entry.followers.popleft()
            successor.is_follower = False
            successor.followers = entry.followers or None
            self._first_by_key[entry.key] = successor
        else:
            del self._first_by_key[entry.key]

    def _sweep(
        self,
        lane: Lane[Token],
        fate: Callable[[Entry[Token]], Unavailable | None],
        answers: Answers[Token],
    ) -> None:
        """Walk a queue in arrival order: a send for which `fate` returns an error is answered with
        it and leaves the queue."""
        kept: deque[Entry[Token]] = deque()
        for entry in lane.queue:
            if entry.is_answered:
                continue
            outcome = fate(entry)
            if outcome is None:
                kept.append(entry)
                continue
            entry.is_answered = True
            answers.append((entry.token, outcome))
            self._fail_line(entry.send, outcome)
            self._leave_key(entry)
        self._queued_count -= len(lane.queue) - len(kept)
        lane.queue = kept

    def _tidy_lanes(self) -> None:
        """Forget the lanes that a sweep has emptied."""
        self._ready = deque(lane for lane in self._ready if lane.queue)
        for lane in list(self._lanes.values()):
            if not lane.queue and lane.in_flight is None:
                del self._lanes[lane.chat_id]

    def _earliest_deadline_ms(self) -> int:
        earliest_ms = _NEVER_MS
        for lane in self._lanes.values():
            in_flight = lane.in_flight.entries if lane.in_flight is not None else ()
            for entries in (in_flight, lane.queue):
                for entry in entries:
                    if not entry.is_answered and entry.deadline_at_ms < earliest_ms:
                        earliest_ms = entry.deadline_at_ms
        return earliest_ms


def _line(send: SendMessage) -> Line | None:
    origin = send.origin_connection_id
    return None if origin is None else (origin, send.chat_id)


def _answer_in_flight(
    lane: Lane[Token], until_ms: int, error: TidewireError, answers: Answers[Token]
) -> None:
    """Answer the sends in flight that are due by then. They stay in flight for their followers."""
    for entry in lane.in_flight.entries if lane.in_flight is not None else ():
        if entry.deadline_at_ms <= until_ms and not entry.is_answered:
            entry.is_answered = True
            answers.append((entry.token, error))


def _answer_equal_followers(first: Entry[Token], stored: Appended, answers: Answers[Token]) -> None:
    """Give the stored answer to followers with the same content; they leave the queue when their
    turn comes. The others stay: the store checks whether it is their key and their chat."""
    assert first.followers is not None
    repeated = msgspec.structs.replace(stored, deduplicated=True)
    others: deque[Entry[Token]] = deque()
    for follower in first.followers:
        if _says_the_same(first.send, follower.send):
            follower.is_answered = True
            answers.append((follower.token, repeated))
        else:
            others.append(follower)
    first.followers = others


def _says_the_same(one: SendMessage, other: SendMessage) -> bool:
    return one.sender_id == other.sender_id and said_by(one) == said_by(other)
