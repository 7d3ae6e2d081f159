"""Which chats need a page of messages, from when on, and how many are requested at once. PURE."""

from typing import TYPE_CHECKING

from tidewire.client.options import ClientOptions, backoff_ms
from tidewire.client.replica import Replica
from tidewire.domain.ids import ChatId

if TYPE_CHECKING:
    from random import Random


class Syncs:
    def __init__(self, options: ClientOptions, random: "Random") -> None:
        self._options = options
        self._random = random
        # Chats that need a page, and from what time on; requested in this order.
        self._wanted: dict[ChatId, tuple[Replica, int]] = {}
        # No chat is due before this time, so that not every frame has to look at every chat.
        self._wanted_from_ms = 0
        self._asked: dict[ChatId, None] = {}
        self._failures: dict[ChatId, int] = {}

    def clear(self) -> None:
        self._wanted.clear()
        self._asked.clear()
        self._failures.clear()

    def want(self, replica: Replica, from_ms: int) -> None:
        """Request a page of this chat, at this time at the earliest; only one at a time. The wait
        after a failure stands: a push does not say that the server can answer by now."""
        chat_id = replica.chat_id
        if chat_id in self._asked:
            return
        known = self._wanted.get(chat_id)
        if known is None or (from_ms < known[1] and chat_id not in self._failures):
            self._put(replica, from_ms)

    def forget(self, chat_id: ChatId) -> None:
        self._wanted.pop(chat_id, None)
        self._failures.pop(chat_id, None)

    def take(self, now_ms: int) -> list[Replica]:
        """Chats whose page is to be requested now, as far as the bound allows. They count as
        requested until `answered`."""
        room = self._options.syncs_max - len(self._asked)
        if room <= 0 or not self._wanted or now_ms < self._wanted_from_ms:
            return []
        due: list[Replica] = []
        for chat_id, (replica, from_ms) in list(self._wanted.items()):
            if from_ms > now_ms:
                continue
            del self._wanted[chat_id]
            # What was missing may have come meanwhile.
            if replica.is_behind:
                self._asked[chat_id] = None
                due.append(replica)
                if len(due) == room:
                    break
        self._wanted_from_ms = min((from_ms for _, from_ms in self._wanted.values()), default=0)
        return due

    def answered(self, chat_id: ChatId) -> None:
        self._asked.pop(chat_id, None)

    def succeeded(self, chat_id: ChatId) -> None:
        self._failures.pop(chat_id, None)

    def failed(self, replica: Replica, now_ms: int, retry_after_ms: int) -> None:
        """Ask again after a wait, even if an earlier time was planned before or is wanted then."""
        failures = self._failures[replica.chat_id] = self._failures.get(replica.chat_id, 0) + 1
        wait_ms = backoff_ms(failures, self._random, self._options)
        self._put(replica, now_ms + max(wait_ms, retry_after_ms))

    def next_deadline_ms(self) -> int | None:
        """When `take` may have a chat; None if none waits or the bound is reached."""
        has_room = len(self._asked) < self._options.syncs_max
        return self._wanted_from_ms if self._wanted and has_room else None

    def _put(self, replica: Replica, from_ms: int) -> None:
        self._wanted.pop(replica.chat_id, None)
        is_first = not self._wanted
        self._wanted[replica.chat_id] = (replica, from_ms)
        self._wanted_from_ms = from_ms if is_first else min(from_ms, self._wanted_from_ms)
