"""Decides when to tell which chat about ticks: the latest numbers, never a queue of them. PURE.

A chat whose positions moved is due at once if nothing was told for a while, and otherwise when the
interval has passed. The numbers are looked up only then, so they are always the latest.
"""

from heapq import heappop, heappush

import msgspec

from tidewire.domain.delivery import Floors
from tidewire.domain.ids import ChatId, UserId


class DueChat(msgspec.Struct, frozen=True):
    """A chat to read and tell about: the users who moved, and the numbers that all members were
    told last. With None for `told`, the numbers are told even where nothing has changed."""

    chat_id: ChatId
    moved: tuple[UserId, ...]
    told: Floors | None
    elsewhere: tuple[UserId, ...] = ()
    """Who moved at other processes."""


class _ChatTicks(msgspec.Struct, eq=False):
    moved: dict[UserId, None] = {}
    """The users who moved since the numbers were read last."""
    elsewhere: dict[UserId, None] = {}
    """The same at other processes."""
    is_touched: bool = False
    """The numbers may have changed although no position moved."""
    next_at_ms: int = 0
    told: Floors | None = None
    is_missed: bool = False
    """A member may have missed the last status."""
    is_reading: bool = False

    @property
    def is_waiting(self) -> bool:
        """True if there are numbers to tell, and they are not being read."""
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
        """A user's positions moved. False if there is no room for another chat: then the chat is
        told at its next move."""
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
        """The numbers of a chat may have changed although no position moved."""
        chat = self._waiting_chat(chat_id)
        if chat is not None:
            chat.is_touched = True

    def _waiting_chat(self, chat_id: ChatId) -> _ChatTicks | None:
        """The chat, put among those that wait if it is new there; None if there is no room."""
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
        """This user may have missed the last status: tell the chat as if no member knew it."""
        if self.moved(chat_id, user_id):
            self._chats[chat_id].is_missed = True

    def next_at_ms(self) -> int | None:
        """When the next chat is due; None if none waits."""
        return self._waiting[0][0] if self._waiting else None

    def take(self, now_ms: int, count_max: int) -> list[DueChat]:
        """The chats that are due now, at most so many. `told` or `failed` must follow for each."""
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
        """The chat's members were told these numbers; the chat is not due again before the
        interval has passed, or `interval_ms` if given."""
        self._chats[due.chat_id].told = floors
        self._was_read(due.chat_id, now_ms, interval_ms)

    def failed(self, due: DueChat, now_ms: int) -> None:
        """The numbers could not be read: the chat is due again after the interval."""
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
        """Make room: a chat that is forgotten is at worst told once more than necessary."""
        for chat_id, chat in list(self._chats.items()):
            if not chat.has_news and not chat.is_reading:
                del self._chats[chat_id]
