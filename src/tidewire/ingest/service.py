"""Takes messages in: checks them, has them stored in batches, answers each exactly once.

The service is the shell around the PURE batcher: it owns the timer and the callbacks, and decides
nothing about what goes together. All of it happens on one event loop.

The first send of a loop turn has batches handed to the store in the next turn, so that all sends of
a turn share a batch. Nothing waits for a batch to fill.

A batch whose append raises something that no code expected is logged and counted, and its senders
are told to send again: the key of a message makes that safe, whatever was stored. Their chats are
then appended one send at a time, so that the guilty one takes no other along. The process ends
only if the store says that it can no longer be trusted (`StoreUnusable`), breaks its contract, or
the service itself fails.
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
    """Who is told of a send that another gateway has taken in, and counts."""

    __slots__ = ("_tell",)

    def __init__(self, tell: Done) -> None:
        self._tell = tell

    def __call__(self, outcome: AppendOutcome) -> None:
        self._tell(outcome)


SERVICE: Final = "ingest"
HELD_MS_MAX: Final = 10_000
"""How long a stamp is held while the calendar is behind it."""


class Stamps:
    """The time that messages are stamped with: it follows the calendar, and does not jitter.

    `created_at` is for people; the order of messages is that of their sequences. A clock that is
    set back a little (a correction, a leap second) must not make a message look older than the one
    before it, so the last stamp is held. A clock that was far ahead and is set right again must not
    leave its mark on every message: after a while the calendar is followed again, backwards too.
    """

    __slots__ = ("_held_since_ms", "_last_ms")

    def __init__(self) -> None:
        self._last_ms = 0
        self._held_since_ms: int | None = None

    def next(self, wall_ms: int, now_ms: int) -> int:
        """The stamp of what is stored now. `now_ms` is a clock that only goes forward."""
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
    """What has happened so far, as plain numbers for the metrics. They count answers: what
    was answered too late and stored all the same stands under refused."""

    sends: int = 0
    stored: int = 0
    deduplicated: int = 0
    refused_by_code: dict[ErrorCode, int] = field(default_factory=dict)
    counter_missing: int = 0
    """How many of them because the chat has lost its counter: an operator has to act."""
    batches: int = 0
    last_batch_sends: int = 0

    @property
    def by_outcome(self) -> dict[str, int]:
        """Answers by what they said."""
        refused = {code.value.lower(): count for code, count in self.refused_by_code.items()}
        return {"stored": self.stored, "deduplicated": self.deduplicated, **refused}


@dataclass(kw_only=True, eq=False, repr=False)
class IngestService(Service):
    """The way into the store for every message, over whatever edge it came."""

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
        # Answers that are decided and not yet given, in order.
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
        """Have an entry stored, and `done` called with what became of it. It is a message, or what
        it `amends`; `base` is the edit that the author of an edit saw last.

        `done` is called exactly once, on the event loop, never before this has returned. It gets a
        refusal as a value: invalid, too large, not a member, Overloaded (at once, when too much
        is waiting), DeadlinePassed, and so on.
        Sends with the same `origin_connection_id` to one chat are stored in the order of the calls.
        `deadline_at_ms` is an instant of `Clock.monotonic_ms`; the default is `send_deadline_ms`
        from now. `is_checked`: `check_send` would find nothing, because the codec has not.
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
        """As `submit_nowait`, for a send that has its id. One that another gateway has taken in was
        limited there and is counted there."""
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

        A caller that is cancelled gives up the answer, not the message.
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
        # One error may answer many sends: each of them starts with a clean traceback.
        raise outcome.with_traceback(None)

    async def drain(self) -> None:
        """Refuse new sends, have everything stored that was taken in, answer it.

        Takes at most `drain_ms`; what is not stored by then is answered with Unavailable. Returns
        when all senders have been answered. Safe to call again.
        """
        self._is_draining = True
        # Normally nothing is left to start; a failure of ours may have left work behind.
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
        """Put the batches that may start into the hands of the store."""
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
        except Exception as error:  # noqa: BLE001 - without it nothing is stored any more
            self.tasks.service_failed(SERVICE, error)

    def _appended(self, batch: Batch[Done], outcome: list[AppendOutcome] | Exception) -> None:
        """A batch came back. The next one is handed over before the answers are given, so that the
        store never idles while we write acks. Never raises: that would be the store's trouble."""
        try:
            if isinstance(outcome, Exception):
                self._answers += self._failed(batch, outcome)
            else:
                self._answers += self._batcher.completed(batch, outcome)
        except Exception as error:  # noqa: BLE001 - a bug of ours, or the store broke its contract
            # The process ends. Until then no sender may hang.
            self.tasks.service_failed(SERVICE, error)
            if batch.lane.in_flight is batch:
                self._answers += self._batcher.failed(batch, _broken_off())
        self._hand_over()
        self._give_answers()

    def _failed(self, batch: Batch[Done], error: Exception) -> Answers[Done]:
        """An append raised this: what its senders are told."""
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
        """Note what a moderator has deleted; `context` is the request's, which knows its origin.
        The erasure of a person is noted as the one command that it is."""
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
        """Give these answers in the next turn of the loop, or with the next that are given."""
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
        """One timer for all deadlines: it is set anew only for one that is earlier."""
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
        except Exception as error:  # noqa: BLE001 - without it no send meets its deadline
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
