"""Publishes what stays in the outbox: commits whose process died, or could not reach the log.

Every gateway has a relay; each looks after its share of the shards, by leases that run out. The
shell around the PURE leases and backlog.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final

from tidewire.domain.errors import LogUnavailable, Unavailable
from tidewire.domain.events import LoggedEvent
from tidewire.domain.outbox import SHARDS, OutboxKey, OutboxRow, Unreadable
from tidewire.ingest.backlog import Backlog, due_rows, pause_ms
from tidewire.ingest.leases import plan_leases
from tidewire.ingest.options import IngestOptions
from tidewire.ports.event_log import EventLog, Outbox
from tidewire.ports.pausing import pause
from tidewire.ports.runtime import Clock

UNREADABLE_TOLD_MAX: Final = 1_000
"""Of so many rows that cannot be read the log tells, once each; all are counted."""

_logger: Final = logging.getLogger(__name__)


class RelayCounters:
    """What has happened so far, as plain numbers for whoever shows them."""

    __slots__ = (
        "events",
        "faults",
        "leases_taken",
        "rows_incomplete",
        "rows_published",
        "rows_unreadable",
    )

    def __init__(self) -> None:
        self.rows_published = 0
        self.events = 0
        self.rows_incomplete = 0
        """Looks at rows whose messages did not all show themselves."""
        self.rows_unreadable = 0
        """Looks at rows that nobody can make sense of."""
        self.leases_taken = 0
        self.faults = 0
        """Rounds that the store or the log cut short."""


class Relay:
    """`run` is a task for as long as the process lives; `close` after it has ended."""

    def __init__(
        self,
        *,
        relay_id: str,
        log: EventLog,
        outbox: Outbox,
        is_publishing: Callable[[OutboxKey], bool],
        clock: Clock,
        options: IngestOptions,
    ) -> None:
        """`relay_id` is new at each start of a process. `is_publishing` is the publisher's."""
        self.counters = RelayCounters()
        self._relay_id = relay_id
        self._log = log
        self._outbox = outbox
        self._is_publishing = is_publishing
        self._clock = clock
        self._options = options
        self._backlog = Backlog()
        # The shards of this relay, and until when by the wall clock.
        self._held: dict[int, int] = {}
        self._failures = 0
        self._told_unreadable: set[OutboxKey] = set()

    @property
    def shards(self) -> list[int]:
        """Those that this relay looks after now."""
        now_ms = self._clock.wall_ms()
        return sorted(shard for shard, until_ms in self._held.items() if until_ms > now_ms)

    @property
    def outbox_oldest_seconds(self) -> float:
        """How late the log is with what this relay looks after."""
        return self._backlog.oldest_ms(self._clock.wall_ms()) / 1000

    async def run(self) -> None:
        while True:
            await self.round()
            delay_ms = pause_ms(
                self._failures,
                poll_ms=self._options.relay_poll_ms,
                pause_ms_max=self._options.relay_pause_ms_max,
            )
            await pause(delay_ms)

    async def round(self) -> None:
        """Once: see to the leases, then publish what is due in each shard."""
        try:
            await self._see_to_leases()
            for shard in self.shards:
                await self._relay_shard(shard)
        except Unavailable:
            self.counters.faults += 1
            self._failures += 1
        else:
            self._failures = 0

    async def close(self) -> None:
        """Give the shards up, so that nobody has to wait for their leases to run out."""
        held, self._held = list(self._held), {}
        try:
            await self._outbox.release_shards(held, self._relay_id)
            await self._outbox.leave_relays(self._relay_id)
        except Unavailable:
            self.counters.faults += 1

    # Leases.

    async def _see_to_leases(self) -> None:
        now_ms = self._clock.wall_ms()
        until_ms = now_ms + self._options.lease_ms
        table = await self._outbox.lease_table(self._relay_id, until_ms=until_ms, now_ms=now_ms)
        plan = plan_leases(
            table, self._relay_id, shards=SHARDS, now_ms=now_ms, lease_ms=self._options.lease_ms
        )
        own = {one.shard: one.until_ms for one in table.leases if one.owner == self._relay_id}
        for shard in [shard for shard in self._held if shard not in own]:
            self._drop(shard)
        self._held |= own
        for shard in plan.release:
            self._drop(shard)
        await self._outbox.release_shards(plan.release, self._relay_id)
        for shard in (*plan.renew, *plan.take):
            is_own = await self._outbox.lease_shard(
                shard, self._relay_id, until_ms=until_ms, now_ms=now_ms
            )
            if is_own:
                self.counters.leases_taken += shard not in self._held
                self._held[shard] = until_ms
            else:
                self._drop(shard)

    def _drop(self, shard: int) -> None:
        self._held.pop(shard, None)
        self._backlog.forget(shard)

    # Rows.

    async def _relay_shard(self, shard: int) -> None:
        """Go on through a shard until its end, as long as the lease of it holds."""
        count_max = self._options.relay_rows_max
        has_more = True
        while has_more and self._held.get(shard, 0) > self._clock.wall_ms():
            page = await self._outbox.outbox_rows(
                shard, after=self._backlog.after(shard), count_max=count_max
            )
            readable = self._readable(page)
            due = due_rows(
                readable,
                now_ms=self._clock.wall_ms(),
                after_ms=self._options.relay_after_ms,
                is_publishing=self._is_publishing,
            )
            published: list[OutboxKey] = []
            try:
                await self._publish(due, published)
            finally:
                gone = set(published)
                has_more = self._backlog.saw(shard, page, count_max=count_max)
                stayed = [row for row in readable if row.key not in gone]
                self._backlog.stayed(shard, stayed, has_more=has_more)

    def _readable(self, page: Sequence[OutboxRow]) -> list[OutboxRow]:
        """A row that cannot be read stays where it is: deleting it would lose what it was about."""
        readable = []
        for row in page:
            if not isinstance(row.content, Unreadable):
                readable.append(row)
                continue
            self.counters.rows_unreadable += 1
            told = self._told_unreadable
            if row.key not in told and len(told) < UNREADABLE_TOLD_MAX:
                told.add(row.key)
                _logger.error(
                    "a row of the outbox cannot be read (%s) and is passed over: shard %d, %s",
                    row.content.reason,
                    row.key.shard,
                    row.key.row,
                )
        return readable

    async def _publish(self, due: Sequence[OutboxRow], published: list[OutboxKey]) -> None:
        """Whole rows or nothing of them; `published` gets the keys of those that are gone."""
        found = await asyncio.gather(*(self._outbox.outbox_events(row) for row in due))
        waiting = []
        for row, events in zip(due, found, strict=True):
            if events is None:
                self.counters.rows_incomplete += 1
            else:
                waiting.append((row.key, events, self._publishing(events)))
        acked = []
        error: LogUnavailable | None = None
        for key, events, answer in waiting:
            failed = await answer
            if failed is None:
                acked.append(key)
                self.counters.rows_published += 1
                self.counters.events += len(events)
            else:
                error = failed
        if acked:
            await self._outbox.forget_published(acked)
            published += acked
        if error is not None:
            raise error

    def _publishing(self, events: list[LoggedEvent]) -> "asyncio.Future[LogUnavailable | None]":
        answer: asyncio.Future[LogUnavailable | None] = asyncio.get_running_loop().create_future()

        def done(error: LogUnavailable | None) -> None:
            if not answer.done():
                answer.set_result(error)

        self._log.publish_nowait(events, done)
        return answer
