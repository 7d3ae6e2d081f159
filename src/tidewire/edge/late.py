"""An ASGI application that is built when its first request arrives.

Building REST would take most of the time of a server's start: the framework must be imported and
every endpoint registered. Connections that come back after a restart need none of it.
"""

import asyncio
from collections.abc import Callable
from typing import Any

from tidewire.ports.runtime import RunBlocking


class LateApp:
    """Builds an application on its first request, and passes all requests to it."""

    def __init__(self, make: Callable[[], Any], run_blocking: RunBlocking) -> None:
        """`make` imports and builds the application, on another thread."""
        self._make = make
        self._run_blocking = run_blocking
        self._making = asyncio.Lock()
        self._app: Any = None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if self._app is None:
            # Requests that arrive meanwhile wait; if building fails, the next request retries.
            async with self._making:
                if self._app is None:
                    self._app = await self._run_blocking(self._make)
        await self._app(scope, receive, send)
