"""What a program of ours needs from the machine: time, ids, and tasks that have an owner."""

import asyncio
import os
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final, Protocol, TypeVar

from tidewire.domain.ids import ChatId, ConnectionId, MessageId, SessionId, UserId

Result = TypeVar("Result")
Work = Coroutine[object, object, None]


class Clock(Protocol):
    """Two clocks that never mix."""

    def wall_ms(self) -> int:
        """The time of day. May jump, also back: for timestamps, never for durations."""
        ...

    def monotonic_ms(self) -> int:
        """Only goes forward: for durations and deadlines, meaningless as a date."""
        ...


class IdSource(Protocol):
    """Makes ids that strictly increase within the process (`domain.ids.UlidSource`)."""

    def chat_id(self, now_ms: int) -> ChatId: ...
    def message_id(self, now_ms: int) -> MessageId: ...
    def user_id(self, now_ms: int) -> UserId: ...
    def session_id(self, now_ms: int) -> SessionId: ...
    def connection_id(self, now_ms: int) -> ConnectionId: ...


class RequestKind(StrEnum):
    """A kind of work for one caller, connection or chat: its failure concerns only these.

    The values are labels of the metric `request_failures`: kinds are added, never renamed.
    """

    CONNECTION = "connection"
    """A frame, an answer, a tick or a write of one connection."""
    SYNC = "sync"
    """A page of messages."""
    DIGEST = "digest"
    """A page of the list of chats."""
    UPGRADE = "upgrade"
    """A request to connect."""
    REGISTRATION = "registration"
    """Making the route of a new connection known to a cluster."""
    REST = "rest"
    """A REST request."""
    CONTROL = "control"
    """A command over the control socket."""
    SEND = "send"
    """A batch of messages that the store failed to append."""
    ACKNOWLEDGEMENT = "acknowledgement"
    """A batch of positions that the store failed to write."""
    PUSH = "push"
    """Telling the members of one chat what was committed in it."""
    STATUS = "status"
    """Telling the members of one chat about ticks."""
    SESSION = "session"
    """Checking whether one session has ended."""
    LINK = "link"
    """Work that one process of the server does for another."""
    HOUSEKEEPING = "housekeeping"
    """One round of sweeping accounts; the next round tries again."""


FLOOD_KEY: Final = "flood_key"
"""Field of a log line that a peer can cause at will: the address or user that it counts for. The
lines a minute are limited for each; the next one that is written says how many were left out."""

NO_NAMES: Final[Mapping[str, object]] = {}


class Tasks(Protocol):
    """Starts tasks and owns them: no task is lost, and no failure goes unnoticed.

    There are two kinds. The server's promises depend on a *service* (writing, publishing, pushing):
    if one fails, that is logged, and the process ends, because it cannot be trusted to do its work
    without it. A *request* is work for one caller: its failure is logged once and counted, its
    caller is told, and everything else goes on.
    """

    def start_service(self, name: str, work: Work) -> None:
        """Run the work to its end. If it raises, the process ends."""
        ...

    def start_request(
        self, kind: RequestKind, work: Work, on_failure: Callable[[Exception], None]
    ) -> None:
        """Run the work to its end. If it raises, that is logged and counted, and `on_failure` is
        called, on the event loop, to tell the caller."""
        ...

    def service_failed(self, name: str, error: Exception) -> None:
        """A service failed outside of a task, in a callback: as if its task had raised."""
        ...

    def request_failed(
        self, kind: RequestKind, error: Exception, names: Mapping[str, object] = NO_NAMES
    ) -> None:
        """A request failed outside of a task, or inside one that goes on: log and count it.
        `names` says whom it concerns, for the log. Never raises. It does not tell
        the client: the code that calls this does."""
        ...


class RunBlocking(Protocol):
    """Runs blocking work (such as a password hash) outside the event loop."""

    def __call__(self, work: Callable[[], Result]) -> Awaitable[Result]:
        """Returns or raises what the work does. It runs in a thread in production, inline in a
        simulation. If the caller is cancelled, this ends when the work has ended."""
        ...


class RandomBytes(Protocol):
    """Random bytes that cannot be guessed (`secrets.token_bytes`)."""

    def __call__(self, count: int, /) -> bytes: ...


@dataclass(kw_only=True, eq=False, repr=False)
class Service:
    """The common base of the planes' services. It must be made on the event loop that it serves."""

    clock: Clock
    tasks: Tasks

    def __post_init__(self) -> None:
        self._loop = asyncio.get_running_loop()


class EarliestTimer:
    """Calls back at the earliest of the instants that it was set to, then waits to be set again."""

    def __init__(self, call: Callable[[], None]) -> None:
        self._call = call
        self._handle: asyncio.TimerHandle | None = None
        self._at_ms = 0

    def set(self, at_ms: int, now_ms: int) -> None:
        if self._handle is not None:
            if self._at_ms <= at_ms:
                return
            self._handle.cancel()
        self._at_ms = at_ms
        delay_s = (at_ms - now_ms) / 1000
        self._handle = asyncio.get_running_loop().call_later(delay_s, self._fire)

    def cancel(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _fire(self) -> None:
        self._handle = None
        self._call()


def resolve(answer: "asyncio.Future[Result]", outcome: Result | BaseException | None) -> None:
    """Give a waiting caller its outcome; does nothing if the caller has gone away."""
    if answer.done():
        return
    if isinstance(outcome, BaseException):
        answer.set_exception(outcome)
    else:
        answer.set_result(outcome)  # type: ignore[arg-type]


async def pause(delay_ms: int) -> None:
    """Wait for `delay_ms`, on the loop's clock.

    `asyncio.sleep` itself is banned in the planes (TID251), because there is nearly always a
    condition to wait for instead. The exception is the pause before a retry, when a service does
    not answer: it calls this function, which can be found and, in a simulation, replaced.
    """
    # Not a timer of our own: a timer that sets a future's result fails if the task is cancelled in
    # the same turn of the loop in which the time is over.
    await asyncio.sleep(delay_ms / 1000)  # noqa: TID251 - see above


def sync_file(path: Path) -> None:
    """Sync a file, or a directory's list of names, to stable storage."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
