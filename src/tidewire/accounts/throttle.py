"""How often somebody may try: a burst, then one each interval, per key, in bounded memory. PURE.

One number a key: when it will be as if nothing had happened (the generic cell rate algorithm). A
try is counted before its outcome is known, so that many at once are many; one that turns out to be
good is given back.
"""

from typing import Final

from tidewire.domain.addresses import UNKNOWN_ADDRESS as UNKNOWN_ADDRESS
from tidewire.domain.addresses import address_key as address_key
from tidewire.domain.shared_limits import SharedView

_CANDIDATES: Final = 8
"""At the bound, among how many of the longest untouched keys the one to forget is chosen."""


class Throttle:
    """Counts tries per key. Time only goes forward (a monotonic clock)."""

    def __init__(self, *, burst: int, interval_ms: int, keys_max: int) -> None:
        assert burst >= 1
        assert interval_ms >= 1
        assert keys_max >= 1
        self._slack_ms = (burst - 1) * interval_ms
        self._interval_ms = interval_ms
        self._keys_max = keys_max
        # The least recently touched first.
        self._clear_at_ms: dict[str, int] = {}
        self._shared: SharedView | None = None

    def __len__(self) -> int:
        return len(self._clear_at_ms)

    def share(self) -> SharedView:
        """Count also what was tried at other processes: by this view, for which somebody exchanges
        it with them."""
        self._shared = SharedView(
            interval_us=self._interval_ms * 1000,
            burst=self._slack_ms // self._interval_ms + 1,
            keys_max=self._keys_max,
        )
        return self._shared

    def take(self, key: str, now_ms: int) -> int:
        """Count a try. 0 if it may go on; otherwise how long to wait, and it was not counted."""
        clear_at_ms = max(self._clear_at_ms.get(key, now_ms), now_ms)
        wait_ms = clear_at_ms - self._slack_ms - now_ms
        shared = self._shared
        if shared is not None:
            wait_ms = max(wait_ms, shared.wait_ms(key, now_ms))
        if wait_ms > 0:
            return wait_ms
        if shared is not None:
            shared.spend(key, now_ms)
        self._put(key, clear_at_ms + self._interval_ms, now_ms)
        return 0

    def used(self, key: str, now_ms: int) -> int:
        """How many tries of this key have not been forgiven yet, those that are counted."""
        return -(-max(0, self._clear_at_ms.get(key, now_ms) - now_ms) // self._interval_ms)

    def give_back(self, key: str, now_ms: int) -> None:
        """The try was good: as if it had not been made."""
        if self._shared is not None:
            self._shared.spend(key, now_ms, -1)
        clear_at_ms = self._clear_at_ms.get(key)
        if clear_at_ms is not None:
            self._put(key, clear_at_ms - self._interval_ms, now_ms)

    def _put(self, key: str, clear_at_ms: int, now_ms: int) -> None:
        self._clear_at_ms.pop(key, None)
        if clear_at_ms > now_ms:
            self._clear_at_ms[key] = clear_at_ms
        self._forget(now_ms)

    def _forget(self, now_ms: int) -> None:
        """Drop what says nothing any more, and at the bound what says the least."""
        known = self._clear_at_ms
        while known:
            oldest = next(iter(known))
            if known[oldest] > now_ms:
                break
            del known[oldest]
        if len(known) > self._keys_max:
            candidates = [key for key, _ in zip(known, range(_CANDIDATES), strict=False)]
            del known[min(candidates, key=known.__getitem__)]
