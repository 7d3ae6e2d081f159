"""Which commits are on their way into the log, and which rows of the outbox can go. PURE.

Both are bounded. What finds no room is left to the relays: its row stays, and they find it.
"""

from collections import deque

from tidewire.domain.outbox import OutboxKey


class PublishBook:
    """What a process publishes itself."""

    def __init__(self, *, commits_max: int, rows_max: int) -> None:
        assert commits_max >= 1
        assert rows_max >= 1
        self._commits_max = commits_max
        self._rows_max = rows_max
        self._publishing: set[OutboxKey] = set()
        self._published: deque[OutboxKey] = deque()

    @property
    def publishing_count(self) -> int:
        return len(self._publishing)

    @property
    def published_count(self) -> int:
        """Rows that can go and are still there."""
        return len(self._published)

    @property
    def is_idle(self) -> bool:
        return not self._publishing and not self._published

    def is_publishing(self, key: OutboxKey) -> bool:
        """A relay leaves such a row alone."""
        return key in self._publishing

    def begin(self, key: OutboxKey) -> bool:
        """A commit is about to be published; False if there is no room for it."""
        if len(self._publishing) >= self._commits_max:
            return False
        self._publishing.add(key)
        return True

    def failed(self, key: OutboxKey) -> None:
        """The log may not have it."""
        self._publishing.discard(key)

    def acked(self, key: OutboxKey) -> bool:
        """The log has it; False if its row has to stay all the same, for want of room."""
        self._publishing.discard(key)
        if len(self._published) >= self._rows_max:
            return False
        self._published.append(key)
        return True

    def take_rows(self, count_max: int) -> list[OutboxKey]:
        """Rows to delete now, oldest first."""
        return [self._published.popleft() for _ in range(min(count_max, len(self._published)))]

    def give_back(self, keys: list[OutboxKey]) -> int:
        """They could not be deleted; how many of them are left to the relays for want of room."""
        room = self._rows_max - len(self._published)
        self._published.extendleft(reversed(keys[:room]))
        return max(0, len(keys) - room)
