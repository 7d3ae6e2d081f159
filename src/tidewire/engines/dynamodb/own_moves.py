"""Moves of authors along their own messages that are not written yet. PURE.

An author who has received and read a chat up to its head has also received and read the author's
own next message. That is no news to other users, since ticks wait for the others only. So the move
is written with the author's next acknowledgement, before this process reads the positions, or after
a while. If the process dies before, that next acknowledgement makes up for it.
"""

from collections import OrderedDict
from typing import Final

from tidewire.domain.delivery import Positions
from tidewire.engines.dynamodb.known import Place

WAIT_S: Final = 31.0
"""Longer than a client takes to acknowledge its own message (30 s)."""
MOVES_MAX: Final = 5_000


class OwnMoves:
    """The waiting moves by place, the one that has waited longest first."""

    def __init__(self) -> None:
        self._moves: OrderedDict[Place, tuple[Positions, float]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._moves)

    def find(self, place: Place) -> Positions | None:
        found = self._moves.get(place)
        return None if found is None else found[0]

    def note(self, place: Place, to: Positions, now_s: float) -> bool:
        """Add a move; one that waits already goes further, and stays due when it was. False: too
        many wait."""
        before = self._moves.get(place)
        if before is None and len(self._moves) >= MOVES_MAX:
            return False
        due_at_s = now_s + WAIT_S if before is None else before[1]
        self._moves[place] = (to if before is None else to.merged(before[0]), due_at_s)
        return True

    def written(self, place: Place, to: Positions) -> None:
        """The row has these positions now. A move that has gone further since then still waits."""
        found = self._moves.get(place)
        if found is not None and found[0].merged(to) == to:
            del self._moves[place]

    def due(self, now_s: float) -> dict[Place, Positions]:
        """The moves to write now; they are due again later, in case that fails."""
        due = {}
        for place, (to, due_at_s) in self._moves.items():
            if due_at_s > now_s:
                break
            due[place] = to
        for place, to in due.items():
            self._moves[place] = (to, now_s + WAIT_S)
            self._moves.move_to_end(place)
        return due

    def all(self) -> dict[Place, Positions]:
        return {place: to for place, (to, _) in self._moves.items()}

    def next_due_s(self) -> float | None:
        return next((due_at_s for _, due_at_s in self._moves.values()), None)
