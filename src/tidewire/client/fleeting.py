"""Events that are not stored: only the latest of each kind counts, and only so many. PURE."""

from tidewire.client.model import Event


class Fleeting:
    def __init__(self, events_max: int) -> None:
        self._events_max = events_max
        self._events: dict[tuple[str, ...], Event] = {}

    def put(self, key: tuple[str, ...], event: Event) -> None:
        """The latest of its key takes the place of the one before; the oldest goes if too many."""
        self._events.pop(key, None)
        self._events[key] = event
        if len(self._events) > self._events_max:
            del self._events[next(iter(self._events))]

    def take(self) -> list[Event]:
        events = list(self._events.values())
        self._events.clear()
        return events
