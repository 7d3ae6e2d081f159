"""Gathers acknowledgements until they are written: many in, few out, the highest wins. PURE.

Positions only grow, so only the highest of each kind counts for one user and chat. They are kept
apart by origin (the connection they came from): a position that is refused because it lies above
the head must not cause the refusal of another device's good one.
"""

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Generic, TypeVar

from tidewire.domain.delivery import Advance, Advanced, AdvanceOutcome
from tidewire.domain.errors import is_away
from tidewire.domain.ids import ChatId, UserId

Origin = TypeVar("Origin")
_Key = tuple[Origin, UserId, ChatId]


class Tracker(Generic[Origin]):
    """At most one batch is being written, and beside it wishes taken of single users. Wishes that
    come meanwhile go into the next batch."""

    def __init__(self, *, waiting_max: int, batch_max: int) -> None:
        assert waiting_max >= 1
        assert batch_max >= 1
        self._waiting_max = waiting_max
        self._batch_max = batch_max
        # Dicts keep the order of arrival, so no wish waits for long.
        self._waiting: dict[_Key[Origin], Advance] = {}
        self._writing: dict[_Key[Origin], Advance] = {}
        # Users with a waiting position, and its origins; some may have been taken meanwhile.
        self._who: dict[tuple[UserId, ChatId], set[Origin]] = {}

    @property
    def waiting_count(self) -> int:
        return len(self._waiting)

    @property
    def is_idle(self) -> bool:
        return not self._waiting and not self._writing

    def offer(self, origin: Origin, wish: Advance) -> bool:
        """Add a wish. False if there is no room for another origin, user and chat: the client sends
        it again, with its next message or its next connection."""
        key = (origin, wish.user_id, wish.chat_id)
        before = self._waiting.get(key)
        if before is None and len(self._waiting) >= self._waiting_max:
            return False
        self._waiting[key] = wish if before is None else _merged(before, wish)
        self._who.setdefault(key[1:], set()).add(origin)
        return True

    def may_wait(self, user_id: UserId, chat_id: ChatId) -> bool:
        """False if no wish of this user in this chat waits, from any origin."""
        return (user_id, chat_id) in self._who

    def take(self, count_max: int | None = None) -> list[Advance]:
        """The wishes to write now, at most so many; none while a batch is being written."""
        if self._writing or not self._waiting:
            return []
        count_max = self._batch_max if count_max is None else min(count_max, self._batch_max)
        if len(self._waiting) <= count_max:
            self._writing, self._waiting = self._waiting, {}
            self._who.clear()
        else:
            for key in list(islice(self._waiting, count_max)):
                self._writing[key] = self._waiting.pop(key)
        return list(self._writing.values())

    def take_of(self, user_id: UserId, chat_id: ChatId) -> list[tuple[Origin, Advance]]:
        """Take the waiting wishes of one user in one chat, even while a batch is being written. The
        caller owns them from here on (`give_back`)."""
        taken = []
        for origin in self._who.pop((user_id, chat_id), ()):
            wish = self._waiting.pop((origin, user_id, chat_id), None)
            if wish is not None:
                taken.append((origin, wish))
        return taken

    def give_back(self, taken: Iterable[tuple[Origin, Advance]]) -> None:
        """Wishes that were taken of one user could not be written: let them wait again. This may
        exceed the bound by as many as were taken."""
        for origin, wish in taken:
            key = (origin, wish.user_id, wish.chat_id)
            newer = self._waiting.get(key)
            self._waiting[key] = wish if newer is None else _merged(wish, newer)
            self._who.setdefault(key[1:], set()).add(origin)

    def completed(
        self, outcomes: Sequence[AdvanceOutcome]
    ) -> list[tuple[Origin, Advance, AdvanceOutcome]]:
        """The batch is written: each decided wish with its origin and outcome. Only wishes that the
        store could not write wait again; damage is an outcome, because a retry meets it again."""
        assert len(outcomes) == len(self._writing)
        answers, failed = [], {}
        for (key, wish), outcome in zip(self._writing.items(), outcomes, strict=True):
            if isinstance(outcome, Advanced) or not is_away(outcome):
                answers.append((key[0], wish, outcome))
            else:
                failed[key] = wish
        self._writing = failed
        if failed:
            self.failed()
        return answers

    def dropped(self) -> None:
        """The batch can never be written: drop it. Its clients acknowledge again some day."""
        self._writing = {}

    def failed(self) -> None:
        """The batch could not be written: it waits again, merged with wishes that came meanwhile.

        This may exceed the bound by one batch, so that no accepted wish is dropped.
        """
        again, self._writing = self._writing, {}
        for key, wish in self._waiting.items():
            again[key] = _merged(again[key], wish) if key in again else wish
        self._waiting = again
        for key in again:
            self._who.setdefault(key[1:], set()).add(key[0])


def _merged(one: Advance, other: Advance) -> Advance:
    return Advance(
        user_id=one.user_id,
        chat_id=one.chat_id,
        delivered=max(one.delivered, other.delivered),
        read=max(one.read, other.read),
    )
