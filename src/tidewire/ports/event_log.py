"""Where the events of commits go. One process: straight from the writer. Cluster: Kafka.

In a cluster a commit leaves a row in the outbox, its events are put into the log, and the row goes
when the log has them all: a commit reaches the log even if its process dies in between. A reader
gets every event at least once. Order in the log is not promised, not even within a chat.
"""

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final, Protocol, TypeVar, get_args

import msgspec

from tidewire.domain.errors import LogUnavailable
from tidewire.domain.events import Event, LoggedEvent, Notice
from tidewire.domain.lag import Behind
from tidewire.domain.messages import Message
from tidewire.domain.outbox import LeaseTable, OutboxKey, OutboxRow


class CommitListener(Protocol):
    """Called with the events of every commit."""

    def __call__(self, events: Sequence[Event]) -> None:
        """Take the events of one commit, in the order in which they happened.

        Called once per commit that has events, in commit order, on the event loop, after the commit
        is durable and before the callers of that commit go on. Must return soon and not raise.
        """
        ...


def ignore_commits(events: Sequence[Event]) -> None:
    """The listener of a process in which no other part needs the events."""


LOGGED: Final[tuple[type[LoggedEvent], ...]] = get_args(LoggedEvent)
Kind = TypeVar("Kind")


class CommitBus:
    """The commit listener of a server: it passes the events of a commit on to all subscribers.

    Every subscriber gets the events of its kinds, in their order; the subscribers are called one
    after the other, in the order in which they subscribed. `runtime.bootstrap` wires them, before a
    plane has the store. A subscriber returns soon and does not raise. It may publish events itself.
    """

    __slots__ = ("_subscribers",)

    def __init__(self) -> None:
        self._subscribers: list[tuple[frozenset[type], Callable[[list[Any]], None]]] = []

    def subscribe(self, kinds: tuple[type[Kind], ...], take: Callable[[list[Kind]], None]) -> None:
        self._subscribers.append((frozenset(kinds), take))

    def __call__(self, events: Sequence[Event | Notice]) -> None:
        found = set(map(type, events))
        for kinds, take in self._subscribers:
            if found.isdisjoint(kinds):
                continue
            # The events of a commit are usually of one kind.
            is_all = found <= kinds
            take(list(events) if is_all else [event for event in events if type(event) in kinds])


Publish = Callable[[Sequence[Event | Notice]], None]
"""How a plane publishes events on the bus."""

PublishDone = Callable[[LogUnavailable | None], None]
"""Called once, on the event loop: None if the log has all events, else why that is not known."""


class EventLog(Protocol):
    """The writing end of the log."""

    def publish_nowait(self, events: Sequence[LoggedEvent], done: PublishDone) -> None:
        """Put events into the log without waiting; at least one.

        `done` is never called before this returns. It gets None when the log has all of them for
        good, or LogUnavailable when one may be missing, which comes at once if too many wait
        already. In that case some may be in the log: publishing them again is safe.
        """
        ...

    def withdraw(self, deletions: Sequence[Message]) -> None:
        """Keep deleted texts out of the log. Called when deletions are committed, before their ack.

        From now on no event that is published here has the texts of the messages that they delete,
        their edits included. An event that was published before and is not in the log yet gets
        there within a moment, or is taken back together with all other waiting events; then `done`
        gets LogUnavailable.
        """
        ...


class LateLog(Protocol):
    """Knows which events of this process wait in the log for its readers."""

    async def late(self, late_ms: int) -> Behind | None:
        """The chats of events that were published here at least `late_ms` ago, are in the log, and
        as far as is known have not been handled by its readers; None: it may be any chat. Takes a
        few seconds at most, and never raises: a log that does not answer counts as late."""
        ...


def publishing(
    log: EventLog, events: Sequence[LoggedEvent]
) -> asyncio.Future[LogUnavailable | None]:
    """`publish_nowait` for a caller that waits; the result is what `done` would get."""
    answer: asyncio.Future[LogUnavailable | None] = asyncio.get_running_loop().create_future()

    def done(error: LogUnavailable | None) -> None:
        if not answer.done():
            answer.set_result(error)

    log.publish_nowait(events, done)
    return answer


Place = tuple[str, int]
"""A topic and one of its partitions."""


class LogRecord(msgspec.Struct, frozen=True, gc=False):
    """One record of the log and its place. Other programs may write anything into a topic."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()

    @property
    def place(self) -> Place:
        return self.topic, self.partition


class LogReader(Protocol):
    """The reading end of the log: one of a group that shares it. One caller, one call at a time."""

    @property
    def group(self) -> str: ...

    @property
    def reader_id(self) -> str: ...

    async def read(self) -> Sequence[LogRecord]:
        """The next records, those of a partition in order, at most a batch; empty now and then when
        there are none. Waits until faults of the log are over. Raises if it can never be read."""
        ...

    async def commit(self, handled: Sequence[LogRecord]) -> None:
        """Mark these records as handled: the next reader of their partitions starts after them.

        They are all that was read of their partitions up to the last of them. The log is told at
        once or a moment later, and again if that fails; until then they may be read twice.
        """
        ...

    async def stay(self) -> None:
        """Remain a reader for a moment without reading, so that no other gets the partitions."""
        ...

    def take_lost(self) -> Collection[Place]:
        """The partitions that were given to other readers since the last call of this: those read
        everything that was not committed. What `read` returned last was read after that."""
        ...

    def lag(self) -> Mapping[Place, int]:
        """How many records wait in the partitions that are assigned to this reader."""
        ...


class DeadLetters(Protocol):
    """The store for records that cannot be read."""

    async def bury(self, key: bytes | None, letter: bytes) -> None:
        """Store a letter for people to examine. Raises LogUnavailable if that is not certain."""
        ...


class Outbox(Protocol):
    """The commits that the log may not have yet. Raises StoreUnavailable, as the store does.

    Leases keep relays from doing the same work twice. No promise depends on them, because
    publishing a row twice is safe. So they use the wall clocks of their holders.
    """

    async def outbox_rows(
        self, shard: int, *, after: str | None, count_max: int
    ) -> list[OutboxRow]:
        """Rows of one shard by their name, from above `after`; those of a chat in commit order.

        A row that cannot be read is among them, as Unreadable: it must not hide the rows after it.
        """
        ...

    async def outbox_events(self, row: OutboxRow) -> list[LoggedEvent] | None:
        """All events of a row; None if one of its messages is not found (yet), or the row cannot be
        read."""
        ...

    async def forget_published(self, keys: Sequence[OutboxKey]) -> None:
        """Delete rows whose events the log has. A row that is gone already is no error."""
        ...

    def take_doubtful(self) -> set[int]:
        """The shards into which this process may have committed without getting an answer, since
        the last call of this: there may be a row that no publisher knows of."""
        ...

    async def lease_table(self, relay_id: str, *, until_ms: int, now_ms: int) -> LeaseTable:
        """Register this relay as running until a time. Returns the running relays, this one
        included, and the leases."""
        ...

    async def lease_shard(self, shard: int, relay_id: str, *, until_ms: int, now_ms: int) -> bool:
        """Take or keep a shard until a time, and longer while this relay is registered as running.
        False if another relay holds it."""
        ...

    async def release_shards(self, shards: Sequence[int], relay_id: str) -> None:
        """Give up those of the shards that this relay holds."""
        ...

    async def leave_relays(self, relay_id: str) -> None:
        """Note that this relay has stopped."""
        ...
