"""The state of the socket: when to connect, when to reconnect, when to give up, when to end. PURE.

It knows nothing of messages. Its methods return effects; its owner forgets what belonged to
a socket when that socket is gone.
"""

from typing import TYPE_CHECKING, Final

from tidewire.client.effects import (
    Connect,
    ConnectionState,
    Disconnect,
    Effect,
    Now,
    Refusal,
    Status,
    StatusChanged,
)
from tidewire.client.options import ClientOptions, backoff_ms, varied
from tidewire.domain.errors import AuthFailure
from tidewire.domain.limits import HEARTBEAT_INTERVAL_MS
from tidewire.wire.error_table import CLOSE_TABLE, CloseReason

if TYPE_CHECKING:
    from random import Random

OFFLINE: Final = ConnectionState.OFFLINE
CONNECTING: Final = ConnectionState.CONNECTING
SYNCING: Final = ConnectionState.SYNCING
READY: Final = ConnectionState.READY
CLOSED: Final = ConnectionState.CLOSED

TRANSITIONS: Final[dict[ConnectionState, frozenset[ConnectionState]]] = {
    OFFLINE: frozenset({OFFLINE, CONNECTING, CLOSED}),
    CONNECTING: frozenset({CONNECTING, SYNCING, OFFLINE, CLOSED}),
    SYNCING: frozenset({READY, OFFLINE, CLOSED}),
    READY: frozenset({OFFLINE, CLOSED}),
    CLOSED: frozenset(),
}

NORMAL_CLOSE: Final = 1000
GONE_AWAY: Final = 1001
HEARTBEAT_VARIATION: Final = 0.1
HEARTBEAT_MS_MIN: Final = 100
LATER_PART: Final = 0.25
"""A client comes back up to this part later than the server said: never earlier, and not all
clients at once."""
_FATAL_CODES: Final = range(4500, 5000)
_TRY_LATER: Final = frozenset({408, 425, 429})


