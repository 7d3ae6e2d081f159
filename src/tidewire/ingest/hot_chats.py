"""Which gateway appends to a chat that several write to: the lease of a hot chat. PURE.

A gateway whose commit came too late in a chat asks for its lease. The one that has it appends; the
others forward to it. The lease is only manners: fences decide what is stored, so one that is
lost, stale or held by two costs time and never order. It is asked for again and again while it is
of use, and lapses by itself: of use to its holder while others forward to it and it has messages
of its own, to the others while they have any.
"""

from typing import Final

import msgspec

from tidewire.domain.ids import ChatId

IN_USE_MS: Final = 3_000
"""For so long a lease is kept by what has happened last."""
LEASE_MS: Final = 2_000
"""How long a lease lasts that is not asked for again: so long the others may wait for a gateway
that has died."""
ASK_MS: Final = 500
"""How often it is asked for."""
CHATS_MAX: Final = 1_000
"""How many hot chats a gateway knows; the first of them is forgotten for one more."""

_NEVER_MS: Final = -(1 << 60)

assert 3 * ASK_MS < LEASE_MS < IN_USE_MS


class Chat(msgspec.Struct):
    """What is known of a chat in which another gateway was quicker."""

    since_ms: int
    """Since when the lease is asked for, or is with its holder."""
    holder: str = ""
    """The gateway that has the lease; empty: not known."""
    told_at_ms: int = _NEVER_MS
    own_at_ms: int = _NEVER_MS
    foreign_at_ms: int = _NEVER_MS
    """When there was something to append of this gateway, and of others, last."""
    avoided: str = ""
    """A gateway that has the lease and does not do its work: it may be taken from it."""


class HotChats:
    """The hot chats of one gateway. Time is milliseconds of a clock that only goes forward."""

    def __init__(self, gateway_id: str, *, chats_max: int = CHATS_MAX) -> None:
        self._gateway_id = gateway_id
        self._chats_max = chats_max
        self._chats: dict[ChatId, Chat] = {}

    def __len__(self) -> int:
        return len(self._chats)

    @property
    def held_count(self) -> int:
        """How many leases this gateway has."""
        return sum(chat.holder == self._gateway_id for chat in self._chats.values())

    def overtaken(self, chat_id: ChatId, now_ms: int) -> bool:
        """A commit here came too late. True: ask for the lease now."""
        if chat_id in self._chats:
            return False
        if len(self._chats) >= self._chats_max:
            del self._chats[next(iter(self._chats))]
        self._chats[chat_id] = Chat(now_ms)
        return True

    def way(self, chat_id: ChatId, now_ms: int) -> str | None:
        """There is something of this gateway to append: the gateway to forward it to; None: it is
        to be appended here."""
        chat = self._chats.get(chat_id)
        if chat is None:
            return None
        chat.own_at_ms = now_ms
        if chat.holder in ("", self._gateway_id) or now_ms - chat.told_at_ms >= LEASE_MS:
            return None
        return chat.holder

    def foreign(self, chat_id: ChatId, now_ms: int) -> None:
        """Another gateway has forwarded something to this one."""
        chat = self._chats.get(chat_id)
        if chat is not None:
            chat.foreign_at_ms = now_ms

    def wishes(self, now_ms: int) -> list[tuple[ChatId, str]]:
        """The leases to ask for now, each with the gateway that it may be taken from, if any."""
        self._chats = {
            chat_id: chat for chat_id, chat in self._chats.items() if self._is_in_use(chat, now_ms)
        }
        return [(chat_id, chat.avoided) for chat_id, chat in self._chats.items()]

    def told(self, chat_id: ChatId, holder: str, now_ms: int) -> None:
        """Who has the lease now."""
        chat = self._chats.get(chat_id)
        if chat is None:
            return
        if holder != chat.holder:
            chat.holder = holder
            chat.since_ms = now_ms
        chat.told_at_ms = now_ms
        chat.avoided = ""

    def failed(self, chat_id: ChatId, holder: str) -> bool:
        """A gateway did not append what it was forwarded. True: ask for the lease now."""
        chat = self._chats.get(chat_id)
        if chat is None or chat.holder != holder:
            return False
        chat.holder, chat.avoided = "", holder
        return True

    def forget(self) -> None:
        """No gateway can be asked: everything is appended here."""
        self._chats.clear()

    def _is_in_use(self, chat: Chat, now_ms: int) -> bool:
        def is_recent(at_ms: int) -> bool:
            return now_ms - max(at_ms, chat.since_ms) <= IN_USE_MS

        if chat.holder == self._gateway_id:
            return is_recent(chat.own_at_ms) and is_recent(chat.foreign_at_ms)
        return is_recent(chat.own_at_ms)
