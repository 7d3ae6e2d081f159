"""One request for several callers: what is asked while requests are under way goes together.

There is no timer and no delay: with nothing under way, a call leaves at once. The more callers ask
at a time, the fewer requests each of them takes.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

Item = TypeVar("Item")
Found = TypeVar("Found")


class Gatherer(Generic[Item, Found]):
    """Must be made on the event loop that it is to serve."""

    def __init__(
        self,
        fetch: Callable[[Sequence[Item]], Awaitable[Sequence[Found]]],
        *,
        items_max: int,
        at_once_max: int,
    ) -> None:
        """`fetch` answers item by item, for at most `items_max` of them; at most `at_once_max` of
        its calls are under way."""
        self._fetch = fetch
        self._items_max = items_max
        self._at_once_max = at_once_max
        self._waiting: deque[tuple[Sequence[Item], asyncio.Future[Sequence[Found]]]] = deque()
        self._running: set[asyncio.Task[None]] = set()

    async def ask(self, items: Sequence[Item]) -> Sequence[Found]:
        """Raises what `fetch` raises, in all callers whose items were in that request."""
        assert len(items) <= self._items_max
        answer: asyncio.Future[Sequence[Found]] = asyncio.get_running_loop().create_future()
        self._waiting.append((items, answer))
        self._start()
        return await answer

    def _start(self) -> None:
        while self._waiting and len(self._running) < self._at_once_max:
            task = asyncio.create_task(self._run(self._take()))
            self._running.add(task)
            task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        self._start()

    def _take(self) -> list[tuple[Sequence[Item], asyncio.Future[Sequence[Found]]]]:
        """Take as many whole calls as fit, without those whose caller has stopped waiting."""
        taken = []
        room = self._items_max
        while self._waiting and len(self._waiting[0][0]) <= room:
            items, answer = self._waiting.popleft()
            if not answer.done():
                taken.append((items, answer))
                room -= len(items)
        return taken

    async def _run(
        self, batch: Sequence[tuple[Sequence[Item], asyncio.Future[Sequence[Found]]]]
    ) -> None:
        items = [item for wish, _ in batch for item in wish]
        if not items:
            found: Sequence[Found] = []
        else:
            try:
                found = await self._fetch(items)
            except Exception as error:  # noqa: BLE001 - the callers get it
                for _, answer in batch:
                    if not answer.done():
                        answer.set_exception(error)
                return
        at = 0
        for wish, answer in batch:
            if not answer.done():
                answer.set_result(found[at : at + len(wish)])
            at += len(wish)
