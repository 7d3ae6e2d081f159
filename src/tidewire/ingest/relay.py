"""Publishes commits left in the outbox, because their process died or could not reach the log.

Every gateway has a relay. It looks after its share of the shards, by leases that expire, and after
rows that its own process has left in any shard. While it finds nothing it looks less and less
often; when a gateway has come or gone, it looks at once. The shell around the PURE leases, looks
and backlog.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Final

from tidewire.domain.errors import LogUnavailable, Unavailable
from tidewire.domain.ids import ChatId
from tidewire.domain.lag import Former, subject_of
from tidewire.domain.outbox import SHARDS, OutboxKey, OutboxRow, PersistedMessages, Unreadable
from tidewire.ingest.backlog import Backlog, Looks, due_rows, pause_ms, plan_leases
from tidewire.ingest.options import IngestOptions
from tidewire.ingest.unlogged import Unlogged
from tidewire.ports.event_log import EventLog, Outbox, publishing
from tidewire.ports.runtime import Clock, pause

UNREADABLE_TOLD_MAX: Final = 1_000
"""How many unreadable rows are logged, once each; all are counted."""

_logger: Final = logging.getLogger(__name__)


class RelayCounters:
    """Plain numbers for the metrics.

    Rows are incomplete while not all of their messages can be read; incomplete and unreadable rows
    count at every look. `faults` are rounds that the store or the log cut short.
    """

    events = rows_published = rows_incomplete = rows_unreadable = faults = 0


@dataclass(kw_only=True, eq=False)
class Relay:
    """`run` is a task that lasts as long as the process; call `close` after it has ended."""

    relay_id: str
    """New at each start of a process."""
    log: EventLog
    outbox: Outbox
    is_publishing: Callable[[OutboxKey], bool]
    """`Publisher.is_publishing`."""
    clock: Clock
    options: IngestOptions
    take_left: Callable[[], Collection[int]] = field(default=tuple)
    """The publisher's: the shards in which it has left rows."""
    unlogged: Unlogged = field(default_factory=lambda: Unlogged(commits_max=0))
    """The publisher's: which commits the log may not have yet."""

    def __post_init__(self) -> None:
        self.counters = RelayCounters()
        self._backlog = Backlog()
        self._looks = Looks(
            shards=SHARDS,
            poll_ms=self.options.relay_poll_ms,
            most_ms=self.options.relay_idle_ms_max,
        )
        self._relays: tuple[str, ...] = ()
        self._leases_at_ms = 0
        # Shards in which this process left rows: looked at even if another relay holds them.
        self._left: set[int] = set()
        # The shards of this relay, and until when by the wall clock.
        self._held: dict[int, int] = {}
        self._failures = 0
        self._told_unreadable: set[OutboxKey] = set()

    @property
    def shards(self) -> list[int]:
        """The shards that this relay looks after now."""
        now_ms = self.clock.wall_ms()
        return sorted(shard for shard, until_ms in self._held.items() if until_ms > now_ms)

    @property
    def outbox_oldest_seconds(self) -> float:
        """How late the log is with the shards that this relay looks after."""
        return self._backlog.oldest_ms(self.clock.wall_ms()) / 1000

    async def run(self) -> None:
        while True:
            await self.step()
            delay_ms = pause_ms(
                self._failures,
                poll_ms=self.options.relay_poll_ms,
                pause_ms_max=self.options.relay_pause_ms_max,
            )
            await pause(delay_ms)

    async def round(self) -> None:
        """Update the leases, then publish the due rows of every shard."""
        self._leases_at_ms = 0
        now_ms = self.clock.monotonic_ms()
        for shard in self._held:
            self._looks.begin(shard, now_ms)
        await self.step()

    async def step(self) -> None:
        """Do the parts of a round whose time has come."""
        try:
            now_ms = self.clock.monotonic_ms()
            if now_ms >= self._leases_at_ms:
                await self._see_to_leases(now_ms)
                self._leases_at_ms = now_ms + self.options.lease_ms // 2
            for shard in {*self.take_left(), *self.outbox.take_doubtful()}:
                self._left.add(shard)
                self._looks.begin(shard, now_ms)
            for shard in self._looks.due(now_ms):
                await self._relay_shard(shard)
        except Unavailable:
            self.counters.faults += 1
            self._failures += 1
        else:
            self._failures = 0

    async def close(self) -> None:
        """Give the shards up, so that no relay has to wait for their leases to run out."""
        held, self._held = list(self._held), {}
        try:
            await self.outbox.release_shards(held, self.relay_id)
            await self.outbox.leave_relays(self.relay_id)
        except Unavailable:
            self.counters.faults += 1

    # Leases.

    async def _see_to_leases(self, at_ms: int) -> None:
        now_ms = self.clock.wall_ms()
        until_ms = now_ms + self.options.lease_ms
        table = await self.outbox.lease_table(self.relay_id, until_ms=until_ms, now_ms=now_ms)
        plan = plan_leases(
            table, self.relay_id, shards=SHARDS, now_ms=now_ms, lease_ms=self.options.lease_ms
        )
        own = {one.shard: one.until_ms for one in table.leases if one.owner == self.relay_id}
        for shard in [shard for shard in self._held if shard not in own]:
            self._drop(shard)
        self._held |= own
        for shard in plan.release:
            self._drop(shard)
        await self.outbox.release_shards(plan.release, self.relay_id)
        for shard in (*plan.renew, *plan.take):
            is_own = await self.outbox.lease_shard(
                shard, self.relay_id, until_ms=until_ms, now_ms=now_ms
            )
            if is_own:
                self._held[shard] = until_ms
            else:
                self._drop(shard)
        relays = tuple(sorted(table.relays))
        for shard in self._held:
            # A relay that went may have left rows in any shard; one that came may have left some
            # in its process's earlier life.
            if relays != self._relays or shard not in self._looks:
                self._looks.begin(shard, at_ms)
        self._relays = relays

    def _drop(self, shard: int) -> None:
        self._held.pop(shard, None)
        if shard not in self._left:
            self._looks.forget(shard)
        self._backlog.forget(shard)

    # Rows.

    async def _relay_shard(self, shard: int) -> None:
        """Publish the due rows of a shard, from the next page to its end. Stops when the lease
        ends, unless this process has left rows there."""
        count_max = self.options.relay_rows_max
        has_more, waits = True, False
        is_whole = self._backlog.after(shard) is None
        # A commit that is known now and not found in the shard was published by another relay.
        unseen = dict.fromkeys(self.unlogged.keys_in(shard))
        while has_more and (shard in self._left or self._held.get(shard, 0) > self.clock.wall_ms()):
            page = await self.outbox.outbox_rows(
                shard, after=self._backlog.after(shard), count_max=count_max
            )
            for row in page:
                unseen.pop(row.key, None)
            readable = self._readable(page)
            due = due_rows(
                readable,
                now_ms=self.clock.wall_ms(),
                after_ms=self.options.relay_after_ms,
                is_publishing=self.is_publishing,
            )
            waits = waits or bool(due)
            published: list[OutboxKey] = []
            try:
                await self._publish(due, published)
            finally:
                gone = set(published)
                has_more = self._backlog.saw(shard, page, count_max=count_max)
                stayed = [row for row in readable if row.key not in gone]
                self._backlog.stayed(shard, stayed, has_more=has_more)
        if is_whole and not has_more:
            self.unlogged.gone([key for key in unseen if not self.is_publishing(key)])
        is_quiet = self._looks.looked(shard, self.clock.monotonic_ms(), waits=waits)
        if is_quiet and shard in self._left:
            self._left.discard(shard)
            if shard not in self._held:
                self._drop(shard)

    def _readable(self, page: Sequence[OutboxRow]) -> list[OutboxRow]:
        """The rows that can be read. The others stay: deleting them would lose their contents."""
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
        """Publish each row as a whole or not at all; `published` gets the keys of deleted rows."""
        outcomes = await asyncio.gather(*map(self._publish_row, due), return_exceptions=True)
        acked = [row.key for row, one in zip(due, outcomes, strict=True) if one is True]
        self.unlogged.gone(acked)
        now_ms = self.clock.monotonic_ms()
        for row, one in zip(due, outcomes, strict=True):
            if isinstance(one, LogUnavailable):
                self.unlogged.committed(row.key, *_subject_of(row), now_ms)
        if acked:
            await self.outbox.forget_published(acked)
            published += acked
        for one in outcomes:
            if isinstance(one, BaseException):
                raise one

    async def _publish_row(self, row: OutboxRow) -> bool:
        """Publish a row; True if the log has it. This happens as soon as the row is read: if it
        waited for other rows, another gateway could take in the deletion of its text meanwhile."""
        events = await self.outbox.outbox_events(row)
        if events is None:
            self.counters.rows_incomplete += 1
            return False
        failed = await publishing(self.log, events)
        if failed is not None:
            raise failed
        self.counters.rows_published += 1
        self.counters.events += len(events)
        return True


def _subject_of(row: OutboxRow) -> tuple[ChatId, Former]:
    """The chat of a readable row, and its former members."""
    content = row.content
    assert not isinstance(content, Unreadable)
    if isinstance(content, PersistedMessages):
        return content.chat_id, ()
    return subject_of(content)
