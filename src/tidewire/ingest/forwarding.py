"""Forwards batches of hot chats to the gateway that has the lease, and takes in those of others.

It stands between the ingest service and the store of a cluster. A batch of a hot chat goes to the
gateway that has its lease (`hot_chats`, PURE), and into the batches of that gateway; every other
batch goes straight to the store. Sends that come back without a verdict, or not at all, are
appended here under the same keys, which is safe whatever the other gateway has stored.

The batcher has one batch of a chat in flight. So all lines of a chat take the same way, and change
it only when each of their sends has its answer. A forwarded send is never forwarded again.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Final

import msgspec

from tidewire.domain.errors import StoreUnavailable, Unavailable
from tidewire.domain.ids import ChatId, MessageId
from tidewire.domain.messages import AppendOutcome, SendMessage
from tidewire.ingest.hot_chats import ASK_MS, LEASE_MS, HotChats
from tidewire.ingest.service import Foreign, IngestService
from tidewire.ports.forwarding import Between
from tidewire.ports.runtime import Clock, IdSource, RequestKind, Tasks
from tidewire.ports.storage import AppendDone, Appends
from tidewire.wire.forwards import (
    Answered,
    Forwarded,
    Told,
    decode_between,
    encode_between,
    outcomes_of,
    told_of,
)

FORWARD_MS: Final = 4_000
"""How long a batch waits for its answer: longer than the store of the other gateway takes at most,
and shorter than a send waits for its own (`IngestOptions.send_deadline_ms`)."""
FORWARDS_MAX: Final = 64
FORWARDS_BYTES_MAX: Final = 4 * 1024 * 1024
"""How many batches, and how many bytes, may be under way to other gateways; beyond it a batch is
appended here."""
FOREIGN_SENDS_MAX: Final = 4_096
"""How many sends of other gateways may wait here; beyond it they append their batch themselves."""


class ForwardingCounters:
    """Plain numbers for the metrics, in batches; `foreign` in sends."""

    forwarded = answered = undecided = unanswered = foreign = unsealed = 0


@dataclass(slots=True, eq=False)
class _Waiting:
    """A batch that was forwarded to another gateway and has no answer yet."""

    to: str
    chat_id: ChatId
    sends: Sequence[SendMessage]
    now_ms: int
    done: AppendDone
    bytes_count: int
    timer: asyncio.TimerHandle


@dataclass(slots=True, eq=False)
class _Taken:
    """A batch taken in from another gateway, which waits for the answer."""

    number: int
    origin: str
    told: list[Told]
    open_count: int


class Forwarding:
    """Satisfies `ports.storage.Appends` for the gateways of a cluster."""

    def __init__(
        self,
        *,
        gateway_id: str,
        store: Appends,
        between: Between,
        seal: Callable[[str, bytes], bytes],
        unseal: Callable[[str, bytes], bytes | None],
        clock: Clock,
        ids: IdSource,
        tasks: Tasks,
    ) -> None:
        """`seal` and `unseal` take the gateway that a body is for. Must be made on the event loop
        that it serves."""
        self.counters = ForwardingCounters()
        self.hot = HotChats(gateway_id)
        self._gateway_id = gateway_id
        self._store = store
        self._between = between
        self._seal = seal
        self._unseal = unseal
        self._clock = clock
        self._ids = ids
        self._tasks = tasks
        self._loop = asyncio.get_running_loop()
        self._ingest: IngestService | None = None
        self._waiting: dict[int, _Waiting] = {}
        self._bytes_count = 0
        self._number = 0
        # Sends that other gateways have forwarded and that are not answered yet.
        self._foreign: set[MessageId] = set()
        self._wake = asyncio.Event()

    def use(self, ingest: IngestService) -> None:
        """Take forwarded sends in through `ingest`, so that they share this gateway's batches."""
        self._ingest = ingest

    # `ports.storage.Appends`.

    @property
    def appends_per_chat(self) -> bool:
        return self._store.appends_per_chat

    def append_nowait(self, sends: Sequence[SendMessage], *, now_ms: int, done: AppendDone) -> None:
        to = self._way(sends) if self.hot else None
        if to is None or not self._forward(to, sends, now_ms, done):
            self._store.append_nowait(sends, now_ms=now_ms, done=done)

    # The lease.

    def overtaken(self, chat_id: ChatId) -> None:
        """A commit of this gateway came too late: ask for the lease of the chat."""
        if self.hot.overtaken(chat_id, self._clock.monotonic_ms()):
            self._wake.set()

    async def run(self) -> None:
        """Ask for leases while there are hot chats."""
        while True:
            # Without hot chats only `_wake` ends the wait.
            with suppress(TimeoutError):
                async with asyncio.timeout(ASK_MS / 1000 if self.hot else None):
                    await self._wake.wait()
            self._wake.clear()
            wishes = self.hot.wishes(self._clock.monotonic_ms())
            if wishes:
                await self._ask(wishes)

    async def _ask(self, wishes: Sequence[tuple[ChatId, str]]) -> None:
        try:
            holders = await self._between.leases(wishes, LEASE_MS)
        except Unavailable:
            self.hot.forget()
            self._take_back(lambda _: True)
            return
        now_ms = self._clock.monotonic_ms()
        told = {wish[0]: holder for wish, holder in zip(wishes, holders, strict=True)}
        for chat_id, holder in told.items():
            self.hot.told(chat_id, holder, now_ms)
        # A gateway that has died soon loses its leases, so its batches are taken back here.
        self._take_back(lambda one: told.get(one.chat_id, one.to) != one.to)

    # At the origin.

    def _way(self, sends: Sequence[SendMessage]) -> str | None:
        own = [send for send in sends if send.message_id not in self._foreign]
        to = self.hot.way(sends[0].chat_id, self._clock.monotonic_ms()) if own else None
        # If an amendment is tried again, its outcome does not tell whose message it has deleted.
        if len(own) < len(sends) or any(send.amends is not None for send in own):
            return None
        return to

    def _forward(
        self, to: str, sends: Sequence[SendMessage], now_ms: int, done: AppendDone
    ) -> bool:
        """Forward a batch; False if too much is under way."""
        number = self._number + 1
        forwarded = Forwarded(number, self._gateway_id, FORWARD_MS, list(sends))
        body = self._seal(to, encode_between(forwarded))
        is_room = self._bytes_count + len(body) <= FORWARDS_BYTES_MAX
        if not is_room or len(self._waiting) >= FORWARDS_MAX:
            return False
        self._number = number
        timer = self._loop.call_later(FORWARD_MS / 1000, self._unanswered, number)
        waiting = _Waiting(to, sends[0].chat_id, sends, now_ms, done, len(body), timer)
        self._waiting[number] = waiting
        self._bytes_count += len(body)
        self.counters.forwarded += 1

        async def hand() -> None:
            is_told = False
            with suppress(Unavailable):
                is_told = await self._between.hand(to, body)
            if not is_told:
                self._unanswered(number)

        self._tasks.start_request(RequestKind.SEND, hand(), lambda _: self._unanswered(number))
        return True

    def _answered(self, answer: Answered) -> None:
        waiting = self._end_waiting(answer.number)
        if waiting is None:
            # It was taken back meanwhile.
            return
        outcomes = outcomes_of(answer.told, len(waiting.sends))
        if None in outcomes:
            self.counters.undecided += 1
            self._distrust(waiting)
        else:
            self.counters.answered += 1
        self._append_rest(waiting, outcomes)

    def _unanswered(self, number: int) -> None:
        waiting = self._end_waiting(number)
        if waiting is not None:
            self.counters.unanswered += 1
            self._distrust(waiting)
            self._append_rest(waiting, [None] * len(waiting.sends))

    def _take_back(self, is_meant: Callable[[_Waiting], bool]) -> None:
        for number in [number for number, one in self._waiting.items() if is_meant(one)]:
            self._unanswered(number)

    def _distrust(self, waiting: _Waiting) -> None:
        if self.hot.failed(waiting.chat_id, waiting.to):
            self._wake.set()

    def _end_waiting(self, number: int) -> _Waiting | None:
        waiting = self._waiting.pop(number, None)
        if waiting is not None:
            waiting.timer.cancel()
            self._bytes_count -= waiting.bytes_count
        return waiting

    def _append_rest(self, waiting: _Waiting, outcomes: Sequence[AppendOutcome | None]) -> None:
        """Append here the sends without a verdict, then give all outcomes to `done`."""
        rest = [index for index, outcome in enumerate(outcomes) if outcome is None]
        done = partial(_merge, outcomes, rest, waiting.done)
        if not rest:
            done([])
            return
        # Each is a new try with a new message id: if the other gateway has stored a send, that
        # gateway publishes it.
        wall_ms = self._clock.wall_ms()
        sends = [
            msgspec.structs.replace(waiting.sends[index], message_id=self._ids.message_id(wall_ms))
            for index in rest
        ]
        try:
            self._store.append_nowait(sends, now_ms=waiting.now_ms, done=done)
        except Exception as error:  # noqa: BLE001 - it concerns this batch alone
            waiting.done(error)

    # At the gateway that has the lease.

    def heard(self, sealed: bytes) -> None:
        """Handle a message of another gateway: a forwarded batch, or an answer."""
        body = self._unseal(self._gateway_id, sealed)
        told = None if body is None else decode_between(body)
        match told:
            case Forwarded():
                self._take(told)
            case Answered():
                self._answered(told)
            case None:
                self.counters.unsealed += 1

    def _take(self, forwarded: Forwarded) -> None:
        ingest, sends = self._ingest, forwarded.sends
        assert ingest is not None
        if not sends or len(self._foreign) + len(sends) > FOREIGN_SENDS_MAX:
            self._tell(forwarded.origin, Answered(forwarded.number, []))
            return
        now_ms = self._clock.monotonic_ms()
        self.hot.foreign(sends[0].chat_id, now_ms)
        self.counters.foreign += len(sends)
        taken = _Taken(forwarded.number, forwarded.origin, [Told()] * len(sends), len(sends))
        for index, send in enumerate(sends):
            self._foreign.add(send.message_id)
            ingest.take_nowait(
                send,
                done=Foreign(partial(self._appended, taken, index, send.message_id)),
                deadline_at_ms=now_ms + forwarded.time_ms,
            )

    def _appended(
        self, taken: _Taken, index: int, message_id: MessageId, outcome: AppendOutcome
    ) -> None:
        self._foreign.discard(message_id)
        taken.told[index] = told_of(outcome)
        taken.open_count -= 1
        if not taken.open_count:
            self._tell(taken.origin, Answered(taken.number, taken.told))

    def _tell(self, origin: str, answer: Answered) -> None:
        body = self._seal(origin, encode_between(answer))

        async def hand() -> None:
            # A gateway that gets no answer appends the batch itself.
            with suppress(Unavailable):
                await self._between.hand(origin, body)

        self._tasks.start_request(RequestKind.SEND, hand(), lambda _: None)


def _merge(
    outcomes: Sequence[AppendOutcome | None],
    rest: Sequence[int],
    done: AppendDone,
    appended: list[AppendOutcome] | Exception,
) -> None:
    """Give `done` the outcomes of the other gateway, merged with those of the rest here."""
    if isinstance(appended, Exception):
        if not isinstance(appended, Unavailable) or len(rest) == len(outcomes):
            done(appended)
            return
        appended = [appended] * len(rest)
    if len(appended) != len(rest):
        done(StoreUnavailable("the store broke off; send the same message again"))
        return
    merged = dict(zip(rest, appended, strict=True))
    done([merged[index] if one is None else one for index, one in enumerate(outcomes)])


_CONFORMS: type[Appends] = Forwarding
