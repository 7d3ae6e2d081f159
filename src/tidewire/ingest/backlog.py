"""What a relay has seen of the outbox: where to read on, what is due, how old the oldest is. PURE.

A shard is read in pages. A pass goes through all of them, also over rows that have to stay, so that
those cannot hide the ones behind them.
"""

from collections.abc import Callable, Sequence
from typing import Final

from tidewire.domain.outbox import OutboxKey, OutboxRow

AHEAD_MS_MAX: Final = 60_000
"""How far the clock of the gateway that wrote a row may be ahead of the relay's."""


def due_rows(
    rows: Sequence[OutboxRow],
    *,
    now_ms: int,
    after_ms: int,
    is_publishing: Callable[[OutboxKey], bool],
) -> list[OutboxRow]:
    """Rows that nobody is likely to publish any more: old enough, and not on their way here. One
    from far in the future was stamped by a clock that was wrong, so its age is not known."""
    return [
        row
        for row in rows
        if not -AHEAD_MS_MAX <= now_ms - row.created_at_ms < after_ms and not is_publishing(row.key)
    ]


def pause_ms(failures: int, *, poll_ms: int, pause_ms_max: int) -> int:
    """How long to leave log and store alone: as long as ever, or longer after each failure."""
    return min(poll_ms << min(failures, 16), max(poll_ms, pause_ms_max))


class Backlog:
    """What was seen of the shards that this relay looks after."""

    def __init__(self) -> None:
        self._after: dict[int, str] = {}
        # The oldest row that stayed, by shard: of the pass before, and of this one so far.
        self._oldest: dict[int, int] = {}
        self._oldest_in_pass: dict[int, int] = {}

    def after(self, shard: int) -> str | None:
        """Where the next page of a shard begins."""
        return self._after.get(shard)

    def saw(self, shard: int, page: Sequence[OutboxRow], *, count_max: int) -> bool:
        """A page was read and dealt with; True if the shard has more."""
        has_more = len(page) >= count_max
        if has_more:
            self._after[shard] = page[-1].key.row
        else:
            self._after.pop(shard, None)
        return has_more

    def stayed(self, shard: int, rows: Sequence[OutboxRow], *, has_more: bool) -> None:
        """These rows of the page are still there."""
        times = [row.created_at_ms for row in rows]
        if shard in self._oldest_in_pass:
            times.append(self._oldest_in_pass[shard])
        if has_more:
            if times:
                self._oldest_in_pass[shard] = min(times)
            return
        self._oldest_in_pass.pop(shard, None)
        if times:
            self._oldest[shard] = min(times)
        else:
            self._oldest.pop(shard, None)

    def forget(self, shard: int) -> None:
        """Somebody else looks after it now."""
        self._after.pop(shard, None)
        self._oldest.pop(shard, None)
        self._oldest_in_pass.pop(shard, None)

    def oldest_ms(self, now_ms: int) -> int:
        """How old the oldest row is that was seen and stayed; 0 if there is none."""
        oldest = min([*self._oldest.values(), *self._oldest_in_pass.values()], default=now_ms)
        return max(0, now_ms - oldest)
