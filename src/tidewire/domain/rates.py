"""The rate limiter: for each of many keys a burst at once, then a steady rate. PURE.

A bucket is one number, the instant at which it is full again (the generic cell rate algorithm). An
idle key is the same as an unknown key, so a full bucket can be forgotten.
Times are milliseconds of a monotonic clock; they only go forward.

In a cluster each process enforces its own limits, at once and by itself. Beside them it has a
`SharedView`: from time to time the process adds its own use to the use of all processes, and also
enforces the total that comes back. So the processes together allow one limit, plus what each may
allow before it has heard of the others: a burst each, and what the rate allows between two
exchanges. That surplus is counted, too, so it is paid back, and in the long run the rate is that of
one process. Use counts from its exchange on, so a bucket may be full again one such period later.
If nothing is heard of the others, the process's own limits remain.
"""

from collections import deque
from collections.abc import Callable
from itertools import islice
from typing import Final, Generic, TypeVar

Key = TypeVar("Key")

_US_PER_MS: Final = 1000
_CANDIDATES: Final = 8
"""Among how many keys the one to forget is chosen when there are too many."""
_LOOKS: Final = 256
"""How many keys one cleanup checks: if a hundred thousand are full again at once, they are
forgotten in many small cleanups."""
_REST_US: Final = 100_000
"""How long to wait with the next cleanup after one that found few keys to forget: a cleanup for
every new key would cost more than the limits themselves."""


