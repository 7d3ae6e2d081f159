"""When to tell whom about ticks: the latest numbers, now and then, never a queue. PURE.

A chat whose positions moved is due at once if nothing was told for a while, and otherwise when the
interval has passed. What is told is read from the store at that time, so it is always the latest.
"""

from heapq import heappop, heappush

import msgspec

from tidewire.domain.delivery import Floors
from tidewire.domain.ids import ChatId, UserId


class DueChat(msgspec.Struct, frozen=True):
    """A chat to read and tell about: who moved, and what was told last time."""

    chat_id: ChatId
    moved: tuple[UserId, ...]
    told: Floors | None
    is_forced: bool
    """Tell even if nothing has changed: somebody came back and may have missed the last one."""


class _ChatTicks:
    __slots__ = ("is_forced", "is_reading", "moved", "next_at_ms", "told")

    def __init__(self) -> None:
        self.moved: dict[UserId, None] = {}
        """Who moved since the numbers were read last. Waiting is: not empty and not being read."""
        self.next_at_ms = 0
        self.told: Floors | None = None
        self.is_forced = False
        self.is_reading = False


class Ticks:
    """Which chats are due."""

    def __init__(self, *, interval_ms: int, chats_max: int) -> None:
        self._interval_ms = interval_ms
        self._chats_max = chats_max
        self._chats: dict[ChatId, _ChatTicks] = {}
        # A heap of (when, chat): one entry for every chat that waits.
        self._waiting: list[tuple[int, ChatId]] = []

    def __len__(self) -> int:
        return len(self._chats)

    def moved(self, chat_id: ChatId, user_id: UserId, *, is_forced: bool) -> bool:
        """Somebody's positions moved, or he acknowledged for the first time on a connection.

        False if there is no room for another chat: the next move of it is told.
        """
        chat = self._chats.get(chat_id)
        if chat is None:
            if len(self._chats) >= self._chats_max:
                self._forget_quiet()
            if len(self._chats) >= self._chats_max:
                return False
            chat = self._chats[chat_id] = _ChatTicks()
        if not chat.moved and not chat.is_reading:
            heappush(self._waiting, (chat.next_at_ms, chat_id))
        chat.moved[user_id] = None
        chat.is_forced |= is_forced
        return True

    def next_at_ms(self) -> int | None:
        """When the next chat is due; None if none waits."""
        return self._waiting[0][0] if self._waiting else None

    def take(self, now_ms: int, count_max: int) -> list[DueChat]:
        """The chats that are due now, at most so many. Each is then told, or failed."""
        taken: list[DueChat] = []
        while self._waiting and self._waiting[0][0] <= now_ms and len(taken) < count_max:
            _, chat_id = heappop(self._waiting)
            chat = self._chats[chat_id]
            taken.append(DueChat(chat_id, tuple(chat.moved), chat.told, chat.is_forced))
            chat.moved.clear()
            chat.is_forced = False
            chat.is_reading = True
        return taken

    def told(
        self, due: DueChat, floors: Floors | None, now_ms: int, *, interval_ms: int | None = None
    ) -> None:
        """The chat's members were told these numbers; it is due again after the interval, or after
        one of its own."""
        self._chats[due.chat_id].told = floors
        self._was_read(due.chat_id, now_ms, interval_ms)

    def failed(self, due: DueChat, now_ms: int) -> None:
        """The numbers could not be read: what was to be told is still to be told."""
        chat = self._chats[due.chat_id]
        chat.moved |= dict.fromkeys(due.moved)
        chat.is_forced |= due.is_forced
        self._was_read(due.chat_id, now_ms, None)

    def _was_read(self, chat_id: ChatId, now_ms: int, interval_ms: int | None) -> None:
        chat = self._chats[chat_id]
        assert chat.is_reading
        chat.is_reading = False
        chat.next_at_ms = now_ms + (interval_ms or self._interval_ms)
        if chat.moved:
            heappush(self._waiting, (chat.next_at_ms, chat_id))

    def _forget_quiet(self) -> None:
        """Make room: a chat that is forgotten is at worst told once more than it needed to be."""
        for chat_id, chat in list(self._chats.items()):
            if not chat.moved and not chat.is_reading:
                del self._chats[chat_id]
