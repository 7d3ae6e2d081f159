"""Is the peer still there? Any frame or pong is a sign of life (DESIGN §9). PURE."""

from enum import Enum

from tidewire.gateway.options import GatewayOptions


class Verdict(Enum):
    ALIVE = "alive"
    ASK = "ask"
    DEAD = "dead"


class Pulse:
    """The silence of one peer. After some of it the peer is pinged; if that is not answered, or if
    pings are switched off and the silence lasts, the peer is gone."""

    __slots__ = ("_asked_at_ms", "_asked_for_ms", "_options", "heard_at_ms")

    def __init__(self, options: GatewayOptions, now_ms: int) -> None:
        self._options = options
        self.heard_at_ms = now_ms
        """The last sign of life. Set by whoever hears one, which is once per frame."""
        # When the last ping was sent, and which silence it was for.
        self._asked_at_ms = -1
        self._asked_for_ms = -1

    def next_deadline_ms(self) -> int:
        """When to look again."""
        options = self._options
        if self._is_asked:
            return self._asked_at_ms + options.pong_timeout_ms
        return self.heard_at_ms + (options.ping_interval_ms or options.idle_timeout_ms)

    def look(self, now_ms: int) -> Verdict:
        """What follows from the silence so far. After ASK a ping must be sent."""
        if now_ms < self.next_deadline_ms():
            return Verdict.ALIVE
        # However late we are, nobody is given up who has not been asked.
        if self._is_asked or not self._options.ping_interval_ms:
            return Verdict.DEAD
        self._asked_for_ms = self.heard_at_ms
        self._asked_at_ms = now_ms
        return Verdict.ASK

    @property
    def _is_asked(self) -> bool:
        return self._asked_for_ms == self.heard_at_ms