class Rate:
    """A rate, `count` in `per_ms`, and a burst at once. Shared by all buckets that it limits."""

    __slots__ = ("_slack_us", "burst", "capacity_us", "interval_us")

    def __init__(self, count: int, *, per_ms: int = 1000, burst: int) -> None:
        assert count >= 1
        assert per_ms >= 1
        assert burst >= 1
        self.burst = burst
        self.interval_us = max(1, per_ms * _US_PER_MS // count)
        """The time after which one more is allowed."""
        self.capacity_us = burst * self.interval_us
        """How long a bucket takes from empty to full."""
        self._slack_us = self.capacity_us - self.interval_us

    def wait_ms(self, full_at_us: int, now_ms: int, count: int = 1) -> int:
        """How long to wait before `count` more are allowed; 0 if they are allowed now."""
        used_us = full_at_us - now_ms * _US_PER_MS
        if count == 1:
            excess_us = used_us - self._slack_us
        else:
            excess_us = max(0, used_us) + count * self.interval_us - self.capacity_us
        return 0 if excess_us <= 0 else -(-excess_us // _US_PER_MS)

    def spent(self, full_at_us: int, now_ms: int, count: int = 1) -> int:
        """When the bucket is full again, after `count` more."""
        now_us = now_ms * _US_PER_MS
        # A call of max() would cost more than all the rest, and this runs for every message.
        from_us = full_at_us if full_at_us > now_us else now_us  # noqa: FURB136
        return from_us + count * self.interval_us

    def taken(self, full_at_us: int, now_ms: int) -> int:
        """`spent` for one more, if that is allowed now; else how long to wait, as negative ms."""
        now_us = now_ms * _US_PER_MS
        excess_us = full_at_us - now_us - self._slack_us
        if excess_us > 0:
            return excess_us // -_US_PER_MS
        return (full_at_us if full_at_us > now_us else now_us) + self.interval_us  # noqa: FURB136


class Limiter(Generic[Key]):
    """A bucket of one rate for each of many keys, in bounded memory.

    At the bound it takes some of the keys and forgets the one that has used least. So new keys
    that fill the memory do not free a key that is being limited.
    """

    __slots__ = (
        "_full_at_us",
        "_keys_max",
        "_look_at_us",
        "_name_of",
        "_order",
        "_shared",
        "rate",
    )

    def __init__(self, rate: Rate, *, keys_max: int) -> None:
        assert keys_max >= 1
        self.rate = rate
        self._keys_max = keys_max
        self._full_at_us: dict[Key, int] = {}
        # The same keys, in the order in which `_forget` checks them.
        self._order: deque[Key] = deque()
        self._look_at_us = 0
        self._shared: SharedView | None = None
        self._name_of: Callable[[Key], str] = str

    def __len__(self) -> int:
        return len(self._full_at_us)

    def share(self, name_of: Callable[[Key], str] = str) -> "SharedView":
        """Limit keys also by what other processes have used of this rate. The caller exchanges the
        view with them."""
        self._name_of = name_of
        self._shared = SharedView(self.rate, keys_max=self._keys_max)
        return self._shared

    def wait_ms(self, key: Key, now_ms: int, count: int = 1) -> int:
        """How long this key has to wait before `count` are allowed; 0: now. Spends nothing."""
        wait_ms = self.rate.wait_ms(self._full_at_us.get(key, 0), now_ms, count)
        if self._shared is None:
            return wait_ms
        return max(wait_ms, self._shared.wait_ms(self._name_of(key), now_ms, count))

    def spend(self, key: Key, now_ms: int, count: int = 1) -> None:
        """Spend `count`, allowed or not; a negative count gives back."""
        known = self._full_at_us
        before_us = known.get(key, 0)
        full_at_us = self.rate.spent(before_us, now_ms, count)
        if before_us and count > 0:
            known[key] = full_at_us
        else:
            self._put(key, full_at_us, now_ms * _US_PER_MS)
        if self._shared is not None:
            self._shared.spend(self._name_of(key), now_ms, count)

    def take(self, key: Key, now_ms: int, count: int = 1) -> int:
        """Spend `count` and return 0, or spend nothing and return how long to wait, in ms."""
        if count == 1 and self._shared is None:
            # Every message comes here: the same as below, in one call.
            before_us = self._full_at_us.get(key, 0)
            full_at_us = self.rate.taken(before_us, now_ms)
            if full_at_us < 0:
                return -full_at_us
            if before_us:
                self._full_at_us[key] = full_at_us
            else:
                self._put(key, full_at_us, now_ms * _US_PER_MS)
            return 0
        wait_ms = self.wait_ms(key, now_ms, count)
        if wait_ms == 0:
            self.spend(key, now_ms, count)
        return wait_ms

    def used_us(self, key: Key, now_ms: int) -> int:
        """How long until this key's bucket is full again, as far as is known."""
        own_us = max(0, self._full_at_us.get(key, 0) - now_ms * _US_PER_MS)
        if self._shared is None:
            return own_us
        return max(own_us, self._shared.used_us(self._name_of(key), now_ms))

    def _put(self, key: Key, full_at_us: int, now_us: int) -> None:
        known, order = self._full_at_us, self._order
        if key not in known:
            order.append(key)
        known[key] = full_at_us
        if now_us >= self._look_at_us or full_at_us <= now_us:
            self._forget(now_us)
        if len(known) > self._keys_max:
            least = min(islice(order, _CANDIDATES), key=known.__getitem__)
            order.remove(least)
            del known[least]

    def _forget(self, now_us: int) -> None:
        """Forget full buckets, among the keys that were not checked for the longest time."""
        known, order = self._full_at_us, self._order
        looks = min(_LOOKS, len(order))
        kept = 0
        for _ in range(looks):
            key = order.popleft()
            if known[key] <= now_us:
                del known[key]
            else:
                order.append(key)
                kept += 1
        # If most of them were forgotten, there may be more: the next call need not wait.
        self._look_at_us = now_us + _REST_US if 2 * kept >= looks else 0


class SharedView(Limiter[str]):
    """What all processes of a cluster together have used of a limit, as last heard."""

    __slots__ = ("_used",)

    def __init__(self, rate: Rate, *, keys_max: int) -> None:
        super().__init__(rate, keys_max=keys_max)
        # What was used here since the last exchange; 0: nothing, but the total is wanted.
        self._used: dict[str, int] = {}

    def wait_ms(self, key: str, now_ms: int, count: int = 1) -> int:
        wait_ms = super().wait_ms(key, now_ms, count)
        if wait_ms:
            # Others may go on using it meanwhile: ask for the total.
            self._add(key, 0)
        return wait_ms

    def spend(self, key: str, now_ms: int, count: int = 1) -> None:
        self._add(key, count)
        super().spend(key, now_ms, count)

    def take_used(self, count_max: int) -> list[tuple[str, int]]:
        """What to tell the others, at most `count_max` keys, the longest waiting first."""
        taken = list(islice(self._used.items(), count_max))
        for key, _ in taken:
            del self._used[key]
        return taken

    def learn(self, key: str, left_us: int, now_ms: int) -> None:
        """Note the use of all processes together: the bucket is full again in `left_us`."""
        now_us = now_ms * _US_PER_MS
        # The answer does not contain what was used here while it was on its way.
        since_us = self._used.get(key, 0) * self.rate.interval_us
        self._put(key, now_us + left_us + since_us, now_us)

    def _add(self, key: str, count: int) -> None:
        used = self._used
        if key in used:
            used[key] += count
        elif len(used) < self._keys_max:
            used[key] = count
