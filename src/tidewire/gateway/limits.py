"""Limits of a connection: sends, offences, typing, silence. Rates: `domain.rates`. PURE."""

from collections import deque
from enum import Enum
from typing import Final

from tidewire.domain.ids import ChatId, UserId
from tidewire.domain.rates import Limiter, Rate, SharedView
from tidewire.gateway.options import GatewayOptions

FLOOD_TOLD_EVERY_MS: Final = 1_000


class SendLimiter:
    """Limits how fast users send: per user and chat, and per user. A reaction counts as any send
    does, and also against a limit of its own per user, because it costs one tap and reaches all
    members. All connections of a user share the limits."""

    __slots__ = ("_by_chat", "_by_user", "_reactions")

    def __init__(self, *, per_chat: Rate, per_user: Rate, reactions: Rate, keys_max: int) -> None:
        self._by_chat: Limiter[tuple[UserId, ChatId]] = Limiter(per_chat, keys_max=keys_max)
        self._by_user: Limiter[UserId] = Limiter(per_user, keys_max=keys_max)
        self._reactions: Limiter[UserId] = Limiter(reactions, keys_max=keys_max)

    def __len__(self) -> int:
        return len(self._by_chat) + len(self._by_user) + len(self._reactions)

    def share(self) -> dict[str, SharedView]:
        """Count also what users have sent through other processes."""
        return {
            "send_chat": self._by_chat.share(" ".join),
            "send_user": self._by_user.share(),
            "send_reactions": self._reactions.share(),
        }

    def take_reaction(self, user_id: UserId, chat_id: ChatId, now_ms: int) -> int:
        """As `take`, for a reaction."""
        wait_ms = self._reactions.take(user_id, now_ms)
        if wait_ms:
            return wait_ms
        wait_ms = self.take(user_id, chat_id, now_ms)
        if wait_ms:
            self._reactions.spend(user_id, now_ms, -1)
        return wait_ms

    def take(self, user_id: UserId, chat_id: ChatId, now_ms: int) -> int:
        """Count a send and return 0 if the user may send to the chat now; else the wait in ms."""
        by_user, by_chat, key = self._by_user, self._by_chat, (user_id, chat_id)
        wait_ms = by_chat.take(key, now_ms)
        if wait_ms:
            return max(wait_ms, by_user.wait_ms(user_id, now_ms))
        wait_ms = by_user.take(user_id, now_ms)
        if wait_ms:
            by_chat.spend(key, now_ms, -1)
        return wait_ms


class Offences:
    """Counts the offences of one connection. Made at the first one, because most have none."""

    __slots__ = (
        "_flood_told_at_ms",
        "_invalid_at_ms",
        "_throttled_count",
        "_throttled_max",
        "_window_ends_at_ms",
        "_window_ms",
    )

    def __init__(self, *, invalid_max: int, throttled_max: int, window_ms: int) -> None:
        self._window_ms = window_ms
        # Times of the last invalid frames; when it is full, the oldest tells how dense they are.
        self._invalid_at_ms: deque[int] = deque(maxlen=invalid_max)
        self._throttled_max = throttled_max
        self._throttled_count = 0
        self._window_ends_at_ms = 0
        self._flood_told_at_ms: int | None = None

    def invalid(self, now_ms: int) -> bool:
        """Count an invalid frame; True if the limit within the window is reached."""
        at_ms = self._invalid_at_ms
        at_ms.append(now_ms)
        return len(at_ms) == at_ms.maxlen and now_ms - at_ms[0] < self._window_ms

    def throttled(self, now_ms: int) -> bool:
        """Count a frame above a limit; True if too many have come. There may be many, so only a
        number is kept, which begins at zero in every window."""
        if now_ms >= self._window_ends_at_ms:
            self._window_ends_at_ms = now_ms + self._window_ms
            self._throttled_count = 0
        self._throttled_count += 1
        return self._throttled_count >= self._throttled_max

    def flooded(self, now_ms: int) -> bool:
        """Note a one-way frame above its limit; True if the peer must be told. No peer waits for
        an answer to such a frame, so one notice per `FLOOD_TOLD_EVERY_MS` is enough."""
        told_at_ms = self._flood_told_at_ms
        if told_at_ms is not None and now_ms < told_at_ms + FLOOD_TOLD_EVERY_MS:
            return False
        self._flood_told_at_ms = now_ms
        return True


class TypingGate:
    """Decides which typing frames are passed on: one start per interval, in few chats; a stop only
    after a start.

    So stops need no limit of their own, and a client cannot make a large group busy.
    """

    __slots__ = ("_chats_max", "_interval_ms", "_started")

    def __init__(self, *, interval_ms: int, chats_max: int) -> None:
        self._interval_ms = interval_ms
        self._chats_max = chats_max
        # By chat, oldest first: when a start was last passed on, and whether typing still goes on.
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


class Verdict(Enum):
    ALIVE = "alive"
    ASK = "ask"
    DEAD = "dead"


class Pulse:
    """The silence of one peer: any frame or pong is a sign of life. After some silence the peer is
    pinged; if that is not answered, or if pings are switched off and the silence lasts, the peer is
    gone."""

    __slots__ = ("_asked_at_ms", "_asked_for_ms", "_options", "heard_at_ms")

    def __init__(self, options: GatewayOptions, now_ms: int) -> None:
        self._options = options
        self.heard_at_ms = now_ms
        """The last sign of life. Set by the connection, once per frame."""
        # When the last ping was sent, and the `heard_at_ms` of the silence that it was for.
        self._asked_at_ms = -1
        self._asked_for_ms = -1

    def next_deadline_ms(self) -> int:
        """When to call `look` again."""
        options = self._options
        if self._is_asked:
            return self._asked_at_ms + options.pong_timeout_ms
        return self.heard_at_ms + (options.ping_interval_ms or options.idle_timeout_ms)

    def look(self, now_ms: int) -> Verdict:
        """Judge the silence so far. After ASK the caller must send a ping."""
        if now_ms < self.next_deadline_ms():
            return Verdict.ALIVE
        # However late this call is: while pings are on, no peer is given up before a ping.
        if self._is_asked or not self._options.ping_interval_ms:
            return Verdict.DEAD
        self._asked_for_ms = self.heard_at_ms
        self._asked_at_ms = now_ms
        return Verdict.ASK

    @property
    def _is_asked(self) -> bool:
        return self._asked_for_ms == self.heard_at_ms
