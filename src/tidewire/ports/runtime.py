"""What a program of ours needs from the machine: time, ids, and tasks that somebody owns."""

from collections.abc import Awaitable, Callable, Coroutine
from typing import Protocol, TypeVar

from tidewire.domain.ids import ChatId, ConnectionId, MessageId, SessionId, UserId

Result = TypeVar("Result")


class Clock(Protocol):
    """Two clocks that never mix."""

    def wall_ms(self) -> int:
        """What the calendar says. May jump, also back: for stamps, never for lengths."""
        ...

    def monotonic_ms(self) -> int:
        """Only goes forward: for lengths and deadlines, meaningless as a date."""
        ...


class IdSource(Protocol):
    """Makes ids that strictly increase within the process (`domain.ids.UlidSource`)."""

    def chat_id(self, now_ms: int) -> ChatId: ...
    def message_id(self, now_ms: int) -> MessageId: ...
    def user_id(self, now_ms: int) -> UserId: ...
    def session_id(self, now_ms: int) -> SessionId: ...
    def connection_id(self, now_ms: int) -> ConnectionId: ...


class Tasks(Protocol):
    """Starts tasks and owns them: none is lost, none dies unseen."""

    def start(self, name: str, work: Coroutine[object, object, None]) -> None:
        """Run the work to its end. If it raises, the owner is told and the process ends."""
        ...


class RunBlocking(Protocol):
    """Runs work that holds its thread up (a password hash) elsewhere than on the event loop."""

    def __call__(self, work: Callable[[], Result]) -> Awaitable[Result]:
        """What the work returns or raises. A thread in production, inline in a simulation."""
        ...


class RandomBytes(Protocol):
    """Random bytes that nobody can guess (`secrets.token_bytes`)."""

    def __call__(self, count: int, /) -> bytes: ...
