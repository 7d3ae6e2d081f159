"""Of which chats that the log is behind with to speak now: at once, then every few seconds. PURE.

Gateways that hear of it decide whom to tell and how often (`gateway.reminders`): they hear it from
several processes, and of several chats of one user.
"""

from collections.abc import Collection
from typing import Final

from tidewire.domain.ids import ChatId

BEHIND_MS: Final = 5_000
"""How late a push is before clients are told to sync meanwhile."""
AGAIN_MS: Final = 5_000
"""How far apart it is spoken of one chat, while that lasts."""
CHATS_MAX: Final = 1_000
"""How many chats are spoken of one by one; if there are more, all clients are concerned."""


class LagNotices:
    """Bounded: a chat is remembered for as long as it is behind."""

    def __init__(self, *, chats_max: int = CHATS_MAX) -> None:
        self._chats_max = chats_max
        self._next_ms: dict[ChatId, int] = {}
        self._all_next_ms = 0

    def due(self, behind: Collection[ChatId] | None, now_ms: int) -> list[ChatId] | None:
        """Which chats to speak of now, where these are behind; None: speak to all clients. `behind`
        is None if it may be any chat."""
        if behind is None or len(behind) > self._chats_max:
            self._next_ms.clear()
            if now_ms < self._all_next_ms:
                return []
            self._all_next_ms = now_ms + AGAIN_MS
            return None
        due = [one for one in behind if self._next_ms.get(one, now_ms) <= now_ms]
        next_ms = {one: self._next_ms.get(one, now_ms) for one in behind}
        self._next_ms = next_ms | dict.fromkeys(due, now_ms + AGAIN_MS)
        return due
