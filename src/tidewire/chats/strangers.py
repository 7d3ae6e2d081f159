"""How many people may somebody draw into chats with whom no chat was shared before? PURE.

One number a user (the generic cell rate algorithm, in `domain.shared_limits`): all of an hour's
allowance may be used at once, and it comes back evenly. In a cluster all gateways count together.
"""

from typing import Final

from tidewire.domain.ids import UserId
from tidewire.domain.shared_limits import SharedView

_HOUR_US: Final = 3_600_000_000
KEYS_MAX: Final = 100_000
"""Users who are remembered; of more, those heard of longest ago are as if they had added none."""


class StrangerBudget:
    """Counts strangers per user. Time only goes forward (a monotonic clock)."""

    def __init__(self, per_hour: int, *, keys_max: int = KEYS_MAX) -> None:
        assert per_hour >= 1
        self.per_hour = per_hour
        self._view = SharedView(interval_us=_HOUR_US // per_hour, burst=per_hour, keys_max=keys_max)

    def share(self) -> SharedView:
        """The view that is exchanged with the other processes of a cluster."""
        return self._view

    def take(self, user_id: UserId, count: int, now_ms: int) -> int:
        """Count so many strangers. 0 if they may be added; otherwise how long to wait, in ms, and
        none is counted. More than an hour's allowance at once may never be: a whole hour."""
        if count > self.per_hour:
            return _HOUR_US // 1000
        for taken in range(count):
            wait_ms = self._view.wait_ms(user_id, now_ms)
            if wait_ms:
                self._view.spend(user_id, now_ms, -taken)
                return wait_ms
            self._view.spend(user_id, now_ms)
        return 0
