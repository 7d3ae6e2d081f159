"""Caches the members of chats, each as of one membership version. PURE.

Every change of members raises the version of its chat, so cached members are right if the head row
shows the same version. A chat with another version is read anew.
"""

from collections import OrderedDict
from collections.abc import Mapping
from typing import Final, Generic, TypeVar

from tidewire.domain.ids import ChatId, UserId

MEMBERS_MAX: Final = 200_000
"""Over all chats; a member takes a few hundred bytes."""

SENDERS_MAX: Final = 100
"""Of one chat, outsiders who send to it included."""

State = TypeVar("State")


def latest(senders: Mapping[UserId, State]) -> dict[UserId, State]:
    """The senders of a chat to keep: those found last, up to the bound."""
    return dict(list(senders.items())[-SENDERS_MAX:])


class MemberCache(Generic[State]):
    """A bounded cache; the chat used longest ago is forgotten first."""

    def __init__(self, members_max: int = MEMBERS_MAX) -> None:
        self._members_max = members_max
        self._chats: OrderedDict[ChatId, tuple[int, Mapping[UserId, State]]] = OrderedDict()
        self._members = 0

    def __len__(self) -> int:
        return len(self._chats)

    def find(self, chat_id: ChatId, version: int) -> Mapping[UserId, State] | None:
        entry = self._chats.get(chat_id)
        if entry is None or entry[0] != version:
            return None
        self._chats.move_to_end(chat_id)
        return entry[1]

    def remember(self, chat_id: ChatId, version: int, members: Mapping[UserId, State]) -> None:
        """Keep the members, unless a newer version is known."""
        known = self._chats.get(chat_id)
        if known is not None:
            if known[0] > version:
                return
            self._forget(chat_id)
        self._chats[chat_id] = (version, members)
        self._members += len(members)
        while self._members > self._members_max and len(self._chats) > 1:
            self._forget(next(iter(self._chats)))

    def _forget(self, chat_id: ChatId) -> None:
        self._members -= len(self._chats.pop(chat_id)[1])
