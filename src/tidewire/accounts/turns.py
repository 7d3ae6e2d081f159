"""The queue before the password hash: short, and fair by address, not by arrival alone. PURE.

The next one is whose sender has asked for the least lately; equals are served in the order in which
they came. That is looked at when a place becomes free, not when it was taken: an address that goes
on asking moves back with all it has in the queue. When the queue is full, its last place is given
up for a better one. So a flood waits behind itself, and somebody who logs in once passes it.
"""

from collections.abc import Callable
from typing import Generic, NamedTuple, TypeVar

Ticket = TypeVar("Ticket")
Rank = Callable[[], int]
"""How much the sender has asked for lately, as of now: the lower, the sooner."""


class _Place(NamedTuple, Generic[Ticket]):
    ticket: Ticket
    rank: Rank


class Turns(Generic[Ticket]):
    """Tickets that wait. At most `waiting_max`: few enough to look at all of them each time."""

    def __init__(self, *, waiting_max: int) -> None:
        assert waiting_max >= 0
        self._waiting_max = waiting_max
        # In the order in which they came.
        self._places: list[_Place[Ticket]] = []

    def __len__(self) -> int:
        return len(self._places)

    def enter(self, ticket: Ticket, rank: Rank) -> Ticket | None:
        """Take a place. At the bound somebody has to go, whose ticket is returned: the last one in
        line, which may be the one that came."""
        self._places.append(_Place(ticket, rank))
        if len(self._places) <= self._waiting_max:
            return None
        ranks = [place.rank() for place in self._places]
        worst = max(range(len(ranks)), key=lambda index: (ranks[index], index))
        return self._places.pop(worst).ticket

    def leave(self, ticket: Ticket) -> None:
        """Give the place up, if there is still one."""
        self._places = [place for place in self._places if place.ticket is not ticket]

    def take(self) -> Ticket | None:
        """Whose turn it is."""
        if not self._places:
            return None
        ranks = [place.rank() for place in self._places]
        return self._places.pop(ranks.index(min(ranks))).ticket
