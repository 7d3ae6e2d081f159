"""What is said to the user in words: the connection's state, who is typing. PURE."""

from collections.abc import Sequence
from typing import Final

from tidewire.client.effects import ConnectionState, Status
from tidewire.terminal.text import one_line

DAMAGED: Final = "[damaged on the server: its text is lost]"
"""Stands where the text of a damaged message would."""

_STATES: Final = {
    ConnectionState.OFFLINE: "offline",
    ConnectionState.CONNECTING: "connecting",
    ConnectionState.SYNCING: "connected, catching up",
    ConnectionState.READY: "connected",
    ConnectionState.CLOSED: "ended",
}
_OFFLINE: Final = {
    "unreachable": "no server there",
    "server_shutdown": "the server restarts",
    "silence": "no answer",
    "no_answer": "no answer",
    "handshake_timeout": "no answer",
    "rate_limited": "too much at once",
    "slow_consumer": "too slow",
    "token_expired": "login being renewed",
    "idle_timeout": "no answer",
}
_CLOSED: Final = {
    "closed": "closed",
    "session_revoked": "this device was logged out",
    "login_needed": "the login has ended",
    "invalid_token": "the login has ended",
    "device_mismatch": "the login is another device's",
    "duplicate_connection": "this login is in use elsewhere",
    "unsupported_version": "the server speaks another version",
    "other_user": "the store is another user's",
    "store_failed": "the local store cannot be written",
    "internal_error": "an error in this program",
}
LOGIN_ENDED: Final = frozenset(
    {"session_revoked", "login_needed", "invalid_token", "device_mismatch"}
)
"""Reasons of a closed connection after which only a new login helps."""


def state_words(status: Status, waiting: int = 0) -> str:
    """The connection's state; `waiting` is how many messages have not left yet."""
    words = _STATES[status.state]
    reason = (status.reason or "").lower()
    if status.state is ConnectionState.OFFLINE and reason in _OFFLINE:
        words += f": {_OFFLINE[reason]}"
    elif status.state is ConnectionState.CLOSED:
        words += f": {_CLOSED.get(reason, reason or 'closed')}"
    if waiting and status.state is not ConnectionState.READY:
        words += f" · {waiting} to send"
    return words


def typing_words(names: Sequence[str]) -> str:
    shown = [one_line(name) for name in names]
    if len(shown) > 2:
        return f"{len(shown)} people are typing…"
    if not shown:
        return ""
    return f"{' and '.join(shown)} {'is' if len(shown) == 1 else 'are'} typing…"


class Typists:
    """Who types where. Whoever says nothing more is forgotten: a `stop` may never come."""

    def __init__(self, *, keep_ms: int, typists_max: int) -> None:
        self._keep_ms = keep_ms
        self._typists_max = typists_max
        self._until_ms: dict[tuple[str, str], int] = {}

    def typed(self, chat_id: str, user_id: str, is_typing: bool, now_ms: int) -> None:
        self._until_ms.pop((chat_id, user_id), None)
        if is_typing:
            self._until_ms[chat_id, user_id] = now_ms + self._keep_ms
            if len(self._until_ms) > self._typists_max:
                del self._until_ms[next(iter(self._until_ms))]

    def forget(self, now_ms: int) -> bool:
        """Drop those whose time is over; True if there were any."""
        over = [key for key, until_ms in self._until_ms.items() if until_ms <= now_ms]
        for key in over:
            del self._until_ms[key]
        return bool(over)

    def typing_in(self, chat_id: str) -> list[str]:
        return [user_id for place, user_id in self._until_ms if place == chat_id]

    def __len__(self) -> int:
        return len(self._until_ms)
