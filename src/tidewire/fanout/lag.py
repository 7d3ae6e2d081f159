"""Decides when to send notices about chats that the log is behind with. PURE.

A notice is sent at once, then every few seconds. The gateways that get it decide whom to tell and
how often (`gateway.reminders`): they get notices from several processes, and about several chats
of one user.
"""

from collections.abc import Collection
from typing import Final

from tidewire.domain.ids import ChatId

BEHIND_MS: Final = 5_000
"""How late a push is before clients are told to sync meanwhile."""
AGAIN_MS: Final = 5_000
"""The time between two notices about one chat, while it is behind."""
CHATS_MAX: Final = 1_000
"""How many chats get a notice each; if more are behind, all clients are told."""


class LagNotices:
    """Bounded: a chat is remembered for as long as it is behind."""

    def __init__(self, *, chats_max: int = CHATS_MAX) -> None:
        self._chats_max = chats_max
        self._next_ms: dict[ChatId, int] = {}
        self._all_next_ms = 0

    def due(self, behind: Collection[ChatId] | None, now_ms: int) -> list[ChatId] | None:
        """Those of the chats that are behind for which a notice is due; None: tell all clients.
        `behind` is None if any chat may be behind."""
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
