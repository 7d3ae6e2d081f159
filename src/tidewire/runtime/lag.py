"""How late the event loop is: the first thing to look at when everything is slow at once."""

import asyncio
from typing import Final

INTERVAL_S: Final = 1.0


class LoopLag:
    """Asks to be called each second and notes how late that happens."""

    def __init__(self) -> None:
        """Must be made on the event loop that it is to watch."""
        self.last_s = 0.0
        self.highest_s = 0.0
        """Since the start."""
        self._loop = asyncio.get_running_loop()
        self._due_at = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        self._due_at = self._loop.time() + INTERVAL_S
        self._timer = self._loop.call_at(self._due_at, self._called)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _called(self) -> None:
        self.last_s = max(0.0, self._loop.time() - self._due_at)
        self.highest_s = max(self.highest_s, self.last_s)
        self.start()
