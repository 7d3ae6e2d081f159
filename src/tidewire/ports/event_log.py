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
    """Is told what was committed."""

    def __call__(self, events: Sequence[Event]) -> None:
        """Take the events of one commit, in the order in which they happened.

        Called once per commit that has events, in commit order, on the event loop, after the commit
        is durable and before the callers of that commit go on. Must return soon and not raise.
        """
        ...


def ignore_commits(events: Sequence[Event]) -> None:
    """The listener of a process that tells no other part."""


LOGGED: Final[tuple[type[LoggedEvent], ...]] = get_args(LoggedEvent)
Kind = TypeVar("Kind")


class CommitBus:
    """The commit listener of a server: what a commit means to others hangs on it.

    Every subscriber is told the events of its kinds, in their order; the subscribers one after the
    other, in the order in which they subscribed. `runtime.bootstrap` wires them, before a plane has
    the store. A subscriber returns soon and does not raise. It may publish in its turn.
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
            # The events of a commit are of one kind as a rule.
            is_all = found <= kinds
            take(list(events) if is_all else [event for event in events if type(event) in kinds])


Publish = Callable[[Sequence[Event | Notice]], None]
"""How a plane tells others through the bus."""

PublishDone = Callable[[LogUnavailable | None], None]
"""Is told, once and on the event loop, that the log has all events, or why that is not known."""


class EventLog(Protocol):
    """The writing end of the log."""

    def publish_nowait(self, events: Sequence[LoggedEvent], done: PublishDone) -> None:
        """Put events into the log without waiting; at least one.

        `done` is never called before this returns. It gets None when the log has all of them for
        good, LogUnavailable when one may be missing: also at once, if too many wait already. Then
        some may be in it: publishing them again is safe.
        """
        ...

    def withdraw(self, deletions: Sequence[Message]) -> None:
        """These deletions are committed, and will be acknowledged next.

        From now on nothing that is published here has the texts of the messages that they delete,
        their edits included. What was published before and is not in the log yet gets there within
        a moment, or is taken back, with whatever else waits: that is told as LogUnavailable.
        """
        ...


class LateLog(Protocol):
    """Knows what of this process waits in the log for its readers."""

    async def late(self, late_ms: int) -> Behind | None:
        """The chats of events that were published here so long ago, are in the log, and as far as
        is known have not been dealt with by its readers; None: it may be any chat. Takes a few
        seconds at most, and never raises: a log that does not answer is late."""
        ...


def publishing(
    log: EventLog, events: Sequence[LoggedEvent]
) -> asyncio.Future[LogUnavailable | None]:
    """`publish_nowait` for a caller that waits: what `done` would be told."""
    answer: asyncio.Future[LogUnavailable | None] = asyncio.get_running_loop().create_future()

    def done(error: LogUnavailable | None) -> None:
        if not answer.done():
            answer.set_result(error)

    log.publish_nowait(events, done)
    return answer


Place = tuple[str, int]
"""A topic and one of its partitions."""


class LogRecord(msgspec.Struct, frozen=True, gc=False):
    """What lies at one place in the log. Other programs may write anything into a topic."""

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
        there are none. Faults of the log are waited out here. Raises if it can never be read."""
        ...

    async def commit(self, handled: Sequence[LogRecord]) -> None:
        """These records are dealt with: who reads their partitions next starts behind them.

        They are all that was read of their partitions up to the last of them. The log is told at
        once or a moment later, and again if it does not take it; until then they may be read twice.
        """
        ...

    async def stay(self) -> None:
        """Remain a reader for a moment without reading: others do not take the partitions over."""
        ...

    def take_lost(self) -> Collection[Place]:
        """The partitions that were given to others since this was asked last: they read what was
        not committed. What `read` returned last was read after that."""
        ...

    def lag(self) -> Mapping[Place, int]:
        """How many records wait, by topic and partition of those that this reader looks after."""
        ...


class DeadLetters(Protocol):
    """Where records go that cannot be read."""

    async def bury(self, key: bytes | None, letter: bytes) -> None:
        """Keep a letter for people to look at. Raises LogUnavailable if it may not be kept."""
        ...


class Outbox(Protocol):
    """Which commits the log may not have yet. Raises StoreUnavailable, as the store does.

    Leases keep relays from doing the same work twice; nothing rests on them, because publishing a
    row twice is safe. So they go by the wall clocks of their holders.
    """

    async def outbox_rows(
        self, shard: int, *, after: str | None, count_max: int
    ) -> list[OutboxRow]:
        """Rows of one shard by their name, above one; those of a chat in the order of commits.

        One that cannot be read is among them, as Unreadable: it must not hide those behind it.
        """
        ...

    async def outbox_events(self, row: OutboxRow) -> list[LoggedEvent] | None:
        """All events of a row; None if one of its messages does not show itself (yet), or the row
        cannot be read."""
        ...

    async def forget_published(self, keys: Sequence[OutboxKey]) -> None:
        """Delete rows whose events the log has. One that is gone already is no fault."""
        ...

    def take_doubtful(self) -> set[int]:
        """The shards into which this process may have committed without hearing of it, since this
        was asked last: a row may lie there that no publisher knows of."""
        ...

    async def lease_table(self, relay_id: str, *, until_ms: int, now_ms: int) -> LeaseTable:
        """Say that this relay is there until a time; who is there, this one included, and who holds
        what."""
        ...

    async def lease_shard(self, shard: int, relay_id: str, *, until_ms: int, now_ms: int) -> bool:
        """Take or keep a shard until a time, and as long as this relay says that it is there; False
        if another relay holds it."""
        ...

    async def release_shards(self, shards: Sequence[int], relay_id: str) -> None:
        """Give up those of the shards that this relay holds."""
        ...

    async def leave_relays(self, relay_id: str) -> None:
        """Say that this relay is there no longer."""
        ...
