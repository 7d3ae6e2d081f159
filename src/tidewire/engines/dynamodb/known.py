"""What this process knows of heads and positions: lower bounds, since both only grow. PURE.

An advance that is not above a known head needs no read of the head; one that is not above known
positions moves nothing, and is answered by a read instead of a write.
"""

from collections import OrderedDict
from collections.abc import Hashable
from typing import Final, Generic, TypeVar

from tidewire.domain.delivery import Positions
from tidewire.domain.ids import ChatId, UserId

HEADS_MAX: Final = 100_000
POSITIONS_MAX: Final = 200_000

Place = tuple[ChatId, UserId]
Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class Recent(Generic[Key, Value]):
    """A bounded cache; what was noted or found longest ago is forgotten first."""

    def __init__(self, count_max: int) -> None:
        self._count_max = count_max
        self._values: OrderedDict[Key, Value] = OrderedDict()

    def __len__(self) -> int:
        return len(self._values)

    def find(self, key: Key) -> Value | None:
        value = self._values.get(key)
        if value is not None:
            self._values.move_to_end(key)
        return value

    def note(self, key: Key, value: Value) -> None:
        self._values[key] = value
        self._values.move_to_end(key)
        if len(self._values) > self._count_max:
            self._values.popitem(last=False)

    def forget(self, key: Key) -> None:
        self._values.pop(key, None)


class Known:
    def __init__(self, *, heads_max: int = HEADS_MAX, positions_max: int = POSITIONS_MAX) -> None:
        self._heads: Recent[ChatId, int] = Recent(heads_max)
        self._positions: Recent[Place, Positions] = Recent(positions_max)

    def head(self, chat_id: ChatId) -> int | None:
        """The chat has messages up to here at least; None if nothing is known of it."""
        return self._heads.find(chat_id)

    def saw_head(self, chat_id: ChatId, head: int) -> None:
        """Note a head of the chat: read, committed here, or announced by the committing process."""
        self._heads.note(chat_id, max(head, self._heads.find(chat_id) or 0))

    def forget_head(self, chat_id: ChatId) -> None:
        """Forget a chat that is gone."""
        self._heads.forget(chat_id)

    def positions(self, place: Place) -> Positions | None:
        return self._positions.find(place)

    def saw_positions(self, place: Place, positions: Positions) -> None:
        before = self._positions.find(place)
        self._positions.note(place, positions if before is None else positions.merged(before))
