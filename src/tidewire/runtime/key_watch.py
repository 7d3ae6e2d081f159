"""Ends the connections when a key that signed tokens is gone.

A connection does not remember which key its token was signed with, so all of them end: apps refresh
their tokens and come back, bots with a token of another key come back with it.
"""

from collections.abc import Callable

from tidewire.accounts.keys import KeyRing
from tidewire.ports.runtime import Clock


class KeyWatch:
    """To be asked on the event loop, each time after the keys may have been replaced."""

    def __init__(self, ring: KeyRing, *, end_tokens: Callable[[], None], clock: Clock) -> None:
        self._ring = ring
        self._end_tokens = end_tokens
        self._clock = clock
        self._seen = ring.keys

    def look(self) -> None:
        """Has a key gone that was still good? One whose tokens have all expired ends nothing."""
        seen, self._seen = self._seen, self._ring.keys
        now_ms = self._clock.wall_ms()
        here = {key.mark for key in self._seen if key.is_good(now_ms)}
        if any(key.is_good(now_ms) and key.mark not in here for key in seen):
            self._end_tokens()
