"""Delivered and read positions: takes acknowledgements in, has them written, says who has what.

The shell around the PURE tracker. Acknowledgements over a socket are one-way: they are gathered and
written with the next commit. Over REST the caller waits for his answer.

If the store raises something that no code expected, what was to be written is tried again one by
one. What fails alone is logged, counted and dropped: its client acknowledges again on its next
connection.
"""

import asyncio
from collections.abc import Callable
from typing import Generic, TypeVar

from tidewire.delivery.options import DeliveryOptions
from tidewire.delivery.tracker import Tracker
from tidewire.domain.delivery import (
    Advance,
    Advanced,
    AdvanceOutcome,
    DeliveryStatus,
    DigestPage,
)
from tidewire.domain.errors import InvalidMessage, Unavailable
from tidewire.domain.ids import ChatId, UserId
from tidewire.domain.limits import DIGEST_CHATS_MAX, SEQUENCE_MAX
from tidewire.ports.runtime import Clock, RequestKind, Tasks
from tidewire.ports.storage import PositionStore

Origin = TypeVar("Origin")
OnAdvanced = Callable[[Origin, Advance, AdvanceOutcome], None]
"""Is told what became of an acknowledgement, on the event loop, after it is durable."""


class DeliveryService(Generic[Origin]):
    """`Origin` is whatever tells connections apart; the service only hands it back."""

    def __init__(
        self,
        *,
        store: PositionStore,
        clock: Clock,
        tasks: Tasks,
        options: DeliveryOptions,
        on_advanced: OnAdvanced[Origin],
    ) -> None:
        """Must be made on the event loop that it is to serve."""
        self._store = store
        self._clock = clock
        self._tasks = tasks
        self._options = options
        self._on_advanced = on_advanced
        self._tracker: Tracker[Origin] = Tracker(
            waiting_max=options.waiting_max, batch_max=options.batch_max
        )
        self._loop = asyncio.get_running_loop()
        # True from the first offer until nothing waits, pauses between retries included.
        self._is_writing = False
        self._retry: asyncio.TimerHandle | None = None
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def waiting_count(self) -> int:
        """How many acknowledgements are not being written yet."""
        return self._tracker.waiting_count

    def acknowledge_nowait(
        self,
        origin: Origin,
        user_id: UserId,
        chat_id: ChatId,
        *,
        delivered: int = 0,
        read: int = 0,
    ) -> bool:
        """Take an acknowledgement in; it is written soon. False if there is no room for it."""
        assert 0 <= delivered <= SEQUENCE_MAX
        assert 0 <= read <= SEQUENCE_MAX
        wish = Advance(user_id=user_id, chat_id=chat_id, delivered=delivered, read=read)
        if not self._tracker.offer(origin, wish):
            return False
        if not self._is_writing:
            self._is_writing = True
            self._idle.clear()
            self._start()
        return True

    async def advance(self, wish: Advance) -> Advanced:
        """Move positions and wait for it. Raises NotAMember, SequenceAboveHead."""
        lower, higher = sorted((wish.delivered, wish.read))
        if lower < 0 or not 0 < higher <= SEQUENCE_MAX:
            raise InvalidMessage("a position is a sequence of 1 or more")
        (outcome,) = await self._store.advance([wish], now_ms=self._clock.wall_ms())
        if isinstance(outcome, Advanced):
            return outcome
        raise outcome

    async def status(
        self, reader: UserId, chat_id: ChatId, sequence: int | None = None
    ) -> DeliveryStatus:
        """Who has the message with this sequence, or the last one."""
        return await self._store.delivery_status(reader, chat_id, sequence)

    async def digest(
        self, user_id: UserId, *, after: ChatId | None = None, count_max: int = DIGEST_CHATS_MAX
    ) -> DigestPage:
        """The state of a user's chats, a page at a time."""
        return await self._store.digest(
            user_id, after=after, count_max=min(count_max, DIGEST_CHATS_MAX)
        )

    async def drain(self) -> None:
        """Wait until everything that was taken in is written, but no longer than `drain_ms`; what
        is not written by then is acknowledged again by its client's next connection."""
        try:
            async with asyncio.timeout(self._options.drain_ms / 1000):
                await self._idle.wait()
        except TimeoutError:
            if self._retry is not None:
                self._retry.cancel()

    def _start(self) -> None:
        self._retry = None
        self._tasks.start_service("delivery-write", self._write())

    async def _write(self) -> None:
        """Write until nothing waits. Runs once at a time."""
        alone = 0
        while wishes := self._tracker.take(1 if alone else None):
            alone = max(0, alone - 1)
            try:
                outcomes = await self._store.advance(wishes, now_ms=self._clock.wall_ms())
            except Unavailable:
                self._tracker.failed()
                self._retry = self._loop.call_later(self._options.retry_ms / 1000, self._start)
                return
            except Exception as error:  # noqa: BLE001 - it concerns one of these alone
                self._tasks.request_failed(RequestKind.ACKNOWLEDGEMENT, error)
                if len(wishes) == 1:
                    self._tracker.dropped()
                else:
                    self._tracker.failed()
                    alone = len(wishes)
                continue
            for origin, wish, outcome in self._tracker.completed(outcomes):
                self._tell(origin, wish, outcome)
        self._is_writing = False
        self._idle.set()

    def _tell(self, origin: Origin, wish: Advance, outcome: AdvanceOutcome) -> None:
        try:
            self._on_advanced(origin, wish, outcome)
        except Exception as error:  # noqa: BLE001 - it concerns this acknowledgement alone
            self._tasks.request_failed(RequestKind.ACKNOWLEDGEMENT, error)
