"""Takes messages in: checks them, has them stored in batches, answers each exactly once.

The service is the shell around the PURE batcher: it owns the timer, the tasks and the callbacks,
and decides nothing about what goes together. All of it happens on one event loop.

Work is done by runners: a runner takes a batch, appends it, takes the next, and ends when there is
nothing left. The first send of a loop turn starts one, which takes its batch in the next turn, so
that all sends of a turn share a batch. Nothing waits for a batch to fill (DESIGN §4).

A batch whose append raises something that no code expected is logged and counted, and its senders
are told to send again: the key of a message makes that safe, whatever was stored. Their chats are
then appended one send at a time, so that the guilty one takes no other along. The process ends
only if the store says that it can no longer be trusted (`StoreUnusable`), breaks its contract, or
the service itself fails.
"""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, Protocol

from tidewire.domain.errors import (
    CounterMissing,
    ErrorCode,
    StoreUnavailable,
    StoreUnusable,
    TidewireError,
    Unavailable,
)
from tidewire.domain.ids import ChatId, ClientMessageId, ConnectionId, UserId
from tidewire.domain.limits import CONTENT_TYPE_DEFAULT
from tidewire.domain.messages import Appended, AppendOutcome, SendMessage, check_send
from tidewire.ingest.batcher import Answers, Batch, Batcher
from tidewire.ingest.options import IngestOptions
from tidewire.ingest.stamps import Stamps
from tidewire.ports.runtime import Clock, IdSource, RequestKind, Tasks
from tidewire.ports.storage import AppendDone, MessageStore

Done = Callable[[AppendOutcome], None]
SERVICE: Final = "ingest"


class AppendNowait(Protocol):
    def __call__(self, sends: Sequence[SendMessage], *, now_ms: int, done: AppendDone) -> None: ...


class IngestCounters:
    """What has happened so far, as plain numbers for whoever shows them. They count answers: what
    was answered too late and stored all the same stands under refused."""

    __slots__ = (
        "batches",
        "counter_missing",
        "deduplicated",
        "last_batch_sends",
        "refused_by_code",
        "sends",
        "stored",
    )

    def __init__(self) -> None:
        self.sends = 0
        self.stored = 0
        self.deduplicated = 0
        self.refused_by_code: dict[ErrorCode, int] = {}
        self.counter_missing = 0
        """How many of them because the chat has lost its counter: somebody has to act."""
        self.batches = 0
        self.last_batch_sends = 0


