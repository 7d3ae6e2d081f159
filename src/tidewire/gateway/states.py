"""The states of a conversation, and how they follow each other. PURE.

CONNECTING   the route is registered and the first digest is being read; only heartbeats
READY        connection_established was sent; everything
CLOSING      connection_closing was sent; only answers that are still owed, for a short while
CLOSED       for good
"""

from enum import Enum
from typing import Final

from tidewire.wire.error_table import CloseReason


class State(Enum):
    CONNECTING = "connecting"
    READY = "ready"
    CLOSING = "closing"
    CLOSED = "closed"


CONNECTING: Final = State.CONNECTING
READY: Final = State.READY
CLOSING: Final = State.CLOSING
CLOSED: Final = State.CLOSED

TRANSITIONS: Final[dict[State, frozenset[State]]] = {
    CONNECTING: frozenset({READY, CLOSING, CLOSED}),
    READY: frozenset({CLOSING, CLOSED}),
    CLOSING: frozenset({CLOSED}),
    CLOSED: frozenset(),
}

LINGERING: Final = frozenset(
    {CloseReason.SERVER_SHUTDOWN, CloseReason.TOKEN_EXPIRED, CloseReason.DUPLICATE_CONNECTION}
)
"""Reasons that leave time for the answers to messages that are being stored."""
