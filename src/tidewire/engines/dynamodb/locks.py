"""One writer at a time in each chat, first come, first served.

Within this process commits of a chat then happen, and are told, in one order; an add meets no
append of ours that moves the head under it (DESIGN 4). Between processes the fences decide.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Locks:
    """A lock per name, kept for as long as somebody wants it."""

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
