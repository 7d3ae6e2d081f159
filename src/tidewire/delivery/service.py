"""Delivered and read positions: takes acknowledgements in, has them written, says who has what.

The shell around the PURE tracker. Acknowledgements over a socket are one-way: the first is written
at once, and what comes within `GATHER_MS` of it is gathered for the next write. So a busy group, in
which everybody acknowledges all the time, costs twenty writes a second and not one for each commit.
Over REST the caller waits for the answer. A message reads what its author has acknowledged, so what
its author has waiting in its chat goes to the store ahead of it (`hasten`).

If the store raises something that no code expected, what was to be written is tried again one by
one. What fails alone is logged, counted and dropped: its client acknowledges again on its next
connection.
"""

import asyncio
from dataclasses import dataclass
from typing import Final

from tidewire.delivery.options import DeliveryOptions
from tidewire.delivery.tracker import Tracker
from tidewire.domain.delivery import Advance, Advanced, AdvanceOutcome
from tidewire.domain.errors import InvalidMessage, StoreUnavailable, is_away
from tidewire.domain.events import Acknowledged
from tidewire.domain.ids import ChatId, ConnectionId, UserId
from tidewire.domain.limits import SEQUENCE_MAX
from tidewire.ports.event_log import Publish
from tidewire.ports.runtime import RequestKind, Service
from tidewire.ports.storage import PositionStore

GATHER_MS: Final = 50
"""How far apart two writes of acknowledgements begin, unless a batch is full."""


