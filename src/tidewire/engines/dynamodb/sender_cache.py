"""The memberships of those who write, each with the version it was read under. PURE.

A membership is good for a commit that is fenced by the same version; a chat with another version
begins anew. Whoever is not a member is remembered as well.
"""

from collections import OrderedDict
from typing import Final

from tidewire.domain.ids import ChatId, UserId
from tidewire.engines.dynamodb.values import MemberState

CHATS_MAX: Final = 10_000
SENDERS_MAX: Final = 100
"""Per chat: more write in turns than at once."""

Senders = OrderedDict[UserId, MemberState | None]


class SenderCache:
    def __init__(self, chats_max: int = CHATS_MAX, senders_max: int = SENDERS_MAX) -> None:
        self._chats_max = chats_max
        self._senders_max = senders_max
        self._chats: OrderedDict[ChatId, tuple[int, Senders]] = OrderedDict()

    def known(self, chat_id: ChatId, version: int) -> dict[UserId, MemberState | None]:
        """Who is known of a chat as of this version."""
        entry = self._chats.get(chat_id)
        if entry is None or entry[0] != version:
            return {}
        self._chats.move_to_end(chat_id)
        return dict(entry[1])

    def remember(
        self, chat_id: ChatId, version: int, members: dict[UserId, MemberState | None]
    ) -> None:
        entry = self._chats.get(chat_id)
        senders = Senders() if entry is None or entry[0] != version else entry[1]
        for user_id, state in members.items():
            senders[user_id] = state
            senders.move_to_end(user_id)
        while len(senders) > self._senders_max:
            senders.popitem(last=False)
        self._chats[chat_id] = (version, senders)
        self._chats.move_to_end(chat_id)
        while len(self._chats) > self._chats_max:
            self._chats.popitem(last=False)