class Link:
    def __init__(self, options: ClientOptions, random: "Random") -> None:
        self.status = Status(OFFLINE)
        self.is_renewing = False
        """There is a new token, and a connection with it is about to replace this one."""
        self.closing: tuple[str, int] | None = None
        """Why the server is about to close, and after how many ms to come back."""
        self.needs_new_token = False
        self.round_trip_ms: int | None = None
        self._options = options
        self._random = random
        self._effects: list[Effect] = []
        self._failures = 0
        self._had_new_token = False
        self._deadline_ms: int | None = None
        """When the next try is due, the server's introduction is overdue, or the renewal is due."""
        self._interval_ms = HEARTBEAT_INTERVAL_MS
        self._heartbeat_at_ms: int | None = None
        self._asked: tuple[str, int] | None = None
        self._heard_at_ms = 0

    @property
    def is_established(self) -> bool:
        """The server has introduced itself."""
        return self.status.state in (SYNCING, READY)

    @property
    def has_socket(self) -> bool:
        """A socket is open, or is being opened."""
        return self.status.state not in (OFFLINE, CLOSED)

    @property
    def may_send(self) -> bool:
        return self.is_established and self.closing is None and not self.is_renewing

    # What happens to it.

    def start(self, now: Now) -> list[Effect]:
        """Connect now, if the next try is still to come."""
        if self.status.state is OFFLINE:
            self._connect(now)
        return self._done()

    def refused(self, refusal: Refusal, now: Now) -> list[Effect]:
        """The server did not upgrade the request."""
        is_auth = refusal.status == 401
        if self.status.state is not CONNECTING:
            pass
        elif is_auth and refusal.error == AuthFailure.TOKEN_REVOKED:
            self._set(CLOSED, CloseReason.SESSION_REVOKED)
        elif is_auth and refusal.reason == AuthFailure.DEVICE_MISMATCH:
            self._set(CLOSED, AuthFailure.DEVICE_MISMATCH)
        elif is_auth and self._had_new_token:
            self._set(CLOSED, AuthFailure.INVALID_TOKEN)
        elif is_auth:
            self.needs_new_token = True
            self._connect(now)
        elif refusal.status in _TRY_LATER or refusal.status >= 500:
            self._wait(now, refusal.error, at_least_ms=refusal.retry_after_ms)
        else:
            self._set(CLOSED, refusal.error or f"http_{refusal.status}")
        return self._done()

    def lost(self, now: Now, *, code: int | None, reason: str) -> list[Effect]:
        """The socket is gone, or could not be opened. A second call does nothing."""
        if not self.has_socket:
            return self._done()
        closing = self.closing
        if closing is not None:
            reason = closing[0]
        if closing is not None and not _comes_back(reason):
            self._set(CLOSED, reason)
        elif closing is None and code in _FATAL_CODES:
            self._set(CLOSED, f"code_{code}")
        elif self.is_renewing:
            self._set(OFFLINE, CloseReason.TOKEN_EXPIRED)
            self._connect(now)
        else:
            self.needs_new_token |= reason == CloseReason.TOKEN_EXPIRED
            self._wait(now, reason, told_ms=0 if closing is None else closing[1])
        return self._done()

    def established(self, interval_ms: int, now: Now) -> list[Effect]:
        self._deadline_ms = None
        self._had_new_token = False
        self._interval_ms = max(interval_ms, HEARTBEAT_MS_MIN)
        self._schedule_heartbeat(now)
        self._set(SYNCING)
        return self._done()

    def ready(self) -> list[Effect]:
        """This device holds everything. Only this resets the count of failures."""
        self._failures = 0
        self._set(READY)
        return self._done()

    def renew(self, now: Now) -> None:
        """There is a new token; `finish_renewal` changes to a connection with it later."""
        if self.is_established and not self.is_renewing:
            self.is_renewing = True
            self._deadline_ms = now.ms + self._options.renew_grace_ms

    def finish_renewal(self, now: Now) -> list[Effect]:
        self._effects.append(Disconnect(NORMAL_CLOSE))
        self._set(OFFLINE, CloseReason.TOKEN_EXPIRED)
        self._connect(now)
        return self._done()

    def give_up(self, now: Now, reason: str) -> list[Effect]:
        """Drop a connection that does not work, without waiting for its end."""
        self._effects.append(Disconnect(GONE_AWAY))
        if self.closing is not None:
            # The server said why it closes, and died before it did: its reason counts all the same.
            return self.lost(now, code=None, reason=reason)
        self._wait(now, reason)
        return self._done()

    def stop(self, reason: str) -> list[Effect]:
        """Close for good."""
        if self.has_socket:
            self._effects.append(Disconnect(NORMAL_CLOSE))
        if self.status.state is not CLOSED:
            self._set(CLOSED, reason)
        return self._done()

    # Signs of life, and time.

    def heard(self, now: Now) -> None:
        self._heard_at_ms = now.ms

    def heartbeat_sent(self, request_id: str, now: Now) -> None:
        self._asked = (request_id, now.ms)
        self._schedule_heartbeat(now)

    def heartbeat_answered(self, request_id: str | None, now: Now) -> bool:
        """False: it is not the answer to the last one."""
        if self._asked is None or request_id != self._asked[0]:
            return False
        self.round_trip_ms = now.ms - self._asked[1]
        self._asked = None
        return True

    def is_due(self, now: Now) -> bool:
        """The next try is due, the server's introduction is overdue, or the renewal is due."""
        return self._deadline_ms is not None and self._deadline_ms <= now.ms

    def is_heartbeat_due(self, now: Now) -> bool:
        return (
            self.closing is None
            and self._heartbeat_at_ms is not None
            and self._heartbeat_at_ms <= now.ms
        )

    def is_silent(self, now: Now) -> bool:
        return now.ms >= self._silent_at_ms

    def next_deadline_ms(self) -> int | None:
        deadlines = [self._deadline_ms]
        if self.is_established:
            deadlines.append(self._silent_at_ms)
            if self.closing is None:
                deadlines.append(self._heartbeat_at_ms)
        return min((at_ms for at_ms in deadlines if at_ms is not None), default=None)

    @property
    def _silent_at_ms(self) -> int:
        return self._heard_at_ms + 2 * self._interval_ms

    def _schedule_heartbeat(self, now: Now) -> None:
        wait_ms = varied(self._interval_ms, self._random, HEARTBEAT_VARIATION)
        self._heartbeat_at_ms = now.ms + wait_ms

    # States.

    def _connect(self, now: Now) -> None:
        self._had_new_token = self.needs_new_token
        self.needs_new_token = False
        self._set(CONNECTING)
        self._deadline_ms = now.ms + self._options.handshake_ms_max
        self._effects.append(Connect(self._had_new_token))

    def _wait(self, now: Now, reason: str, *, told_ms: int = 0, at_least_ms: int = 0) -> None:
        """Reconnect later: when the server said, or after a wait that grows with each failure."""
        self._failures += 1
        if told_ms:
            wait_ms = told_ms + round(told_ms * LATER_PART * self._random.random())
        else:
            wait_ms = backoff_ms(self._failures, self._random, self._options)
        self._set(OFFLINE, reason)
        self._deadline_ms = now.ms + max(wait_ms, at_least_ms)

    def _set(self, state: ConnectionState, reason: str | None = None) -> None:
        assert state in TRANSITIONS[self.status.state], (self.status, state)
        if state in (OFFLINE, CLOSED):
            self.is_renewing = False
            self.closing = self._asked = None
            self._deadline_ms = self._heartbeat_at_ms = None
        status = Status(state, None if reason is None else str(reason))
        if status != self.status:
            self.status = status
            self._effects.append(StatusChanged(status))

    def _done(self) -> list[Effect]:
        effects, self._effects = self._effects, []
        return effects


def _comes_back(reason: str) -> bool:
    """Whether to reconnect after this reason; True if it is newer than this client."""
    try:
        return CLOSE_TABLE[CloseReason(reason)].reconnects
    except ValueError:
        return True
