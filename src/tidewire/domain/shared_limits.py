"""What all processes of a cluster together have used of a limit, as last heard. PURE.

Each process holds its own limits, at once and by itself. Beside them stands this view: what it has
used is added to what all have used every now and then, and what comes back is held too. So several
processes allow one limit together, plus what each may allow before it has heard of the others: a
burst each, and what the rate allows between two exchanges. That surplus is counted like all else,
so it is paid back, and in the long run the rate is one process's. What is used counts from its
exchange on, so a bucket may fill up by one such period later. Nothing heard: the own limits.
"""

from typing import Final

_US_PER_MS: Final = 1000


class SharedView:
    """Of one limit, for many keys, in bounded memory. Time only goes forward."""

    __slots__ = ("_clear_at_us", "_keys_max", "_slack_us", "_used", "interval_us")

    def __init__(self, *, interval_us: int, burst: int, keys_max: int) -> None:
        self.interval_us = interval_us
        self._slack_us = (burst - 1) * interval_us
        self._keys_max = keys_max
        # When a key is as if unused; the least recently touched first.
        self._clear_at_us: dict[str, int] = {}
        # What was used here since the last exchange; 0: only asked for.
        self._used: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._clear_at_us)

    def wait_ms(self, key: str, now_ms: int) -> int:
        """How long all processes together leave this key to wait; 0 if it may go on."""
        clear_at_us = self._clear_at_us.get(key)
        if clear_at_us is None:
            return 0
        excess_us = clear_at_us - now_ms * _US_PER_MS - self._slack_us
        if excess_us <= 0:
            return 0
        # Others may go on using it meanwhile: ask.
        self._add(key, 0)
        return -(-excess_us // _US_PER_MS)

    def spend(self, key: str, now_ms: int, count: int = 1) -> None:
        """Count what was used here; negative: what was given back."""
        self._add(key, count)
        now_us = now_ms * _US_PER_MS
        clear_at_us = max(self._clear_at_us.get(key, now_us), now_us)
        self._put(key, clear_at_us + count * self.interval_us, now_us)

    def take_used(self, count_max: int) -> list[tuple[str, int]]:
        """What to tell the others, at most so many keys, the longest waiting first."""
        taken = [pair for pair, _ in zip(self._used.items(), range(count_max), strict=False)]
        for key, _ in taken:
            del self._used[key]
        return taken

    def learn(self, key: str, left_us: int, now_ms: int) -> None:
        """All together have used so much of it that it is as if unused in so long."""
        now_us = now_ms * _US_PER_MS
        # What was used here while the answer was on its way is not in it.
        since = self._used.get(key, 0)
        self._put(key, now_us + left_us + since * self.interval_us, now_us)

    def _add(self, key: str, count: int) -> None:
        used = self._used
        if key in used:
            used[key] += count
        elif len(used) < self._keys_max:
            used[key] = count

    def _put(self, key: str, clear_at_us: int, now_us: int) -> None:
        known = self._clear_at_us
        known.pop(key, None)
        if clear_at_us > now_us:
            known[key] = clear_at_us
        while known:
            oldest = next(iter(known))
            if known[oldest] > now_us and len(known) <= self._keys_max:
                break
            del known[oldest]
