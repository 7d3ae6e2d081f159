"""What a gateway knows of its own stream: which entry comes next, and what is late. PURE.

Every entry carries its number, and the counter says how many there are. A step other than +1, a
counter that went back, or entries that are there by the counter and do not come: each means that
something was lost, whatever it was, and all clients connected here have to sync again.
"""


class Ledger:
    """One gateway's, for one incarnation at a time. Time only goes forward."""

    def __init__(self, *, drain_ms: int) -> None:
        self._drain_ms = drain_ms
        self.number = 0
        """Of the last entry that was drained."""
        self._awaited = 0
        self._due_at_ms: int | None = None

    def begin(self) -> None:
        """Another incarnation: its counter starts at 0."""
        self.number = 0
        self._awaited = 0
        self._due_at_ms = None

    def step(self, number: int) -> bool:
        """An entry came; False if it is not the next one."""
        if number != self.number + 1:
            return False
        self.number = number
        if self._due_at_ms is not None and number >= self._awaited:
            self._due_at_ms = None
        return True

    def counted(self, counter: int, *, asked_at: int, now_ms: int) -> bool:
        """There were so many entries; False if there had been more before. `asked_at` is the number
        of the last entry when it was asked: more may have come since."""
        if counter < asked_at:
            return False
        if counter > self.number and self._due_at_ms is None:
            # One deadline at a time: what came later is looked at with the next assertion.
            self._awaited = counter
            self._due_at_ms = now_ms + self._drain_ms
        return True

    @property
    def due_at_ms(self) -> int | None:
        """When what is awaited is late; None if nothing is awaited."""
        return self._due_at_ms

    def is_overdue(self, now_ms: int) -> bool:
        """Has an entry not come that was there long ago?"""
        return self._due_at_ms is not None and now_ms >= self._due_at_ms
