"""How many requests are too many: so many in a window, per key, in bounded memory. PURE.

A key is one number, the instant at which its whole allowance is back (the generic cell rate
algorithm): all of it may be used at once, and it comes back evenly. A key that was forgotten is the
same as one that has rested, so forgetting only ever helps a client.
"""

from typing import Final

import msgspec

_US_PER_MS: Final = 1_000
_MS_PER_SECOND: Final = 1_000


class Allowance(msgspec.Struct, frozen=True, kw_only=True):
    """What a key may do still. `wait_ms` is 0 if the request that asked may go on."""

    limit: int
    window_seconds: int
    remaining: int
    wait_ms: int
    full_in_ms: int
    """When the whole of it is back."""


class Quota:
    """So many in a window, for each of many keys. Time only goes forward (a monotonic clock)."""

    __slots__ = (
        "_capacity_us",
        "_interval_us",
        "_keys_max",
        "_limit",
        "_old",
        "_turns_at_ms",
        "_window_ms",
        "_young",
    )

    def __init__(self, limit: int, *, window_ms: int, keys_max: int) -> None:
        assert limit >= 1
        assert window_ms >= 1
        self._limit = limit
        self._window_ms = window_ms
        self._interval_us = max(1, window_ms * _US_PER_MS // limit)
        self._capacity_us = self._interval_us * limit
        # Two generations: what the old one knew has come back in full when it is forgotten, or
        # there were more keys than may be remembered.
        self._keys_max = max(1, keys_max // 2)
        self._young: dict[str, int] = {}
        self._old: dict[str, int] = {}
        self._turns_at_ms = 0

    def __len__(self) -> int:
        return len(self._young) + len(self._old)

    def look(self, key: str, now_ms: int) -> Allowance:
        """What one more request would find. Nothing is counted."""
        used_us = self._used_us(key, now_ms)
        excess_us = used_us + self._interval_us - self._capacity_us
        return self._allowance(used_us, wait_us=max(0, excess_us))

    def take(self, key: str, now_ms: int) -> Allowance:
        """Count a request, if it may go on."""
        found = self.look(key, now_ms)
        if found.wait_ms:
            return found
        used_us = self._used_us(key, now_ms) + self._interval_us
        if key not in self._young and (
            now_ms >= self._turns_at_ms or len(self._young) >= self._keys_max
        ):
            self._old, self._young = self._young, {}
            self._turns_at_ms = now_ms + self._window_ms
        self._young[key] = now_ms * _US_PER_MS + used_us
        return self._allowance(used_us, wait_us=0)

    def _used_us(self, key: str, now_ms: int) -> int:
        full_at_us = self._young.get(key)
        if full_at_us is None:
            full_at_us = self._old.get(key, 0)
        return max(0, full_at_us - now_ms * _US_PER_MS)

    def _allowance(self, used_us: int, *, wait_us: int) -> Allowance:
        return Allowance(
            limit=self._limit,
            window_seconds=-(-self._window_ms // _MS_PER_SECOND),
            remaining=max(0, self._capacity_us - used_us) // self._interval_us,
            wait_ms=-(-wait_us // _US_PER_MS),
            full_in_ms=-(-used_us // _US_PER_MS),
        )


def take_all(quotas: tuple[Quota, ...], key: str, now_ms: int) -> Allowance:
    """Count a request in each of several quotas, or in none; the tightest of them."""
    found = [quota.look(key, now_ms) for quota in quotas]
    if not any(allowance.wait_ms for allowance in found):
        found = [quota.take(key, now_ms) for quota in quotas]
    return max(found, key=lambda allowance: (allowance.wait_ms, -allowance.remaining))
