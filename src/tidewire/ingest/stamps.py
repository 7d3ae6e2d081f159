"""The time that messages are stamped with: it follows the calendar, and does not jitter. PURE.

`created_at` is for people; the order of messages is that of their sequences. A clock that is set
back a little (a correction, a leap second) must not make a message look older than the one before
it, so the last stamp is held. A clock that was wrong, far ahead and set right again, must not leave
its mark on every message from then on: after a while the calendar is followed again, backwards too.
"""

from typing import Final

HELD_MS_MAX: Final = 10_000
"""How long a stamp is held while the calendar is behind it."""


class Stamps:
    """Gives the stamps of one process. `now_ms` is a clock that only goes forward."""

    __slots__ = ("_held_since_ms", "_last_ms")

    def __init__(self) -> None:
        self._last_ms = 0
        self._held_since_ms: int | None = None

    def next(self, wall_ms: int, now_ms: int) -> int:
        """The stamp of what is stored now."""
        if wall_ms < self._last_ms:
            if self._held_since_ms is None:
                self._held_since_ms = now_ms
            if now_ms - self._held_since_ms < HELD_MS_MAX:
                return self._last_ms
        self._held_since_ms = None
        self._last_ms = wall_ms
        return wall_ms
