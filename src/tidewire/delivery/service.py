"""Delivered and read positions: takes acknowledgements in, has them written, reports refusals.

The shell around the PURE tracker. Acknowledgements over a socket are one-way: the first is written
at once, and those that come within `GATHER_MS` of it are gathered for the next write. So a busy
group, in which all members acknowledge all the time, costs twenty writes a second and not one for
each commit. Over REST the caller waits for the answer. A message marks as read what its author has
acknowledged, so the author's waiting positions in the chat are stored ahead of it (`hasten`).

If the store raises an unexpected exception, the positions of the batch are tried again one by one.
A position that fails alone is logged, counted and dropped: its client acknowledges again on its
next connection.
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
"""The time from the start of one write of acknowledgements to the next, unless a batch is full."""


@dataclass(kw_only=True, eq=False, repr=False)
class DeliveryService(Service):
    """Takes every position into the store."""

    store: PositionStore
    options: DeliveryOptions
    publish: Publish
    """Gets an `Acknowledged` for each acknowledgement that was refused or moved nothing; the store
    publishes the others."""
    gather_ms: int = GATHER_MS

    def __post_init__(self) -> None:
        super().__post_init__()
        self._tracker: Tracker[ConnectionId] = Tracker(
            waiting_max=self.options.waiting_max, batch_max=self.options.batch_max
        )
        # True from the first offer until nothing waits, pauses between writes included.
        self._is_writing = False
        self._next: asyncio.TimerHandle | None = None
        # `_next` is a retry after the store was unavailable.
        self._is_retrying = False
        # How many writes of hastened positions run beside another write.
        self._ahead_count = 0
        self._began_at_ms = -self.gather_ms
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def waiting_count(self) -> int:
        """How many acknowledgements are not being written yet."""
        return self._tracker.waiting_count

    def acknowledge_nowait(self, origin: ConnectionId, wish: Advance) -> bool:
        """Have an acknowledgement written soon. False if there is no room for it."""
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
        """Call this before a message of this user is submitted: the positions that the user has
        acknowledged in this chat go to the store ahead of it. Does nothing while a retry waits."""
        if self._is_retrying or not self._tracker.may_wait(user_id, chat_id):
            return
        if self._next is not None:
            self._next.cancel()
            self._start()
            return
        # The write under way may have ended in the store without this loop knowing it yet: if the
        # positions waited for it, the message would overtake them.
        taken = self._tracker.take_of(user_id, chat_id)
        if taken:
            self._ahead_count += 1
            self.tasks.start_service("delivery-write", self._write_ahead(taken))

    async def advance(self, wish: Advance) -> Advanced:
        """Move positions and wait until they are stored. Raises NotAMember, SequenceAboveHead."""
        lower, higher = sorted((wish.delivered, wish.read))
        if lower < 0 or not 0 < higher <= SEQUENCE_MAX:
            raise InvalidMessage("a position is a sequence of 1 or more")
        (outcome,) = await self.store.advance([wish], now_ms=self.clock.wall_ms())
        if isinstance(outcome, Advanced):
            return outcome
        raise outcome

    async def drain(self) -> None:
        """Wait until all positions are written, but no longer than `drain_ms`. Clients acknowledge
        the positions that are not written by then again on their next connection."""
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
        """Write the waiting positions: now, or when the time to gather is over."""
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
        """Write until no position waits, or so few that more are gathered. Runs once at a time."""
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
        """Write the positions of one user in one chat. If that fails in any way, they wait with the
        others again, and the next write meets the same error."""
        try:
            outcomes = await self.store.advance(
                [wish for _, wish in taken], now_ms=self.clock.wall_ms()
            )
        except Exception as error:  # noqa: BLE001 - the next write meets it again
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
        """Retry after the store was unavailable, for a whole batch or a part of it."""
        self._is_retrying = True
        self._start_later(self.options.retry_ms)

    def _tell(self, origin: ConnectionId, wish: Advance, outcome: AdvanceOutcome) -> None:
        if isinstance(outcome, Advanced) and outcome.moved:
            # The store publishes it.
            return
        try:
            self.publish((Acknowledged(origin, wish, outcome),))
        except Exception as error:  # noqa: BLE001 - it concerns this acknowledgement alone
            self.tasks.request_failed(RequestKind.ACKNOWLEDGEMENT, error)
