"""Request limits: a number of requests per window and key, as HTTP headers report it. PURE.

The whole allowance of a window may be used at once; it comes back evenly (`domain.rates`).
"""

from typing import Final

import msgspec

from tidewire.domain.rates import Limiter, Rate, SharedView

_US_PER_MS: Final = 1_000
_MS_PER_SECOND: Final = 1_000


class Allowance(msgspec.Struct, frozen=True, kw_only=True):
    """What a key may still do. `wait_ms` is 0 if the request may go on."""

    limit: int
    window_seconds: int
    remaining: int
    wait_ms: int
    full_in_ms: int
    """The time until the whole allowance is back."""


class Quota:
    """A limit of requests per window, for each of many keys."""

    __slots__ = ("_limiter", "_window_seconds")

    def __init__(self, limit: int, *, window_ms: int, keys_max: int) -> None:
        rate = Rate(limit, per_ms=window_ms, burst=limit)
        self._limiter: Limiter[str] = Limiter(rate, keys_max=keys_max)
        self._window_seconds = -(-window_ms // _MS_PER_SECOND)

    def share(self) -> SharedView:
        """Count requests over all processes together."""
        return self._limiter.share()

    def look(self, key: str, now_ms: int) -> Allowance:
        """The allowance that one more request would find. Counts nothing."""
        return self._allowance(key, now_ms, self._limiter.wait_ms(key, now_ms))

    def take(self, key: str, now_ms: int) -> Allowance:
        """Count a request, if it may go on."""
        return self._allowance(key, now_ms, self._limiter.take(key, now_ms))

    def _allowance(self, key: str, now_ms: int, wait_ms: int) -> Allowance:
        rate, used_us = self._limiter.rate, self._limiter.used_us(key, now_ms)
        return Allowance(
            limit=rate.burst,
            window_seconds=self._window_seconds,
            remaining=max(0, rate.capacity_us - used_us) // rate.interval_us,
            wait_ms=wait_ms,
            full_in_ms=-(-used_us // _US_PER_MS),
        )


def take_all(quotas: tuple[Quota, ...], key: str, now_ms: int) -> Allowance:
    """Count a request in all of these quotas, or in none; returns the tightest allowance."""
    found = [quota.look(key, now_ms) for quota in quotas]
    if not any(allowance.wait_ms for allowance in found):
        found = [quota.take(key, now_ms) for quota in quotas]
    return max(found, key=lambda allowance: (allowance.wait_ms, -allowance.remaining))
