"""Puts the events of this process's commits into the log at once, and deletes their outbox rows.

A subscriber of the commit bus. Nothing waits for it: a sender is answered when the message is
stored. Any failure here leaves a row in the outbox, and the relays find it.
"""

import asyncio
from collections import deque
from collections.abc import Sequence
from functools import partial
from typing import Final

from tidewire.domain.errors import LogUnavailable, Unavailable
from tidewire.domain.events import LoggedEvent, MessageAppended
from tidewire.domain.lag import subject_of
from tidewire.domain.messages import EntryKind
from tidewire.domain.outbox import OutboxKey, key_of_commit
from tidewire.ingest.options import IngestOptions
from tidewire.ingest.unlogged import Unlogged
from tidewire.ports.event_log import EventLog, Outbox
from tidewire.ports.runtime import Clock, pause

ROWS_PER_DELETE: Final = 100
RETRY_MS: Final = 500
"""How long to leave the store alone after it could not delete rows."""


class PublisherCounters:
    """Plain numbers for the metrics. `published`: commits that the log has. `failed`: commits that
    it did not take in time; their rows stay. `left_to_relays`: commits, or rows to delete, for
    which there was no room."""

    commits = events = published = failed = left_to_relays = rows_deleted = 0


class Publisher:
    """`committed` subscribes to the commit bus; `run` is a task that lasts as long as the process.

    Commits on their way into the log, and rows that can be deleted, are bounded. If there is no
    room, the relays find the row. Must be made on the event loop that it serves.
    """

    def __init__(
        self, *, log: EventLog, outbox: Outbox, clock: Clock, options: IngestOptions
    ) -> None:
        self.counters = PublisherCounters()
        self.unlogged = Unlogged(commits_max=options.publishing_commits_max)
        """Which commits the log may not have yet; the relay updates it, too."""
        self._log = log
        self._clock = clock
        self._outbox = outbox
        self._bound = options.publishing_commits_max
        self._publishing: set[OutboxKey] = set()
        # The log has these; their rows are still there.
        self._published: deque[OutboxKey] = deque()
        self._loop = asyncio.get_running_loop()
        self._has_rows = asyncio.Event()
        self._deleting_count = 0
        self._on_idle: list[asyncio.Future[None]] = []
        self._left: set[int] = set()

    def committed(self, events: Sequence[LoggedEvent]) -> None:
        """Publish the events of one commit. Returns at once."""
        self.counters.commits += 1
        self.counters.events += len(events)
        deletions = [
            event.message
            for event in events
            if isinstance(event, MessageAppended) and event.message.kind is EntryKind.DELETE
        ]
        if deletions:
            # Even if there is no room below: the deleted texts may still wait to be published.
            self._log.withdraw(deletions)
        key = key_of_commit(events)
        self.unlogged.committed(key, *subject_of(events[0]), self._clock.monotonic_ms())
        if len(self._publishing) >= self._bound:
            self.counters.left_to_relays += 1
            self._left.add(key.shard)
            return
        self._publishing.add(key)
        self._log.publish_nowait(events, partial(self._told, key))

    @property
    def publishing_count(self) -> int:
        return len(self._publishing)

    def is_publishing(self, key: OutboxKey) -> bool:
        """True while this process may still publish a row itself; its relay then skips the row."""
        return key in self._publishing

    def take_left(self) -> set[int]:
        """The shards in which this process has left rows since the last call."""
        left, self._left = self._left, set()
        return left

    async def run(self) -> None:
        """Delete the rows of the commits that the log has."""
        while True:
            await self._has_rows.wait()
            await self._delete_rows()

    async def drain(self, patience_ms: int) -> bool:
        """Wait until the log has all commits and their rows are gone; False if out of time."""
        try:
            async with asyncio.timeout(patience_ms / 1000):
                while not self._is_idle:
                    idle = self._loop.create_future()
                    self._on_idle.append(idle)
                    await idle
        except TimeoutError:
            return False
        return True

    @property
    def _is_idle(self) -> bool:
        return not self._publishing and not self._published and not self._deleting_count

    def _told(self, key: OutboxKey, error: LogUnavailable | None) -> None:
        self._publishing.discard(key)
        if error is not None:
            self.counters.failed += 1
            self._left.add(key.shard)
        else:
            self.counters.published += 1
            self.unlogged.logged(key)
            if len(self._published) < self._bound:
                self._published.append(key)
                self._has_rows.set()
            else:
                self.counters.left_to_relays += 1
                self._left.add(key.shard)
        self._tell_if_idle()

    async def _delete_rows(self) -> None:
        published = self._published
        keys = [published.popleft() for _ in range(min(ROWS_PER_DELETE, len(published)))]
        self._deleting_count = len(keys)
        try:
            await self._outbox.forget_published(keys)
        except Unavailable:
            # Delete them later, as far as there is room.
            room = self._bound - len(published)
            published.extendleft(reversed(keys[:room]))
            self.counters.left_to_relays += max(0, len(keys) - room)
            self._left |= {key.shard for key in keys[room:]}
            await pause(RETRY_MS)
        else:
            self.counters.rows_deleted += len(keys)
        finally:
            self._deleting_count = 0
        if not published:
            self._has_rows.clear()
        self._tell_if_idle()

    def _tell_if_idle(self) -> None:
        if not self._is_idle:
            return
        on_idle, self._on_idle = self._on_idle, []
        for idle in on_idle:
            if not idle.done():
                idle.set_result(None)
