"""Takes messages in: checks them, has them stored in batches, answers each exactly once.

The service is the shell around the PURE batcher: it owns the timer and the callbacks, and decides
nothing about what goes together. All of it happens on one event loop.

The first send of a loop turn has batches handed to the store in the next turn, so that all sends of
a turn share a batch. Nothing waits for a batch to fill.

If the append of a batch raises an unexpected exception, the batch is logged and counted, and its
senders are told to send again: the key of a message makes that safe, whatever was stored. The sends
of their chats are then appended one at a time, so that the faulty one fails no other. The process
ends only if the store says that it can no longer be trusted (`StoreUnusable`), breaks its contract,
or the service itself fails.
"""

import asyncio
from collections.abc import Callable
from contextvars import Context, copy_context
from dataclasses import dataclass, field
from functools import partial
from typing import Final, Unpack

from msgspec.structs import replace

from tidewire.domain.audit import AuditAction
from tidewire.domain.errors import (
    CounterMissing,
    ErrorCode,
    StoreUnavailable,
    StoreUnusable,
    TidewireError,
    Unavailable,
)
from tidewire.domain.ids import SYSTEM, ChatId, ClientMessageId, ConnectionId, UserId
from tidewire.domain.messages import (
    Amendment,
    Appended,
    AppendOutcome,
    EntryKind,
    MessageBody,
    SendMessage,
    check_send,
    new_send,
)
from tidewire.ingest.batcher import Answers, Batch, Batcher
from tidewire.ingest.options import IngestOptions
from tidewire.ports.audit import NO_TRAIL, AuditTrail
from tidewire.ports.runtime import IdSource, RequestKind, Service
from tidewire.ports.services import SendFacts
from tidewire.ports.storage import Appends

Done = Callable[[AppendOutcome], None]


class Foreign:
    """The callback of a send that another gateway has taken in; that gateway counts the send."""

    __slots__ = ("_tell",)

    def __init__(self, tell: Done) -> None:
        self._tell = tell

    def __call__(self, outcome: AppendOutcome) -> None:
        self._tell(outcome)


SERVICE: Final = "ingest"
HELD_MS_MAX: Final = 10_000
"""How long a stamp is held while the wall clock is behind it."""


class Stamps:
    """The timestamps of messages: they follow the wall clock, and do not jitter.

    `created_at` is for people; the order of messages is that of their sequences. A clock that is
    set back a little (a correction, a leap second) must not make a message look older than the one
    before it, so the last stamp is held. A clock that was far ahead and is corrected must not give
    every later message a wrong time: after a while stamps follow the clock again, backwards too.
    """

    __slots__ = ("_held_since_ms", "_last_ms")

    def __init__(self) -> None:
        self._last_ms = 0
        self._held_since_ms: int | None = None

    def next(self, wall_ms: int, now_ms: int) -> int:
        """The stamp of messages that are stored now. `now_ms` is of a monotonic clock."""
        if wall_ms < self._last_ms:
            if self._held_since_ms is None:
                self._held_since_ms = now_ms
            if now_ms - self._held_since_ms < HELD_MS_MAX:
                return self._last_ms
        self._held_since_ms = None
        self._last_ms = wall_ms
        return wall_ms


@dataclass(slots=True)
class IngestCounters:
    """Plain numbers for the metrics. They count answers: a send that missed its deadline but was
    stored all the same counts as refused."""

    sends: int = 0
    stored: int = 0
    deduplicated: int = 0
    refused_by_code: dict[ErrorCode, int] = field(default_factory=dict)
    counter_missing: int = 0
    """Refusals because the chat has lost its counter: an operator has to act."""
    batches: int = 0
    last_batch_sends: int = 0

    @property
    def by_outcome(self) -> dict[str, int]:
        """The number of answers, by outcome."""
        refused = {code.value.lower(): count for code, count in self.refused_by_code.items()}
        return {"stored": self.stored, "deduplicated": self.deduplicated, **refused}