class IngestService:
    """The way into the store for every message, over whatever edge it came."""

    def __init__(
        self,
        *,
        store: MessageStore,
        clock: Clock,
        ids: IdSource,
        tasks: Tasks,
        options: IngestOptions,
    ) -> None:
        """Must be made on the event loop that it is to serve."""
        self.counters = IngestCounters()
        self._store = store
        self._clock = clock
        self._ids = ids
        self._tasks = tasks
        self._options = options
        self._loop = asyncio.get_running_loop()
        # Most stores have no such ability; where it is, a batch costs no task and no future.
        self._append_nowait: AppendNowait | None = getattr(store, "append_nowait", None)
        self._batcher: Batcher[Done] = Batcher(options, per_chat=store.appends_per_chat)
        # Answers that are decided and not yet given, in order.
        self._answers: Answers[Done] = []
        self._runners_starting_count = 0
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
        *,
        chat_id: ChatId,
        sender_id: UserId,
        client_message_id: ClientMessageId,
        content: str,
        done: Done,
        content_type: str = CONTENT_TYPE_DEFAULT,
        seen_sequence: int | None = None,
        origin_connection_id: ConnectionId | None = None,
        deadline_at_ms: int | None = None,
    ) -> None:
        """Have a message stored, and `done` called with what became of it.

        `done` is called exactly once, on the event loop, never before this has returned. It gets a
        refusal as a value: invalid, too large, not a member, Overloaded (at once, when too much
        is waiting), DeadlinePassed, and so on.
        Sends with the same `origin_connection_id` to one chat are stored in the order of the calls.
        `deadline_at_ms` is an instant of `Clock.monotonic_ms`; the default is `send_deadline_ms`
        from now.
        """
        self.counters.sends += 1
        clock = self._clock
        if deadline_at_ms is None:
            deadline_at_ms = clock.monotonic_ms() + self._options.send_deadline_ms
        send = SendMessage(
            chat_id=chat_id,
            sender_id=sender_id,
            # One UUID is one key, however its letters are written.
            client_message_id=ClientMessageId(client_message_id.lower()),
            content=content,
            message_id=self._ids.message_id(clock.wall_ms()),
            content_type=content_type,
            seen_sequence=seen_sequence,
            origin_connection_id=origin_connection_id,
        )
        if self._is_draining:
            self._answer_soon([(done, _shutting_down())])
            return
        try:
            check_send(send)
            self._batcher.offer(send, done, deadline_at_ms)
        except TidewireError as refusal:
            self._answer_soon([(done, refusal)])
            return
        if self._timer is None or deadline_at_ms < self._timer_at_ms:
            self._set_timer(deadline_at_ms)
        if self._runners_starting_count < self._batcher.takeable_count:
            self._start_runner()

    async def send(
        self,
        *,
        chat_id: ChatId,
        sender_id: UserId,
        client_message_id: ClientMessageId,
        content: str,
        content_type: str = CONTENT_TYPE_DEFAULT,
        seen_sequence: int | None = None,
        origin_connection_id: ConnectionId | None = None,
        deadline_at_ms: int | None = None,
    ) -> Appended:
        """As `submit_nowait`, but waits for the answer and raises the refusal.

        A caller that is cancelled gives up the answer, not the message.
        """
        answer: asyncio.Future[AppendOutcome] = self._loop.create_future()
        self.submit_nowait(
            chat_id=chat_id,
            sender_id=sender_id,
            client_message_id=client_message_id,
            content=content,
            done=partial(_resolve, answer),
            content_type=content_type,
            seen_sequence=seen_sequence,
            origin_connection_id=origin_connection_id,
            deadline_at_ms=deadline_at_ms,
        )
        outcome = await answer
        if isinstance(outcome, Appended):
            return outcome
        # One error may answer many sends: each of them starts with a clean traceback.
        raise outcome.with_traceback(None)

    async def drain(self) -> None:
        """Refuse new sends, have everything stored that was taken in, answer it.

        Takes at most `drain_ms`; what is not stored by then is answered with Unavailable. Returns
        when everybody has been answered. Safe to call again.
        """
        self._is_draining = True
        # Normally runners are at it already; one that died of a bug has left its work behind.
        for _ in range(self._batcher.takeable_count - self._runners_starting_count):
            self._start_runner()
        if not self._is_done:
            try:
                async with asyncio.timeout(self._options.drain_ms / 1000):
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

    def _start_runner(self) -> None:
        self._runners_starting_count += 1
        if self._append_nowait is not None:
            self._loop.call_soon(self._begin_appends)
        else:
            self._tasks.start_service(SERVICE, self._run())

    def _begin_appends(self) -> None:
        self._runners_starting_count -= 1
        try:
            self._hand_over()
        except Exception as error:  # noqa: BLE001 - without it nothing is stored any more
            self._tasks.service_failed(SERVICE, error)

    def _hand_over(self) -> None:
        """Put the batches that may start into the hands of a store that answers by callback."""
        assert self._append_nowait is not None
        while (batch := self._batcher.take()) is not None:
            now_ms = self._begin(batch)
            try:
                self._append_nowait(batch.sends, now_ms=now_ms, done=partial(self._appended, batch))
            except Exception as error:  # noqa: BLE001 - it concerns this batch alone
                self._answer_soon(self._failed(batch, error))

    def _appended(self, batch: Batch[Done], outcome: list[AppendOutcome] | Exception) -> None:
        """A batch came back. The next one is handed over before the answers are given, so that the
        store never idles while we write acks. Never raises: that would be the store's trouble."""
        try:
            if isinstance(outcome, Exception):
                self._answers += self._failed(batch, outcome)
            else:
                self._answers += self._batcher.completed(batch, outcome)
            self._hand_over()
        except Exception as error:  # noqa: BLE001 - a bug of ours, or the store broke its contract
            self._break_off(batch, error)
        self._give_answers()

    def _failed(self, batch: Batch[Done], error: Exception) -> Answers[Done]:
        """An append raised this: what its senders are told."""
        if isinstance(error, Unavailable):
            return self._batcher.failed(batch, error)
        if isinstance(error, StoreUnusable):
            # The store cannot say what it has committed: nothing more may be acknowledged.
            self._tasks.service_failed(SERVICE, error)
            return self._batcher.failed(batch, _broken_off())
        self._tasks.request_failed(RequestKind.SEND, error)
        return self._batcher.failed(batch, _broken_off(), is_unexpected=True)

    def _break_off(self, batch: Batch[Done], bug: Exception) -> None:
        """The service is broken: its process ends. Until then no sender may hang."""
        self._tasks.service_failed(SERVICE, bug)
        if batch.lane.in_flight is batch:
            self._answers += self._batcher.failed(batch, _broken_off())

    async def _run(self) -> None:
        self._runners_starting_count -= 1
        try:
            while (batch := self._batcher.take()) is not None:
                # The answers to a batch are given when the next one is in the store's hands, so
                # that the store never idles while we write acks.
                self._answer_soon(await self._append(batch))
        finally:
            self._give_answers()

    async def _append(self, batch: Batch[Done]) -> Answers[Done]:
        """One append and what follows from it. Whatever happens, the batch is answered."""
        now_ms = self._begin(batch)
        try:
            outcomes = await self._store.append(batch.sends, now_ms=now_ms)
        except Exception as error:  # noqa: BLE001 - it concerns this batch alone
            return self._failed(batch, error)
        except BaseException:
            # The process is ending. Senders must not hang; as what was stored is unknown, they may
            # send again.
            self._answer_soon(self._batcher.failed(batch, _broken_off()))
            raise
        try:
            return self._batcher.completed(batch, outcomes)
        except Exception:
            # A bug of ours, or the store broke its contract: this task dies, and its process ends.
            if batch.lane.in_flight is batch:
                self._answer_soon(self._batcher.failed(batch, _broken_off()))
            raise

    def _begin(self, batch: Batch[Done]) -> int:
        """Count a batch that goes to the store; the time that its messages are stamped with."""
        self.counters.batches += 1
        self.counters.last_batch_sends = len(batch.sends)
        return self._stamps.next(self._clock.wall_ms(), self._clock.monotonic_ms())

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
            if isinstance(outcome, Appended):
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
                self._tasks.request_failed(RequestKind.SEND, error)
        if self._is_draining and self._is_done:
            self._drained.set()

    def _set_timer(self, at_ms: int) -> None:
        """One timer for all deadlines: it is set anew only for one that is earlier."""
        if self._timer is not None:
            self._timer.cancel()
        delay_ms = max(0, at_ms - self._clock.monotonic_ms())
        self._timer_at_ms = at_ms
        self._timer = self._loop.call_later(delay_ms / 1000, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        try:
            answers = self._batcher.expire(self._clock.monotonic_ms())
            if (next_ms := self._batcher.next_deadline_ms()) is not None:
                self._set_timer(next_ms)
        except Exception as error:  # noqa: BLE001 - without it no send meets its deadline
            self._tasks.service_failed(SERVICE, error)
        else:
            self._answer_soon(answers)


def _resolve(answer: asyncio.Future[AppendOutcome], outcome: AppendOutcome) -> None:
    if not answer.done():
        answer.set_result(outcome)


def _broken_off() -> Unavailable:
    return StoreUnavailable("the store broke off; send the same message again")


def _shutting_down() -> Unavailable:
    return Unavailable("this server is shutting down; send the same message again")
