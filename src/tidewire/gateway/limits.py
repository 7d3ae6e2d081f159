"""How much is too much: rates, budgets and gates, as arithmetic on the time they are given. PURE.

A rate with a burst is kept as one number, the instant at which its bucket would be full again
("generic cell rate algorithm"): a key that has not been heard of for a while is the same as a key
that was never heard of, so forgetting it costs nothing.
"""

from collections import deque
from collections.abc import Callable
from typing import Final, Generic, TypeVar

from tidewire.domain.ids import ChatId, UserId
from tidewire.domain.shared_limits import SharedView

Key = TypeVar("Key")

FLOOD_TOLD_EVERY_MS: Final = 1_000

_US_PER_MS: Final = 1000
_US_PER_SECOND: Final = 1_000_000


class Rate:
    """So many in a while, and so many at once. Shared by all who are held to it."""

    __slots__ = ("_slack_us", "burst", "interval_us", "refill_ms")

    def __init__(self, count: int, *, per_seconds: int = 1, burst: int) -> None:
        assert count >= 1
        assert burst >= 1
        self.interval_us = max(1, per_seconds * _US_PER_SECOND // count)
        self.burst = burst
        self._slack_us = (burst - 1) * self.interval_us
        self.refill_ms = burst * self.interval_us // _US_PER_MS + 1
        """How long it takes from empty to full."""

    def wait_ms(self, full_at_us: int, now_ms: int) -> int:
        """How long to wait before another one is allowed; 0 if it is allowed now."""
        excess_us = full_at_us - now_ms * _US_PER_MS - self._slack_us
        return 0 if excess_us <= 0 else -(-excess_us // _US_PER_MS)

    def spent(self, full_at_us: int, now_ms: int) -> int:
        """When the bucket is full again, after one more."""
        return max(full_at_us, now_ms * _US_PER_MS) + self.interval_us


class KeyedRate(Generic[Key]):
    """One rate for each of many keys, in bounded memory.

    Keys are kept in two generations. When the young one is full, or old enough for all its buckets
    to have filled up again, it becomes the old one, and what was in the old one is forgotten.
    """

    __slots__ = ("_keys_max", "_name_of", "_old", "_rate", "_shared", "_turns_at_ms", "_young")

    def __init__(self, rate: Rate, *, keys_max: int) -> None:
        self._rate = rate
        self._keys_max = max(1, keys_max // 2)
        self._young: dict[Key, int] = {}
        self._old: dict[Key, int] = {}
        self._turns_at_ms = 0
        self._shared: SharedView | None = None
        self._name_of: Callable[[Key], str] = str

    def __len__(self) -> int:
        return len(self._young) + len(self._old)

    def share(self, name_of: Callable[[Key], str] = str) -> SharedView:
        """Hold keys also to what other processes have used of this rate: by this view, for which
        somebody exchanges it with them."""
        self._name_of = name_of
        self._shared = SharedView(
            interval_us=self._rate.interval_us, burst=self._rate.burst, keys_max=2 * self._keys_max
        )
        return self._shared

    def wait_ms(self, key: Key, now_ms: int) -> int:
        """How long this key has to wait; 0 if it may go on. Nothing is spent."""
        if self._shared is None:
            return self._own_wait_ms(key, now_ms)
        shared_wait_ms = self._shared.wait_ms(self._name_of(key), now_ms)
        return max(shared_wait_ms, self._own_wait_ms(key, now_ms))

    def _own_wait_ms(self, key: Key, now_ms: int) -> int:
        full_at_us = self._young.get(key)
        if full_at_us is None:
            full_at_us = self._old.get(key)
            if full_at_us is None:
                return 0
        return self._rate.wait_ms(full_at_us, now_ms)

    def spend(self, key: Key, now_ms: int) -> None:
        """Count one, allowed or not."""
        young = self._young
        full_at_us = young.get(key)
        if full_at_us is None:
            full_at_us = self._old.get(key, 0)
            if now_ms >= self._turns_at_ms or len(young) >= self._keys_max:
                young = self._turn(now_ms)
        young[key] = self._rate.spent(full_at_us, now_ms)
        if self._shared is not None:
            self._shared.spend(self._name_of(key), now_ms)

    def take(self, key: Key, now_ms: int) -> int:
        """0 and one is spent; or how long to wait, and nothing is."""
        wait_ms = self.wait_ms(key, now_ms)
        if wait_ms == 0:
            self.spend(key, now_ms)
        return wait_ms

    def _turn(self, now_ms: int) -> dict[Key, int]:
        # After a pause both are out of date; the old one's keys are then full, as if forgotten.
        self._old = self._young
        self._young = {}
        self._turns_at_ms = now_ms + self._rate.refill_ms
        return self._young


class SendLimiter:
    """How fast users may send: per user and chat, and per user. Shared by all their connections."""

    __slots__ = ("_by_chat", "_by_user")

    def __init__(self, *, per_chat: Rate, per_user: Rate, keys_max: int) -> None:
        self._by_chat: KeyedRate[tuple[UserId, ChatId]] = KeyedRate(per_chat, keys_max=keys_max)
        self._by_user: KeyedRate[UserId] = KeyedRate(per_user, keys_max=keys_max)

    def __len__(self) -> int:
        return len(self._by_chat) + len(self._by_user)

    def share(self) -> dict[str, SharedView]:
        """Hold users also to what they have sent through other processes."""
        return {"send_chat": self._by_chat.share(" ".join), "send_user": self._by_user.share()}

    def take(self, user_id: UserId, chat_id: ChatId, now_ms: int) -> int:
        """0 if the user may send to the chat now, and it is counted; or how long to wait, in ms."""
        by_user, by_chat, key = self._by_user, self._by_chat, (user_id, chat_id)
        wait_ms = by_user.wait_ms(user_id, now_ms)
        chat_wait_ms = by_chat.wait_ms(key, now_ms)
        if wait_ms or chat_wait_ms:
            return max(wait_ms, chat_wait_ms)
        by_user.spend(user_id, now_ms)
        by_chat.spend(key, now_ms)
        return 0


class OffenceBudget:
    """So many offences within a window and no more."""

    __slots__ = ("_at_ms", "_window_ms")

    def __init__(self, offences_max: int, *, window_ms: int) -> None:
        self._window_ms = window_ms
        # The last offences; when it is full, the first of them tells how close they were.
        self._at_ms: deque[int] = deque(maxlen=offences_max)

    def spend(self, now_ms: int) -> bool:
        """Count one; True if that was the last one too many."""
        at_ms = self._at_ms
        at_ms.append(now_ms)
        return len(at_ms) == at_ms.maxlen and now_ms - at_ms[0] < self._window_ms


class WindowCount:
    """As OffenceBudget for large numbers, roughly: it counts anew in every window."""

    __slots__ = ("_count", "_count_max", "_ends_at_ms", "_window_ms")

    def __init__(self, count_max: int, *, window_ms: int) -> None:
        self._count_max = count_max
        self._window_ms = window_ms
        self._count = 0
        self._ends_at_ms = 0

    def spend(self, now_ms: int) -> bool:
        """Count one; True if that was the last one too many."""
        if now_ms >= self._ends_at_ms:
            self._ends_at_ms = now_ms + self._window_ms
            self._count = 0
        self._count += 1
        return self._count >= self._count_max


class Offences:
    """What one connection did wrong: few do anything, so it is made at the first time."""

    __slots__ = ("_flood_told_at_ms", "_invalid", "_throttled")

    def __init__(self, *, invalid_max: int, throttled_max: int, window_ms: int) -> None:
        self._invalid = OffenceBudget(invalid_max, window_ms=window_ms)
        self._throttled = WindowCount(throttled_max, window_ms=window_ms)
        self._flood_told_at_ms: int | None = None

    def invalid(self, now_ms: int) -> bool:
        """A frame was not valid; True if that was one too many."""
        return self._invalid.spend(now_ms)

    def throttled(self, now_ms: int) -> bool:
        """A frame was above a limit; True if that was one too many."""
        return self._throttled.spend(now_ms)

    def flooded(self, now_ms: int) -> bool:
        """A one-way frame was above its limit; True if the peer is to be told. Nobody waits for an
        answer to such a frame, so now and then is enough."""
        told_at_ms = self._flood_told_at_ms
        if told_at_ms is not None and now_ms < told_at_ms + FLOOD_TOLD_EVERY_MS:
            return False
        self._flood_told_at_ms = now_ms
        return True


class TypingGate:
    """Which typing frames are passed on: starts now and then, in few chats; stops after a start.

    So stops need no limit of their own, and a client cannot make a large group busy.
    """

    __slots__ = ("_chats_max", "_interval_ms", "_started")

    def __init__(self, *, interval_ms: int, chats_max: int) -> None:
        self._interval_ms = interval_ms
        self._chats_max = chats_max
        # When typing was last passed on in a chat, oldest first, and if it still goes on.
        self._started: dict[ChatId, tuple[int, bool]] = {}

    def __len__(self) -> int:
        return len(self._started)

    def start(self, chat_id: ChatId, now_ms: int) -> bool:
        started = self._started
        last = started.get(chat_id)
        if last is not None:
            if now_ms - last[0] < self._interval_ms:
                return False
            del started[chat_id]
        elif len(started) >= self._chats_max:
            oldest = next(iter(started))
            if now_ms - started[oldest][0] < self._interval_ms:
                return False
            del started[oldest]
        started[chat_id] = (now_ms, True)
        return True

    def stop(self, chat_id: ChatId) -> bool:
        last = self._started.get(chat_id)
        if last is None or not last[1]:
            return False
        self._started[chat_id] = (last[0], False)
        return True
