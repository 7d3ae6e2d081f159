"""Who is in which chat, remembered by membership version. PURE.

A roster is good for an event if it is at least as new as the event: then nobody who was removed
before it gets it. Events of changes keep rosters current without asking the store. A block changes
a roster without an event: whoever was reading it then has to read it again.
"""

from collections.abc import Sequence

from tidewire.domain.chats import Roster
from tidewire.domain.events import ChatCreated, ChatRenamed, MembershipChange, MembershipChanged
from tidewire.domain.ids import ChatId, UserId


class Reading:
    """A roster that is being read from the store."""

    __slots__ = ("chat_id", "is_outdated")

    def __init__(self, chat_id: ChatId) -> None:
        self.chat_id = chat_id
        self.is_outdated = False


class Rosters:
    """A bounded memory; the roster used longest ago is forgotten first."""

    def __init__(self, *, rosters_max: int, users_max: int) -> None:
        assert rosters_max >= 1
        self._rosters_max = rosters_max
        self._users_max = users_max
        # A dict keeps the order of insertion: using a roster puts it at the end.
        self._rosters: dict[ChatId, Roster] = {}
        self._users = 0
        # Only those that are under way, whose number the readers bound.
        self._readings: dict[ChatId, list[Reading]] = {}

    def __len__(self) -> int:
        return len(self._rosters)

    @property
    def users_count(self) -> int:
        return self._users

    def find(self, chat_id: ChatId, version: int) -> Roster | None:
        """The roster of a chat if it is known and at least this new."""
        roster = self._rosters.get(chat_id)
        if roster is None or roster.membership_version < version:
            return None
        if len(self._rosters) > 1:
            del self._rosters[chat_id]
            self._rosters[chat_id] = roster
        return roster

    def learn(self, roster: Roster) -> None:
        """Remember a roster, unless a newer one is known (M-01)."""
        known = self._rosters.get(roster.chat_id)
        if known is not None and known.membership_version > roster.membership_version:
            return
        self.forget(roster.chat_id)
        self._rosters[roster.chat_id] = roster
        self._users += len(roster.user_ids)
        while len(self._rosters) > self._rosters_max or (
            self._users > self._users_max and len(self._rosters) > 1
        ):
            self.forget(next(iter(self._rosters)))

    def forget(self, chat_id: ChatId) -> None:
        known = self._rosters.pop(chat_id, None)
        if known is not None:
            self._users -= len(known.user_ids)

    def changed(self, chat_id: ChatId) -> None:
        """The roster is another one now, and no event tells how."""
        self.forget(chat_id)
        for reading in self._readings.get(chat_id, ()):
            reading.is_outdated = True

    def begin_reading(self, chat_id: ChatId) -> Reading:
        """A roster is about to be read. `end_reading` has to follow, whatever becomes of it."""
        reading = Reading(chat_id)
        self._readings.setdefault(chat_id, []).append(reading)
        return reading

    def end_reading(self, reading: Reading) -> None:
        readings = self._readings[reading.chat_id]
        readings.remove(reading)
        if not readings:
            del self._readings[reading.chat_id]

    @property
    def readings_count(self) -> int:
        return sum(map(len, self._readings.values()))

    def follow(self, event: ChatCreated | ChatRenamed | MembershipChanged) -> None:
        """Bring the chat's roster up to date with a change, or forget it if a change was missed."""
        chat = event.chat
        version = chat.membership_version
        if isinstance(event, ChatCreated):
            self.learn(Roster(chat.chat_id, version, event.member_ids))
            return
        known = self._rosters.get(chat.chat_id)
        if known is None or known.membership_version >= version:
            return
        if known.membership_version != version - 1:
            self.forget(chat.chat_id)
            return
        users = known.user_ids
        if isinstance(event, MembershipChanged):
            users = _changed(users, event)
        self.learn(Roster(chat.chat_id, version, users, known.has_block))


def _changed(users: Sequence[UserId], event: MembershipChanged) -> Sequence[UserId]:
    if event.change is MembershipChange.ADDED:
        return (*users, event.user_id)
    if event.change is MembershipChange.REMOVED:
        return tuple(user_id for user_id in users if user_id != event.user_id)
    return users
