"""Whom to tell, again, to sync while the event log is behind. PURE.

That the log is behind with a chat is heard every few seconds for as long as it lasts, from several
processes and of several chats of one user. A sync covers all chats of a user, so what is heard of
one user is one matter: the user is told at once, then after 5 s, and each time after twice as long,
up to a minute. When nothing is heard any more it is over, and the next time begins at once.
"""

from collections.abc import Callable, Iterable
from typing import Final

import msgspec

from tidewire.domain.ids import UserId

FIRST_MS: Final = 5_000
MOST_MS: Final = 60_000
OVER_MS: Final = 15_000
"""After so long without a word it is over: it is spoken of every 5 s while it lasts."""
EARLY: Final = 0.1
"""It is heard at intervals, so a user is told with what is heard so much before the time: else with
what comes after it, nearly one interval late."""
SPREAD: Final = 0.2
"""How much of the interval the clients may wait before they ask, each as long as chance says."""
USERS_MAX: Final = 200_000


class _Told(msgspec.Struct):
    heard_ms: int
    next_ms: int
    interval_ms: int


class Reminders:
    """Bounded; the user who was heard of longest ago is forgotten first, and told at once if heard
    of again."""

    def __init__(self, *, users_max: int = USERS_MAX) -> None:
        self._users_max = users_max
        # Those heard of longest ago first.
        self._told: dict[UserId, _Told] = {}

    def __len__(self) -> int:
        return len(self._told)

    def due(
        self, user_ids: Iterable[UserId], now_ms: int, chance: Callable[[], float]
    ) -> dict[UserId, int]:
        """Of these users the log is behind with something: who is told now, and how long they are
        to wait before they ask. `chance` says a number from 0 to 1."""
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
