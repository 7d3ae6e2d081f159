"""What a gateway knows of its own stream: which entry comes next, and which are late. PURE.

Every entry carries its number, and the stream's counter says how many entries there are. A number
that is not the next one, a counter that went back, or counted entries that do not come: each means
that something unknown was lost, and all clients connected here have to sync again.
"""


class Ledger:
    """The ledger of one gateway, for one incarnation at a time. `now_ms` never goes back."""

    def __init__(self, *, drain_ms: int) -> None:
        self._drain_ms = drain_ms
        self.number = 0
        """The number of the last entry that was drained."""
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
        """Take the stream's counter; False if it went back. `asked_at` is the number of the last
        entry when the counter was requested: more may have come since."""
        if counter < asked_at:
            return False
        if counter > self.number and self._due_at_ms is None:
            # One deadline at a time: the next assertion checks the entries that came later.
            self._awaited = counter
            self._due_at_ms = now_ms + self._drain_ms
        return True

    @property
    def due_at_ms(self) -> int | None:
        """When the awaited entries are late; None if none are awaited."""
        return self._due_at_ms

    def is_overdue(self, now_ms: int) -> bool:
        """Whether an entry that was counted has not come in time."""
        return self._due_at_ms is not None and now_ms >= self._due_at_ms
