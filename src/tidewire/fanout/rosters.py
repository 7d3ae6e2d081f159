"""Who is in which chat, remembered by membership version. PURE.

A roster is good for an event if it is at least as new as the event: then no member who was removed
before the event gets it. Events of changes keep rosters current without a read of the store. A
block changes a roster without an event: a read under way at that time is repeated. A process that
hears of no events trusts a roster only for a while.
"""

import msgspec

from tidewire.domain.chats import Roster, roster_of
from tidewire.domain.events import ChatCreated, ChatRenamed, MembershipChange, MembershipChanged
from tidewire.domain.ids import ChatId


class Reading(msgspec.Struct, eq=False):
    """A roster that is being read from the store."""

    chat_id: ChatId
    began_at_ms: int
    is_outdated: bool = False


class Rosters:
    """A bounded memory; the roster used longest ago is forgotten first. Time only goes forward."""

    def __init__(self, *, rosters_max: int, users_max: int, age_ms_max: int | None = None) -> None:
        """`age_ms_max` is how long a roster is good for callers that ask for no version."""
        assert rosters_max >= 1
        self._age_ms_max = age_ms_max
        self._rosters_max = rosters_max
        self._users_max = users_max
        # A dict keeps the order of insertion: using a roster puts it at the end.
        self._rosters: dict[ChatId, Roster] = {}
        # The time as of which each roster is known; kept only if there is an `age_ms_max`.
        self._as_of_ms: dict[ChatId, int] = {}
        self._users = 0
        # The reads under way; the readers bound their number.
        self._readings: dict[ChatId, list[Reading]] = {}

    def __len__(self) -> int:
        return len(self._rosters)

    @property
    def users_count(self) -> int:
        return self._users

    def find(self, chat_id: ChatId, version: int, now_ms: int) -> Roster | None:
        """The roster of a chat if it is known and at least this new. Version 0: any roster that is
        not too old."""
        roster = self._rosters.get(chat_id)
        if roster is None or roster.membership_version < version:
            return None
        if version == 0 and self._is_too_old(chat_id, now_ms):
            return None
        if len(self._rosters) > 1:
            del self._rosters[chat_id]
            self._rosters[chat_id] = roster
        return roster

    def _is_too_old(self, chat_id: ChatId, now_ms: int) -> bool:
        age_ms_max = self._age_ms_max
        return age_ms_max is not None and now_ms - self._as_of_ms[chat_id] > age_ms_max

    def learn(self, roster: Roster, as_of_ms: int) -> None:
        """Remember a roster as it was then, unless a newer one is known (M-01)."""
        known = self._rosters.get(roster.chat_id)
        if known is not None and known.membership_version > roster.membership_version:
            return
        self.forget(roster.chat_id)
        self._rosters[roster.chat_id] = roster
        if self._age_ms_max is not None:
            self._as_of_ms[roster.chat_id] = as_of_ms
        self._users += len(roster.user_ids)
        while len(self._rosters) > self._rosters_max or (
            self._users > self._users_max and len(self._rosters) > 1
        ):
            self.forget(next(iter(self._rosters)))

    def forget(self, chat_id: ChatId) -> None:
        known = self._rosters.pop(chat_id, None)
        if known is not None:
            self._users -= len(known.user_ids)
            self._as_of_ms.pop(chat_id, None)

    def forget_all(self) -> None:
        """Forget all rosters, because this process may have missed changes."""
        for chat_id in [*self._rosters, *self._readings]:
            self.changed(chat_id)

    def changed(self, chat_id: ChatId) -> None:
        """Forget a roster that has changed in a way that no event tells."""
        self.forget(chat_id)
        for reading in self._readings.get(chat_id, ()):
            reading.is_outdated = True

    def begin_reading(self, chat_id: ChatId, now_ms: int) -> Reading:
        """Begin to read a roster. `end_reading` must follow, also after a failure."""
        reading = Reading(chat_id, now_ms)
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

    def follow(self, event: ChatCreated | ChatRenamed | MembershipChanged, now_ms: int) -> None:
        """Bring the chat's roster up to date with a change, or forget it if a change was missed."""
        chat = event.chat
        version = chat.membership_version
        if isinstance(event, ChatCreated):
            self.learn(Roster(chat.chat_id, version, event.member_ids), now_ms)
            return
        known = self._rosters.get(chat.chat_id)
        if known is None or known.membership_version >= version:
            return
        if known.membership_version != version - 1:
            self.forget(chat.chat_id)
            return
        members = {user_id: known.joined.get(user_id, 0) for user_id in known.user_ids}
        if isinstance(event, MembershipChanged):
            if event.change is MembershipChange.ADDED:
                members[event.user_id] = event.joined_sequence
            elif event.change is MembershipChange.REMOVED:
                members.pop(event.user_id, None)
        self.learn(roster_of(chat.chat_id, version, members, has_block=known.has_block), now_ms)
