"""Whether a server is ready for work."""

import asyncio
from typing import Final

from tidewire.domain.errors import StoreUnavailable, Unavailable
from tidewire.ports.storage import Storage

READY_S_MAX: Final = 2.0
"""How long the store may take to answer the check."""


class Readiness:
    """Whether this server is ready for work (`/readyz`)."""

    def __init__(self, store: Storage) -> None:
        self.is_ready = False
        self._store = store

    async def check(self) -> None:
        """Raises Unavailable if it is not, or if the store does not answer or its disk is full."""
        if not self.is_ready:
            raise Unavailable("this server is starting or stopping")
        try:
            async with asyncio.timeout(READY_S_MAX):
                await self._store.user_named("ready?")
                await self._store.check_room()
        except TimeoutError:
            raise StoreUnavailable("the store does not answer") from None
