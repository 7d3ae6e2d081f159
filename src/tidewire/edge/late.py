"""An ASGI application that is made for its first request.

REST is what a server's start would spend most of its time on: the framework has to be imported and
told of every endpoint. Connections that come back after a restart need none of it.
"""

import asyncio
from collections.abc import Callable
from typing import Any

from tidewire.ports.runtime import RunBlocking


class LateApp:
    """Stands before an application that is not there yet."""

    def __init__(self, make: Callable[[], Any], run_blocking: RunBlocking) -> None:
        """`make` imports and builds the application, on another thread."""
        self._make = make
        self._run_blocking = run_blocking
        self._making = asyncio.Lock()
        self._app: Any = None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if self._app is None:
            # Those who come meanwhile wait for it; if making it failed, the next tries again.
            async with self._making:
                if self._app is None:
                    self._app = await self._run_blocking(self._make)
        await self._app(scope, receive, send)
