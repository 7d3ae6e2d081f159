"""Many deadlines, one timer: items lie in slots of time until their slot has passed. PURE.

A deadline that moves away is left where it is: whoever is found too early is put in again. One that
comes nearer is put in once more, and the item itself knows which of its places is the valid one.
"""

from typing import Final, Generic, TypeVar

Item = TypeVar("Item")

SLOT_MS: Final = 500
"""Deadlines are met this much late at worst."""


class Wheel(Generic[Item]):
    def __init__(self, now_ms: int) -> None:
        self._slots: dict[int, list[Item]] = {}
        self._next_slot = now_ms // SLOT_MS

    def put(self, item: Item, at_ms: int) -> int:
        """Have the item come out when this instant has passed; the slot it lies in."""
        slot = max(at_ms // SLOT_MS, self._next_slot)
        items = self._slots.get(slot)
        if items is None:
            self._slots[slot] = [item]
        else:
            items.append(item)
        return slot

    def take(self, now_ms: int) -> list[tuple[int, list[Item]]]:
        """The slots that have passed wholly, with what is in them, earliest first."""
        end_slot = now_ms // SLOT_MS
        taken = []
        while self._next_slot < end_slot:
            items = self._slots.pop(self._next_slot, None)
            if items is not None:
                taken.append((self._next_slot, items))
            self._next_slot += 1
        return taken
