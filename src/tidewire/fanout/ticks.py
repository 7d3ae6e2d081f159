"""When to tell whom about ticks: the latest numbers, now and then, never a queue. PURE.

A chat whose positions moved is due at once if nothing was told for a while, and otherwise when the
interval has passed. What is told is read from the store at that time, so it is always the latest.
"""

from heapq import heappop, heappush

import msgspec

from tidewire.domain.delivery import Floors
from tidewire.domain.ids import ChatId, UserId


class DueChat(msgspec.Struct, frozen=True):
    """A chat to read and tell about: who moved, and what all members were told last time, if they
    were: None has the numbers told also where nothing has changed."""

    chat_id: ChatId
    moved: tuple[UserId, ...]
    told: Floors | None
    elsewhere: tuple[UserId, ...] = ()
    """Who moved at other processes."""


class _ChatTicks(msgspec.Struct, eq=False):
    moved: dict[UserId, None] = {}
    """Who moved since the numbers were read last."""
    elsewhere: dict[UserId, None] = {}
    """The same at other processes."""
    is_touched: bool = False
    """The numbers may be others though no position moved."""
    next_at_ms: int = 0
    told: Floors | None = None
    is_missed: bool = False
    """A member may not have got what was told."""
    is_reading: bool = False

    @property
    def is_waiting(self) -> bool:
        """There is something to tell, and it is not being read."""
        return not self.is_reading and self.has_news

    @property
    def has_news(self) -> bool:
        return bool(self.moved or self.elsewhere or self.is_touched)


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

    def moved(self, chat_id: ChatId, user_id: UserId) -> bool:
        """A user's positions moved. False if there is no room for another chat: the next move of
        it is told."""
        chat = self._waiting_chat(chat_id)
        if chat is not None:
            chat.moved[user_id] = None
        return chat is not None

    def moved_elsewhere(self, chat_id: ChatId, user_id: UserId) -> None:
        """The same at another process."""
        chat = self._waiting_chat(chat_id)
        if chat is not None:
            chat.elsewhere[user_id] = None

    def touched(self, chat_id: ChatId) -> None:
        """The numbers of a chat may be others though no position moved."""
        chat = self._waiting_chat(chat_id)
        if chat is not None:
            chat.is_touched = True

    def _waiting_chat(self, chat_id: ChatId) -> _ChatTicks | None:
        """The chat, which is going to have something to tell; None if there is no room for it."""
        chat = self._chats.get(chat_id)
        if chat is None:
            if len(self._chats) >= self._chats_max:
                self._forget_quiet()
            if len(self._chats) >= self._chats_max:
                return None
            chat = self._chats[chat_id] = _ChatTicks()
        if not chat.has_news and not chat.is_reading:
            heappush(self._waiting, (chat.next_at_ms, chat_id))
        return chat

    def missed(self, chat_id: ChatId, user_id: UserId) -> None:
        """This user may have missed the last status: as if no member had been told anything."""
        if self.moved(chat_id, user_id):
            self._chats[chat_id].is_missed = True

    def next_at_ms(self) -> int | None:
        """When the next chat is due; None if none waits."""
        return self._waiting[0][0] if self._waiting else None

    def take(self, now_ms: int, count_max: int) -> list[DueChat]:
        """The chats that are due now, at most so many. Each is then told, or failed."""
        taken: list[DueChat] = []
        while self._waiting and self._waiting[0][0] <= now_ms and len(taken) < count_max:
            _, chat_id = heappop(self._waiting)
            chat = self._chats[chat_id]
            told = None if chat.is_missed else chat.told
            taken.append(DueChat(chat_id, tuple(chat.moved), told, tuple(chat.elsewhere)))
            chat.moved.clear()
            chat.elsewhere.clear()
            chat.is_touched = False
            chat.is_missed = False
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
        chat.elsewhere |= dict.fromkeys(due.elsewhere)
        chat.is_touched = True
        chat.told = due.told
        self._was_read(due.chat_id, now_ms, None)

    def _was_read(self, chat_id: ChatId, now_ms: int, interval_ms: int | None) -> None:
        chat = self._chats[chat_id]
        assert chat.is_reading
        chat.is_reading = False
        chat.next_at_ms = now_ms + (interval_ms or self._interval_ms)
        if chat.is_waiting:
            heappush(self._waiting, (chat.next_at_ms, chat_id))

    def _forget_quiet(self) -> None:
        """Make room: a chat that is forgotten is at worst told once more than it needed to be."""
        for chat_id, chat in list(self._chats.items()):
            if not chat.has_news and not chat.is_reading:
                del self._chats[chat_id]
