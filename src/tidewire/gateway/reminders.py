"""Decides which users to remind to sync while the event log is behind. PURE.

While the log is behind with a chat, a notice comes every few seconds, from several processes and
for several chats of one user. A sync covers all chats of a user, so all notices about a user are
treated as one: the user is told at once, then after 5 s, and then each time after twice as long, up
to a minute. When notices stop, the lag is over, and the next one is told at once again.
"""

from collections.abc import Callable, Iterable
from typing import Final

import msgspec

from tidewire.domain.ids import UserId

FIRST_MS: Final = 5_000
MOST_MS: Final = 60_000
OVER_MS: Final = 15_000
"""After so long without a notice the lag is over: a notice comes every 5 s while it lasts."""
EARLY: Final = 0.1
"""The part of the interval by which a user may be told early. Notices come at intervals, so a user
who is told only by the first notice after the time is told nearly one notice late."""
SPREAD: Final = 0.2
"""The part of the interval over which clients spread their syncs, each by a random delay."""
USERS_MAX: Final = 200_000


class _Told(msgspec.Struct):
    heard_ms: int
    next_ms: int
    interval_ms: int


class Reminders:
    """When each user was told, and is told next. Bounded: the user with the oldest notice is
    forgotten first, and told at once at the next notice."""

    def __init__(self, *, users_max: int = USERS_MAX) -> None:
        self._users_max = users_max
        # The users with the oldest notice first.
        self._told: dict[UserId, _Told] = {}

    def __len__(self) -> int:
        return len(self._told)

    def due(
        self, user_ids: Iterable[UserId], now_ms: int, chance: Callable[[], float]
    ) -> dict[UserId, int]:
        """The log is behind for these users: return those to tell now, and for how many ms each
        waits before it syncs. `chance` returns a random number from 0 to 1."""
        self._forget(now_ms)
        due: dict[UserId, int] = {}
        for user_id in user_ids:
            told = self._told.pop(user_id, None)
            if told is None:
                told = _Told(now_ms, now_ms, FIRST_MS)
            elif now_ms >= told.next_ms:
                told.interval_ms = min(2 * told.interval_ms, MOST_MS)
            if now_ms >= told.next_ms:
                due[user_id] = int(chance() * SPREAD * told.interval_ms)
                told.next_ms = now_ms + int(told.interval_ms * (1 - EARLY))
            told.heard_ms = now_ms
            self._told[user_id] = told
            if len(self._told) > self._users_max:
                del self._told[next(iter(self._told))]
        return due

    def _forget(self, now_ms: int) -> None:
        over = []
        for user_id, told in self._told.items():
            if now_ms - told.heard_ms <= OVER_MS:
                break
            over.append(user_id)
        for user_id in over:
            del self._told[user_id]