@dataclass(kw_only=True, eq=False, repr=False)
class IngestService(Service):
    """Takes every message into the store, from all edges."""

    store: Appends
    ids: IdSource
    options: IngestOptions
    edit_window_ms: int | None = None
    """For how long a message can be edited; None: always."""
    trail: AuditTrail = NO_TRAIL

    def __post_init__(self) -> None:
        super().__post_init__()
        self.counters = IngestCounters()
        self._batcher: Batcher[Done] = Batcher(self.options, per_chat=self.store.appends_per_chat)
        # Answers that are decided but not given yet, in order.
        self._answers: Answers[Done] = []
        self._is_starting = False
        self._is_draining = False
        self._drained = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at_ms = 0
        self._stamps = Stamps()

    @property
    def queued_count(self) -> int:
        """How many sends wait for an append."""
        return self._batcher.queued_count

    @property
    def in_flight_count(self) -> int:
        """How many appends are under way."""
        return self._batcher.in_flight_count

    def submit_nowait(
        self,
        body: MessageBody,
        *,
        chat_id: ChatId,
        sender_id: UserId,
        client_message_id: ClientMessageId,
        done: Done,
        seen_sequence: int | None = None,
        origin_connection_id: ConnectionId | None = None,
        deadline_at_ms: int | None = None,
        is_checked: bool = False,
        amends: Amendment | None = None,
        base: int | None = None,
    ) -> None:
        """Have an entry stored, and `done` called with the outcome. The entry is a message, or with
        `amends` an amendment; `base` is the edit that the author of an edit saw last.

        `done` is called exactly once, on the event loop, never before this has returned. It gets a
        refusal as a value: invalid, too large, not a member, Overloaded (at once, when too much
        is waiting), DeadlinePassed, and so on.
        Sends with the same `origin_connection_id` to one chat are stored in the order of the calls.
        `deadline_at_ms` is an instant of `Clock.monotonic_ms`; the default is `send_deadline_ms`
        from now. `is_checked`: skip `check_send`, because the codec has checked the same.
        """
        self.counters.sends += 1
        clock = self.clock
        if deadline_at_ms is None:
            deadline_at_ms = clock.monotonic_ms() + self.options.send_deadline_ms
        wall_ms = clock.wall_ms()
        send = new_send(
            body,
            chat_id=chat_id,
            sender_id=sender_id,
            client_message_id=client_message_id,
            message_id=self.ids.message_id(wall_ms),
            seen_sequence=seen_sequence,
            origin_connection_id=origin_connection_id,
        )
        if amends is not None:
            since_ms = self._targets_since_ms(amends, wall_ms)
            send = replace(send, amends=amends, base=base, targets_since_ms=since_ms)
            if amends.kind is EntryKind.DELETE:
                done = partial(self._deleted, send, done, copy_context())
        self.take_nowait(send, done=done, deadline_at_ms=deadline_at_ms, is_checked=is_checked)

    def take_nowait(
        self,
        send: SendMessage,
        *,
        done: Done,
        deadline_at_ms: int,
        is_checked: bool = False,
    ) -> None:
        """As `submit_nowait`, for a send that has its id. A send that another gateway has taken in
        was limited there and is counted there."""
        if self._is_draining:
            self._answer_soon([(done, _shutting_down())])
            return
        try:
            if not is_checked:
                check_send(send)
            self._batcher.offer(send, done, deadline_at_ms)
        except TidewireError as refusal:
            self._answer_soon([(done, refusal)])
            return
        if self._timer is None or deadline_at_ms < self._timer_at_ms:
            self._set_timer(deadline_at_ms)
        if not self._is_starting and self._batcher.can_take():
            # In the next turn of the loop: all sends of this turn share the batches.
            self._is_starting = True
            self._loop.call_soon(self._hand_over)

    async def send(
        self,
        body: MessageBody,
        *,
        chat_id: ChatId,
        sender_id: UserId,
        client_message_id: ClientMessageId,
        **facts: Unpack[SendFacts],
    ) -> Appended:
        """As `submit_nowait`, but waits for the answer and raises the refusal.

        If the caller is cancelled, the answer is lost but the message may still be stored.
        """
        answer: asyncio.Future[AppendOutcome] = self._loop.create_future()
        self.submit_nowait(
            body,
            chat_id=chat_id,
            sender_id=sender_id,
            client_message_id=client_message_id,
            done=partial(_resolve, answer),
            **facts,
        )
        outcome = await answer
        if isinstance(outcome, Appended):
            return outcome
        # One error may answer many sends, so each raise starts with a clean traceback.
        raise outcome.with_traceback(None)

    async def drain(self) -> None:
        """Refuse new sends, have all sends stored that were taken in, and answer them.

        Takes at most `drain_ms`; sends not stored by then are answered with Unavailable. Returns
        when all senders have been answered. Safe to call again.
        """
        self._is_draining = True
        # Normally no batch is left to start; a bug in this service may have left one.
        self._hand_over()
        if not self._is_done:
            try:
                async with asyncio.timeout(self.options.drain_ms / 1000):
                    await self._drained.wait()
            except TimeoutError:
                self._answers += self._batcher.abandon(_shutting_down())
                self._give_answers()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    @property
    def _is_done(self) -> bool:
        return self._batcher.is_idle and not self._answers

    def _hand_over(self) -> None:
        """Hand the batches that may start to the store."""
        self._is_starting = False
        counters, clock = self.counters, self.clock
        try:
            while (batch := self._batcher.take()) is not None:
                counters.batches += 1
                counters.last_batch_sends = len(batch.sends)
                now_ms = self._stamps.next(clock.wall_ms(), clock.monotonic_ms())
                done = partial(self._appended, batch)
                try:
                    self.store.append_nowait(batch.sends, now_ms=now_ms, done=done)
                except Exception as error:  # noqa: BLE001 - it concerns this batch alone
                    self._answer_soon(self._failed(batch, error))
        except Exception as error:  # noqa: BLE001 - without the service nothing is stored any more
            self.tasks.service_failed(SERVICE, error)

    def _appended(self, batch: Batch[Done], outcome: list[AppendOutcome] | Exception) -> None:
        """The store has answered a batch. The next one is handed over before the answers are given,
        so that the store never idles while acks are written. Never raises into the store."""
        try:
            if isinstance(outcome, Exception):
                self._answers += self._failed(batch, outcome)
            else:
                self._answers += self._batcher.completed(batch, outcome)
        except Exception as error:  # noqa: BLE001 - a bug here, or the store broke its contract
            # The process ends. Until then no sender may be left without an answer.
            self.tasks.service_failed(SERVICE, error)
            if batch.lane.in_flight is batch:
                self._answers += self._batcher.failed(batch, _broken_off())
        self._hand_over()
        self._give_answers()

    def _failed(self, batch: Batch[Done], error: Exception) -> Answers[Done]:
        """The answers for the senders of a batch whose append raised this error."""
        if isinstance(error, Unavailable):
            return self._batcher.failed(batch, error)
        if isinstance(error, StoreUnusable):
            # The store cannot say what it has committed: nothing more may be acknowledged.
            self.tasks.service_failed(SERVICE, error)
            return self._batcher.failed(batch, _broken_off())
        self.tasks.request_failed(RequestKind.SEND, error)
        return self._batcher.failed(batch, _broken_off(), is_unexpected=True)

    def _targets_since_ms(self, amends: Amendment, wall_ms: int) -> int:
        window_ms = self.edit_window_ms
        is_bounded = window_ms is not None and amends.kind is EntryKind.EDIT
        return max(0, wall_ms - (window_ms or 0)) if is_bounded else 0

    def _deleted(
        self, send: SendMessage, done: Done, context: Context, outcome: AppendOutcome
    ) -> None:
        """Record a deletion by a moderator in the audit trail; `context` is the request's, which
        knows its origin. The erasure of a person is recorded as one command instead."""
        is_noted = send.amends is not None and send.sender_id != SYSTEM
        if is_noted and isinstance(outcome, Appended) and outcome.moderated is not None:
            assert send.amends is not None
            context.run(
                self.trail.record,
                AuditAction.MESSAGE_DELETED,
                actor=send.sender_id,
                target=outcome.moderated,
                chat_id=send.chat_id,
                sequence=send.amends.target,
            )
        done(outcome)

    def _answer_soon(self, answers: Answers[Done]) -> None:
        """Give these answers in the next turn of the loop, or earlier with others."""
        if answers and not self._answers:
            self._loop.call_soon(self._give_answers)
        self._answers += answers

    def _give_answers(self) -> None:
        answers, self._answers = self._answers, []
        self._batcher.answers_given()
        counters = self.counters
        for done, outcome in answers:
            if done.__class__ is Foreign:
                pass
            elif isinstance(outcome, Appended):
                if outcome.deduplicated:
                    counters.deduplicated += 1
                else:
                    counters.stored += 1
            else:
                refused = counters.refused_by_code
                refused[outcome.code] = refused.get(outcome.code, 0) + 1
                if isinstance(outcome, CounterMissing):
                    counters.counter_missing += 1
            try:
                done(outcome)
            except Exception as error:  # noqa: BLE001 - it concerns this sender alone
                self.tasks.request_failed(RequestKind.SEND, error)
        if self._is_draining and self._is_done:
            self._drained.set()

    def _set_timer(self, at_ms: int) -> None:
        """One timer serves all deadlines; it is set again only for an earlier one."""
        if self._timer is not None:
            self._timer.cancel()
        delay_ms = max(0, at_ms - self.clock.monotonic_ms())
        self._timer_at_ms = at_ms
        self._timer = self._loop.call_later(delay_ms / 1000, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        try:
            answers = self._batcher.expire(self.clock.monotonic_ms())
            if (next_ms := self._batcher.next_deadline_ms()) is not None:
                self._set_timer(next_ms)
        except Exception as error:  # noqa: BLE001 - without the timer no send meets its deadline
            self.tasks.service_failed(SERVICE, error)
        else:
            self._answer_soon(answers)


def _resolve(answer: asyncio.Future[AppendOutcome], outcome: AppendOutcome) -> None:
    if not answer.done():
        answer.set_result(outcome)


def _broken_off() -> Unavailable:
    return StoreUnavailable("the store broke off; send the same message again")


def _shutting_down() -> Unavailable:
    return Unavailable("this server is shutting down; send the same message again")
