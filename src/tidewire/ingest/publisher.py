"""Puts the events of this process's commits into the log at once, and deletes their outbox rows.

The commit listener of a gateway. Nobody waits for it: a sender has his answer when his message is
stored. Whatever goes wrong here leaves a row in the outbox, and the relays find it.
"""

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Final

from tidewire.domain.errors import LogUnavailable, Unavailable
from tidewire.domain.events import Event, LoggedEvent, PositionsAdvanced
from tidewire.domain.outbox import OutboxKey, key_of_commit
from tidewire.ingest.options import IngestOptions
from tidewire.ingest.publishing import PublishBook
from tidewire.ports.event_log import CommitListener, EventLog, Outbox
from tidewire.ports.pausing import pause

ROWS_PER_DELETE: Final = 100
RETRY_MS: Final = 500
"""How long to leave the store alone after it could not delete rows."""


class PublisherCounters:
    """What has happened so far, as plain numbers for whoever shows them."""

    __slots__ = ("commits", "events", "failed", "left_to_relays", "published", "rows_deleted")

    def __init__(self) -> None:
        self.commits = 0
        self.events = 0
        self.published = 0
        """Commits that the log has."""
        self.failed = 0
        """Commits that the log did not take in time: their rows stay."""
        self.left_to_relays = 0
        """Commits, or rows to delete, for which there was no room."""
        self.rows_deleted = 0


class Publisher:
    """`committed` is the store's commit listener; `run` is a task for as long as the process lives.

    Must be made on the event loop that it is to serve.
    """

    def __init__(
        self,
        *,
        log: EventLog,
        outbox: Outbox,
        on_positions: CommitListener,
        options: IngestOptions,
    ) -> None:
        """`on_positions` gets the events of positions: they are state, and never in the log."""
        self.counters = PublisherCounters()
        self._log = log
        self._outbox = outbox
        self._on_positions = on_positions
        self._options = options
        self._book = PublishBook(
            commits_max=options.publishing_commits_max, rows_max=options.publishing_commits_max
        )
        self._loop = asyncio.get_running_loop()
        self._has_rows = asyncio.Event()
        self._deleting_count = 0
        self._on_idle: list[asyncio.Future[None]] = []

    def committed(self, events: Sequence[Event]) -> None:
        """Take what one commit did. Returns at once."""
        positions = [event for event in events if isinstance(event, PositionsAdvanced)]
        if positions:
            self._on_positions(positions)
        logged: list[LoggedEvent] = [
            event for event in events if not isinstance(event, PositionsAdvanced)
        ]
        if not logged:
            return
        self.counters.commits += 1
        self.counters.events += len(logged)
        key = key_of_commit(logged)
        if self._book.begin(key):
            self._log.publish_nowait(logged, partial(self._told, key))
        else:
            self.counters.left_to_relays += 1

    @property
    def publishing_count(self) -> int:
        return self._book.publishing_count

    def is_publishing(self, key: OutboxKey) -> bool:
        """True while this process may still publish a row by itself: for its relay."""
        return self._book.is_publishing(key)

    async def run(self) -> None:
        """Delete the rows of what the log has."""
        while True:
            await self._has_rows.wait()
            await self._delete_rows()

    async def drain(self, patience_ms: int) -> bool:
        """Wait until all is in the log and its rows are gone; False if that took too long."""
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
        return self._book.is_idle and not self._deleting_count

    def _told(self, key: OutboxKey, error: LogUnavailable | None) -> None:
        if error is not None:
            self.counters.failed += 1
            self._book.failed(key)
        else:
            self.counters.published += 1
            if self._book.acked(key):
                self._has_rows.set()
            else:
                self.counters.left_to_relays += 1
        self._tell_if_idle()

    async def _delete_rows(self) -> None:
        keys = self._book.take_rows(ROWS_PER_DELETE)
        self._deleting_count = len(keys)
        try:
            await self._outbox.forget_published(keys)
        except Unavailable:
            self.counters.left_to_relays += self._book.give_back(keys)
            await pause(RETRY_MS)
        else:
            self.counters.rows_deleted += len(keys)
        finally:
            self._deleting_count = 0
        if not self._book.published_count:
            self._has_rows.clear()
        self._tell_if_idle()

    def _tell_if_idle(self) -> None:
        if not self._is_idle:
            return
        on_idle, self._on_idle = self._on_idle, []
        for idle in on_idle:
            if not idle.done():
                idle.set_result(None)
