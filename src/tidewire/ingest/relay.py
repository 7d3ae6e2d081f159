"""Publishes what stays in the outbox: commits whose process died, or could not reach the log.

Every gateway has a relay; each looks after its share of the shards, by leases that run out, and
after what its own process has left behind, wherever that is. While nothing is found it looks less
and less often; when a gateway has come or gone, at once. The shell around the PURE leases, looks
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
"""Of so many rows that cannot be read the log tells, once each; all are counted."""

_logger: Final = logging.getLogger(__name__)


class RelayCounters:
    """What has happened so far, as plain numbers for the metrics.

    Rows are incomplete while their messages do not all show themselves; these, and those that
    cannot be read, count each time they are looked at. `faults` are rounds that the store or the
    log cut short.
    """

    events = rows_published = rows_incomplete = rows_unreadable = faults = 0


@dataclass(kw_only=True, eq=False)
class Relay:
    """`run` is a task for as long as the process lives; `close` after it has ended."""

    relay_id: str
    """New at each start of a process."""
    log: EventLog
    outbox: Outbox
    is_publishing: Callable[[OutboxKey], bool]
    """The publisher's."""
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
        # Shards that are looked at for what this process left there, also if others hold them.
        self._left: set[int] = set()
        # The shards of this relay, and until when by the wall clock.
        self._held: dict[int, int] = {}
        self._failures = 0
        self._told_unreadable: set[OutboxKey] = set()

    @property
    def shards(self) -> list[int]:
        """Those that this relay looks after now."""
        now_ms = self.clock.wall_ms()
        return sorted(shard for shard, until_ms in self._held.items() if until_ms > now_ms)

    @property
    def outbox_oldest_seconds(self) -> float:
        """How late the log is with what this relay looks after."""
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
        """See to the leases, then publish what is due, in every shard."""
        self._leases_at_ms = 0
        now_ms = self.clock.monotonic_ms()
        for shard in self._held:
            self._looks.begin(shard, now_ms)
        await self.step()

    async def step(self) -> None:
        """The same as far as it is time for it."""
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
            # Who went may have left something, wherever it was; so may who came, the time before.
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
        """Go on through a shard until its end, as long as the lease of it holds, or for what was
        left there."""
        count_max = self.options.relay_rows_max
        has_more, waits = True, False
        is_whole = self._backlog.after(shard) is None
        # What is known now and is not found was published by another relay.
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
        """Whether the log has it. It is published as soon as it is read: while it waited here for
        other rows, another gateway could have taken the deletion of its text in."""
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
    """Of a row that can be read."""
    content = row.content
    assert not isinstance(content, Unreadable)
    if isinstance(content, PersistedMessages):
        return content.chat_id, ()
    return subject_of(content)
