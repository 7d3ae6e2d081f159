"""An engine's entry in the registry: its name, its settings, and what it offers.

An engine is a folder of `tidewire.engines` with a module `engine` that has the entry, `ENGINE`. The
runtime finds it there and asks for abilities; it knows no engine by name. Entries are read by every
command, so they load their vendors only when an ability is used.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from tidewire.domain.ids import ChatId, SessionId, UserId
from tidewire.domain.news import ChatNews, ChatStanding
from tidewire.ports.event_log import (
    CommitListener,
    DeadLetters,
    EventLog,
    LateLog,
    LogReader,
    Outbox,
)
from tidewire.ports.forwarding import Between
from tidewire.ports.inspection import CounterEvidence, CounterRepair, Inspector, NewCounter
from tidewire.ports.router import Registrar, Router
from tidewire.ports.storage import Storage

Progress = Callable[[int, int], None]
"""Called with the number that is done and the number of all."""
Decide = Callable[[CounterEvidence], NewCounter | None]


class SharedStore(Storage, Outbox, Protocol):
    """The store of a cluster."""

    on_overtaken: Callable[[ChatId], None]
    """Called with a chat when another process has just committed to it before this one could. It
    returns at once, and must not raise."""

    async def agree(self, name: str, value: str) -> str:
        """Agree with the other processes on a value. Returns that of the process that was first."""
        ...

    async def agree_anew(self, name: str, expected: str, value: str) -> None:
        """Replace the agreed value, if it is still the expected one."""
        ...

    async def standings(self, chat_ids: Sequence[ChatId]) -> list[ChatStanding | None]:
        """Chats with their members and positions, in the same order, each read strongly, its head
        first; None where there is no such chat."""
        ...

    async def unread(
        self, user_id: UserId, chat_id: ChatId, *, above: int
    ) -> tuple[int, int] | None:
        """How many messages of others there are above a position, and how many of them mention the
        user, as the digest counts them; None: there is no such chat."""
        ...

    def heard_head(self, chat_id: ChatId, head: int, membership_version: int) -> None:
        """Note what a process has told after its commit: the chat has this head, under this version
        (0: the process has not told the version)."""
        ...


class SharedLog(EventLog, LateLog, DeadLetters, Protocol):
    async def close(self) -> None: ...


class SharedLogReader(LogReader, Protocol):
    async def close(self) -> None: ...


class Part(Protocol):
    """Runs between its start and its stop."""

    def start(self) -> None: ...
    async def stop(self) -> None: ...


class SharedRouter(Router, Part, Protocol):
    """Reaches the connections of all processes."""

    def revoke(self, session_ids: Sequence[SessionId]) -> None:
        """Tell the other processes that sessions have ended."""
        ...

    def forget_roster(self, chat_id: ChatId) -> None:
        """Tell the other processes to read a chat's members again."""
        ...

    def spread(self, news: ChatNews, user_ids: Sequence[UserId]) -> None:
        """Send news to the other processes that have a connection of one of these users. Lossless
        or told, and in order, as pushes are."""
        ...


class SharedInbox(Registrar, Protocol):
    """Brings the pushes of all processes to the connections of this one."""

    def routed_at_ms(self, user_id: UserId) -> int | None:
        """The time (monotonic clock) since which everything for this user surely reaches this
        process, because a route of the user is known; None: it may not reach this process."""
        ...

    async def start(self) -> None: ...
    async def stop(self) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """An engine's name, its settings and its abilities; None: it does not have that ability.

    Each ability takes the engine's options first.
    """

    name: str
    """Its folder, and its section of the settings."""
    options: type
    settings: str
    """Those of its options that an operator can set."""
    is_shared: bool
    """The processes of a cluster share it; otherwise it works on a data directory."""
    vendor: str | None = None
    """The module that has to be installed for it."""
    is_chosen: Callable[[Any], bool] = lambda options: False
    """Whether its settings choose it, where several engines have the same ability."""
    is_default: bool = True
    """It is used where no other engine is chosen."""
    needs: Callable[[Any], Sequence[str]] = lambda options: ()
    """The settings that it cannot work without and that are not set."""
    append_sends_max: int | None = None
    """How many sends fit into one append; None: as many as the plane gathers."""
    metrics: Mapping[str, str] = field(default_factory=dict)
    """Tables of metrics (`runtime.metrics`), by the ability that makes the measured object."""

    store: Callable[[Any, Path, CommitListener], Awaitable[Storage]] | None = None
    """Opens the store. Raises StoreUnusable."""
    live_repair: Callable[[Any, ChatId, Decide], Awaitable[CounterEvidence]] | None = None
    """Puts a missing counter back in an open store, which it takes instead of the options."""
    inspect: Callable[[Any, Path], Inspector] | None = None
    repair: Callable[[Any, Path], CounterRepair] | None = None
    named: Callable[[Any, Path], Path] | None = None
    """The name, for people, of what `inspect` reads; if not shared, the file of the database."""
    backup: Callable[[Path, Path, Progress], None] | None = None
    """Copies the store of a data directory into a file."""
    restore: Callable[[Path, Path, bool], str] | None = None
    """Puts a file into a data directory, with or without its sessions. Returns the new epoch."""
    compact: Callable[[Path, Progress], tuple[int, int]] | None = None
    """Writes the store of a data directory anew, without what was deleted. Returns its bytes before
    and after. No server may use it meanwhile."""
    copies: Callable[[Path], list[Path]] | None = None
    """Backups and other copies of the store below its data directory. They still contain what was
    deleted after they were made."""
    make: Callable[[Any], list[str]] | None = None
    """Makes what is missing before a cluster can start. Returns what was made."""
    check: Callable[[Any], list[str]] | None = None
    """Returns how the existing setup differs from the one that is needed."""
    upgrade: Callable[[Any], list[str]] | None = None
    """Brings older rows to this release, and then allows the writing of rows that only this release
    knows. The store may be in use. Returns what was done."""
    forget_agreed: Callable[[Any, str], None] | None = None
    """Lets the next process agree on something else (`SharedStore.agree`)."""
    after_restore: Callable[[Any, int, bool, Progress], tuple[str, int]] | None = None
    """Makes restored tables agree again. Returns what was done, and how many sessions ended."""

    event_log: Callable[..., SharedLog] | None = None
    log_reader: Callable[..., SharedLogReader] | None = None
    router: Callable[..., SharedRouter] | None = None
    inbox: Callable[..., SharedInbox] | None = None
    between: Callable[..., Between] | None = None
    limits: Callable[..., Part] | None = None
