"""The states of a conversation, and the effects that its core returns: small frozen values that
the shell carries out. PURE."""

from enum import Enum, StrEnum
from typing import Final

import msgspec

from tidewire.domain.delivery import Advance
from tidewire.domain.ids import ChatId
from tidewire.wire.client_frames import SyncRequestFrame
from tidewire.wire.error_table import CloseCode, CloseReason
from tidewire.wire.server_frames import (
    ChatDigestFrame,
    ConnectionEstablishedFrame,
    SendMessageAckFrame,
    ServerFrame,
    SyncResponseFrame,
)


class State(Enum):
    """The state of a conversation, and what it allows.

    CONNECTING   the route is registered and the first digest is being read; only heartbeats
    READY        connection_established was sent; everything
    CLOSING      connection_closing was sent; only answers that are still owed, for a short while
    CLOSED       for good
    """

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


class Send(msgspec.Struct, frozen=True, gc=False):
    """Write this frame, after everything that was written before."""

    frame: ServerFrame


class SendPage(msgspec.Struct, frozen=True):
    """Write this page, outside the outbound budget, and call `drained` when it has gone out."""

    frame: SyncResponseFrame | ChatDigestFrame


class Establish(msgspec.Struct, frozen=True):
    """Write both frames before all others, then the held ones; the page as with SendPage."""

    frame: ConnectionEstablishedFrame
    first_page: ChatDigestFrame


class Typing(msgspec.Struct, frozen=True, gc=False):
    """Tell the other members of the chat that the user types, or has stopped."""

    chat_id: ChatId
    is_typing: bool


class FetchPage(msgspec.Struct, frozen=True, gc=False):
    """Read messages, and call `page_fetched`. At most one fetch is under way."""

    request: SyncRequestFrame


class FetchDigest(msgspec.Struct, frozen=True, gc=False):
    """Read the state of the chats after `after`, and call `digest_fetched`."""

    after: ChatId | None


class Ping(msgspec.Struct, frozen=True, gc=False):
    """Ask the peer for a pong."""


class Unroute(msgspec.Struct, frozen=True, gc=False):
    """No pushes from here on."""


class Close(msgspec.Struct, frozen=True, gc=False):
    """Write the frames that wait, then close the socket."""

    code: CloseCode
    reason: str


class Report(StrEnum):
    """Facts that are counted but not told to the peer."""

    TYPING_DROPPED = "typing_dropped"
    FLOOD_DROPPED = "flood_dropped"
    BACKLOG = "backlog"
    SLOW_CONSUMER = "slow_consumer"


Effect = (
    Send | SendPage | FetchPage | FetchDigest | Establish | Typing | Ping | Unroute | Close | Report
)
Effects = tuple[Effect, ...]

# For every message the core returns a plain value, not an effect: it costs half as much.
Received = Effects | int | Advance
"""A number: have the message of this frame stored, and call `submitted` with frame, number and
outcome. It rises with every send of the connection.
An advance: have the user's positions moved. No answer follows."""
Answered = Effects | SendMessageAckFrame
"""A frame: as `Send`."""

NOTHING: Final[Effects] = ()
PING: Final = Ping()
UNROUTE: Final = Unroute()