@dataclass(kw_only=True, eq=False, repr=False)
class DeliveryService(Service):
    """The way into the store for every position."""

    store: PositionStore
    options: DeliveryOptions
    publish: Publish
    """Is told (`Acknowledged`) of acknowledgements that were refused or moved nothing; the store
    tells of the others."""
    gather_ms: int = GATHER_MS

    def __post_init__(self) -> None:
        super().__post_init__()
        self._tracker: Tracker[ConnectionId] = Tracker(
            waiting_max=self.options.waiting_max, batch_max=self.options.batch_max
        )
        # True from the first offer until nothing waits, pauses between writes included.
        self._is_writing = False
        self._next: asyncio.TimerHandle | None = None
        # `_next` is for a store that was away.
        self._is_retrying = False
        # Writes of what was hastened while another one was under way.
        self._ahead_count = 0
        self._began_at_ms = -self.gather_ms
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def waiting_count(self) -> int:
        """How many acknowledgements are not being written yet."""
        return self._tracker.waiting_count

    def acknowledge_nowait(self, origin: ConnectionId, wish: Advance) -> bool:
        """Take an acknowledgement in; it is written soon. False if there is no room for it."""
        assert 0 <= wish.delivered <= SEQUENCE_MAX
        assert 0 <= wish.read <= SEQUENCE_MAX
        if not self._tracker.offer(origin, wish):
            return False
        if not self._is_writing:
            self._is_writing = True
            self._idle.clear()
            self._start_gathered()
        return True

    def hasten(self, user_id: UserId, chat_id: ChatId) -> None:
        """Call this before a message of this user is submitted: what they have acknowledged in
        this chat goes to the store ahead of it. A store that was away is left alone."""
        if self._is_retrying or not self._tracker.may_wait(user_id, chat_id):
            return
        if self._next is not None:
            self._next.cancel()
            self._start()
            return
        # The write under way may be over in the store and not yet be known here to be: to wait for
        # it would let the message overtake.
        taken = self._tracker.take_of(user_id, chat_id)
        if taken:
            self._ahead_count += 1
            self.tasks.start_service("delivery-write", self._write_ahead(taken))

    async def advance(self, wish: Advance) -> Advanced:
        """Move positions and wait for it. Raises NotAMember, SequenceAboveHead."""
        lower, higher = sorted((wish.delivered, wish.read))
        if lower < 0 or not 0 < higher <= SEQUENCE_MAX:
            raise InvalidMessage("a position is a sequence of 1 or more")
        (outcome,) = await self.store.advance([wish], now_ms=self.clock.wall_ms())
        if isinstance(outcome, Advanced):
            return outcome
        raise outcome

    async def drain(self) -> None:
        """Wait until everything that was taken in is written, but no longer than `drain_ms`; what
        is not written by then is acknowledged again by its client's next connection."""
        if self._next is not None:
            self._next.cancel()
            self._start()
        try:
            async with asyncio.timeout(self.options.drain_ms / 1000):
                await self._idle.wait()
        except TimeoutError:
            if self._next is not None:
                self._next.cancel()

    def _start_gathered(self) -> None:
        """Write what waits: now, or when the time to gather is over."""
        wait_ms = self._began_at_ms + self.gather_ms - self.clock.monotonic_ms()
        if wait_ms > 0:
            self._start_later(wait_ms)
        else:
            self._start()

    def _start_later(self, delay_ms: int) -> None:
        self._next = self._loop.call_later(delay_ms / 1000, self._start)

    def _start(self) -> None:
        self._next = None
        self._is_retrying = False
        self._began_at_ms = self.clock.monotonic_ms()
        self.tasks.start_service("delivery-write", self._write())

    async def _write(self) -> None:
        """Write until nothing waits, or little enough to gather more. Runs once at a time."""
        alone = 0
        while wishes := self._tracker.take(1 if alone else None):
            alone = max(0, alone - 1)
            try:
                outcomes = await self.store.advance(wishes, now_ms=self.clock.wall_ms())
            except Exception as error:  # noqa: BLE001 - it concerns one of these alone
                if is_away(error):
                    self._tracker.failed()
                    self._retry_later()
                    return
                self.tasks.request_failed(RequestKind.ACKNOWLEDGEMENT, error)
                if len(wishes) == 1:
                    self._tracker.dropped()
                else:
                    self._tracker.failed()
                    alone = len(wishes)
                continue
            answers = self._tracker.completed(outcomes)
            for answer in answers:
                self._tell(*answer)
            if len(answers) < len(wishes):
                self._retry_later()
                return
            is_little = 0 < self._tracker.waiting_count < self.options.batch_max
            if is_little and not alone:
                self._start_gathered()
                return
        self._is_writing = False
        self._tell_if_idle()

    async def _write_ahead(self, taken: list[tuple[ConnectionId, Advance]]) -> None:
        """Write what one user has acknowledged in one chat. If that fails in any way, it waits with
        the others again, whose turn will tell what is the matter."""
        try:
            outcomes = await self.store.advance(
                [wish for _, wish in taken], now_ms=self.clock.wall_ms()
            )
        except Exception as error:  # noqa: BLE001 - the write that follows meets it again
            outcomes = [StoreUnavailable(str(error))] * len(taken)
        self._ahead_count -= 1
        again = []
        for (origin, wish), outcome in zip(taken, outcomes, strict=True):
            if isinstance(outcome, Advanced) or not is_away(outcome):
                self._tell(origin, wish, outcome)
            else:
                again.append((origin, wish))
        self._tracker.give_back(again)
        if again and not self._is_writing:
            self._is_writing = True
            self._retry_later()
        self._tell_if_idle()

    def _tell_if_idle(self) -> None:
        if not self._is_writing and not self._ahead_count:
            self._idle.set()

    def _retry_later(self) -> None:
        """The store was away, for all of a batch or a part of it."""
        self._is_retrying = True
        self._start_later(self.options.retry_ms)

    def _tell(self, origin: ConnectionId, wish: Advance, outcome: AdvanceOutcome) -> None:
        if isinstance(outcome, Advanced) and outcome.moved:
            # The store tells of it.
            return
        try:
            self.publish((Acknowledged(origin, wish, outcome),))
        except Exception as error:  # noqa: BLE001 - it concerns this acknowledgement alone
            self.tasks.request_failed(RequestKind.ACKNOWLEDGEMENT, error)
