"""What all parts of the engine share: the database, and acts that run to their end once begun.

A part is a class with some methods of the ports; `storage.DynamoStorage` is made of all of them.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import wraps
from typing import Any, Concatenate, Final, ParamSpec, Protocol, TypeVar

from tidewire.domain.errors import StoreUnavailable
from tidewire.domain.events import Event
from tidewire.engines.dynamodb.backoff import Hindrance
from tidewire.engines.dynamodb.database import Counts, Database
from tidewire.engines.dynamodb.errors import AnswerLost, Cancelled, ConditionFailed
from tidewire.ports.event_log import CommitListener, ignore_commits

CONFLICT_STEPS_MAX: Final = 2
"""After so many failed conditions the pauses stop growing: a failed condition means that others
write, not that something is wrong, so only the budget ends the retries."""
AT_ONCE_MAX: Final = 16
"""How many works of one act run at the same time."""

Given = ParamSpec("Given")
Result = TypeVar("Result")


class HasDatabase(Protocol):
    @property
    def _database(self) -> Database: ...


Owner = TypeVar("Owner", bound=HasDatabase)
Method = Callable[Concatenate[Owner, Given], Coroutine[Any, Any, Result]]


class Again:
    """Decorator: carry out a method again, after a pause, while it raises certain failures."""

    def __init__(
        self, *failures: type[Exception], kind: Hindrance, steps_max: int | None = None
    ) -> None:
        """`steps_max`: after so many tries the pauses stop growing, and tries are not counted."""
        self._failures = failures
        self._kind = kind
        self._steps_max = steps_max

    def __call__(self, method: Method[Owner, Given, Result]) -> Method[Owner, Given, Result]:
        @wraps(method)
        async def repeated(self_: Owner, /, *given: Given.args, **named: Given.kwargs) -> Result:
            tried = 0
            while True:
                try:
                    return await method(self_, *given, **named)
                except self._failures:
                    await self_._database.pause(self._kind, tried)
                    tried = (
                        tried + 1 if self._steps_max is None else min(tried + 1, self._steps_max)
                    )

        return repeated


until_committed: Final = Again(
    Cancelled, ConditionFailed, kind=Hindrance.CONFLICT, steps_max=CONFLICT_STEPS_MAX
)
"""For a method that reads, decides and commits: repeats all of it while a condition fails."""
until_answered: Final = Again(AnswerLost, kind=Hindrance.LOST)
"""For a method that may be carried out twice: repeats it while its answer is lost."""


class Part:
    """Some methods of the ports, on one database."""

    def __init__(
        self,
        database: Database,
        exit_stack: AsyncExitStack,
        *,
        listener: CommitListener = ignore_commits,
    ) -> None:
        self._database = database
        self._exit_stack = exit_stack
        self._listener = listener
        self._locks = Locks()
        self._acts: dict[asyncio.Task[Any], None] = {}
        self._is_closed = False

    @property
    def counts(self) -> Counts:
        """Counts of our requests and their results."""
        return self._database.counts

    async def close(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        await asyncio.gather(*self._acts, return_exceptions=True)
        with self._database.within_budget():
            await self._before_close()
        await self._exit_stack.aclose()

    async def _before_close(self) -> None:
        """Write what is left to write, once all acts have ended. Raises nothing."""

    def _committed(self, events: Sequence[Event]) -> None:
        if events:
            self._listener(events)

    async def _finish(self, work: Coroutine[Any, Any, Result]) -> Result:
        return await asyncio.shield(self._begin(work))

    def _begin(self, work: Coroutine[Any, Any, Result]) -> asyncio.Task[Result]:
        if self._is_closed:
            work.close()
            raise StoreUnavailable("the store is closed")

        async def within_budget() -> Result:
            with self._database.within_budget():
                return await work

        task = asyncio.create_task(within_budget())
        self._acts[task] = None
        task.add_done_callback(self._done)
        return task

    async def _side_by_side(self, works: Sequence[Coroutine[Any, Any, Result]]) -> list[Result]:
        """Run works of one act, AT_ONCE_MAX of them at a time, each with its own budget."""
        gate = asyncio.Semaphore(AT_ONCE_MAX)

        async def carry_out(work: Coroutine[Any, Any, Result]) -> Result:
            async with gate:
                with self._database.within_budget():
                    return await work

        return await asyncio.gather(*map(carry_out, works))

    def _done(self, task: asyncio.Task[Any]) -> None:
        del self._acts[task]
        if not task.cancelled():
            # If the caller has stopped waiting, asyncio would report the unread exception.
            task.exception()


Of = TypeVar("Of", bound=Part)


def act(method: Method[Of, Given, Result]) -> Method[Of, Given, Result]:
    """Decorator: carry out a method of a port within one budget, and to its end.

    The caller may stop waiting; the act still finishes, and the listener gets its events.
    An act that is called by another act is a part of that one.
    """

    @wraps(method)
    async def finished(self: Of, /, *given: Given.args, **named: Given.kwargs) -> Result:
        if asyncio.current_task() in self._acts:
            return await method(self, *given, **named)
        return await self._finish(method(self, *given, **named))

    return finished


class Locks:
    """One writer at a time in each chat, first come, first served.

    So within this process the commits of a chat, and their events, have one order, and no append
    of ours moves the head while a member is being added (decision 0015). Between processes the
    fences decide. A lock is kept while a task holds it or waits for it.
    """

    def __init__(self) -> None:
        self._locks: dict[str, tuple[asyncio.Lock, int]] = {}

    @asynccontextmanager
    async def held(self, name: str) -> AsyncIterator[None]:
        lock, wanted = self._locks.get(name, (None, 0))
        if lock is None:
            lock = asyncio.Lock()
        self._locks[name] = (lock, wanted + 1)
        try:
            async with lock:
                yield
        finally:
            lock, wanted = self._locks[name]
            if wanted == 1:
                del self._locks[name]
            else:
                self._locks[name] = (lock, wanted - 1)

    def __len__(self) -> int:
        return len(self._locks)
