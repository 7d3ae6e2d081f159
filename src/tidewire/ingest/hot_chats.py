"""Which gateway appends to a chat that several write to: the lease of a hot chat. PURE.

A gateway whose commit in a chat came too late asks for the chat's lease. The holder appends, the
others forward to it. The lease is advisory: fences decide what is stored, so a lease that is lost,
stale or held by two costs time and never order. A gateway asks for it repeatedly while it is in
use; else the lease expires. The holder uses it while others forward to it and it has messages of
its own; another gateway uses it while it has messages of its own.
"""

from typing import Final

import msgspec

from tidewire.domain.ids import ChatId

IN_USE_MS: Final = 3_000
"""How long a lease counts as in use after the last message."""
LEASE_MS: Final = 2_000
"""How long a lease lasts that is not asked for again. Others may wait this long for a gateway that
has died."""
ASK_MS: Final = 500
"""How often a lease is asked for."""
CHATS_MAX: Final = 1_000
"""How many hot chats a gateway knows; beyond it the first of them is forgotten."""

_NEVER_MS: Final = -(1 << 60)

assert 3 * ASK_MS < LEASE_MS < IN_USE_MS


class Chat(msgspec.Struct):
    """State of a hot chat: another gateway has committed first in it."""

    since_ms: int
    """Since when this gateway asks for the lease, or its holder has it."""
    holder: str = ""
    """The gateway that has the lease; empty: not known."""
    told_at_ms: int = _NEVER_MS
    own_at_ms: int = _NEVER_MS
    foreign_at_ms: int = _NEVER_MS
    """When this gateway (own), and others (foreign), last had messages to append."""
    avoided: str = ""
    """A gateway that has the lease but does not append: the lease may be taken from it."""


class HotChats:
    """The hot chats of one gateway. Time is milliseconds of a monotonic clock."""

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
        """The gateway to forward to, now that this one has messages to append; None: append them
        here."""
        chat = self._chats.get(chat_id)
        if chat is None:
            return None
        chat.own_at_ms = now_ms
        if chat.holder in ("", self._gateway_id) or now_ms - chat.told_at_ms >= LEASE_MS:
            return None
        return chat.holder

    def foreign(self, chat_id: ChatId, now_ms: int) -> None:
        """Another gateway has forwarded sends to this one."""
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
        """Note which gateway has the lease now."""
        chat = self._chats.get(chat_id)
        if chat is None:
            return
        if holder != chat.holder:
            chat.holder = holder
            chat.since_ms = now_ms
        chat.told_at_ms = now_ms
        chat.avoided = ""

    def failed(self, chat_id: ChatId, holder: str) -> bool:
        """A gateway did not append the sends forwarded to it. True: ask for the lease now."""
        chat = self._chats.get(chat_id)
        if chat is None or chat.holder != holder:
            return False
        chat.holder, chat.avoided = "", holder
        return True

    def forget(self) -> None:
        """Forget all hot chats: leases cannot be asked for, so everything is appended here."""
        self._chats.clear()

    def _is_in_use(self, chat: Chat, now_ms: int) -> bool:
        def is_recent(at_ms: int) -> bool:
            return now_ms - max(at_ms, chat.since_ms) <= IN_USE_MS

        if chat.holder == self._gateway_id:
            return is_recent(chat.own_at_ms) and is_recent(chat.foreign_at_ms)
        return is_recent(chat.own_at_ms)
