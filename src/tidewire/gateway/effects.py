"""What a connection wants done: small frozen values that its shell carries out. PURE."""

from enum import StrEnum
from typing import Final

import msgspec

from tidewire.domain.ids import ChatId
from tidewire.wire.client_frames import SendMessageFrame, SyncRequestFrame
from tidewire.wire.error_table import CloseCode
from tidewire.wire.server_frames import (
    ChatDigestFrame,
    ConnectionEstablishedFrame,
    ServerFrame,
    SyncResponseFrame,
)


class Send(msgspec.Struct, frozen=True, gc=False):
    """Write this frame, after everything that was written before."""

    frame: ServerFrame


class SendPage(msgspec.Struct, frozen=True):
    """Write this page, outside the outbound budget, and call `drained` when it has gone out."""

    frame: SyncResponseFrame | ChatDigestFrame


class Establish(msgspec.Struct, frozen=True):
    """Write these before anything else, then what was held back; the page as with SendPage."""

    frame: ConnectionEstablishedFrame
    first_page: ChatDigestFrame


class Submit(msgspec.Struct, frozen=True, gc=False):
    """Have the message stored, and call `submitted` with frame, number and outcome."""

    frame: SendMessageFrame
    number: int
    """Rises with every send of the connection."""


class Acknowledge(msgspec.Struct, frozen=True, gc=False):
    """Have the user's positions in this chat moved. Nobody waits for it."""

    chat_id: ChatId
    delivered: int
    read: int


class Typing(msgspec.Struct, frozen=True, gc=False):
    """Tell the others of the chat."""

    chat_id: ChatId
    is_typing: bool


class FetchPage(msgspec.Struct, frozen=True, gc=False):
    """Read messages, and call `page_fetched`. At most one fetch is under way."""

    request: SyncRequestFrame


class FetchDigest(msgspec.Struct, frozen=True, gc=False):
    """Read the state of the chats above this one, and call `digest_fetched`."""

    after: ChatId | None


class Ping(msgspec.Struct, frozen=True, gc=False):
    """Ask the peer for a pong."""


class Unroute(msgspec.Struct, frozen=True, gc=False):
    """No pushes from here on."""


class Close(msgspec.Struct, frozen=True, gc=False):
    """Write what is to be written, then close the socket."""

    code: CloseCode
    reason: str


class Report(StrEnum):
    """What is counted and not told to the peer."""

    TYPING_DROPPED = "typing_dropped"
    FLOOD_DROPPED = "flood_dropped"
    BACKLOG = "backlog"
    SLOW_CONSUMER = "slow_consumer"


Effect = (
    Submit
    | Send
    | Acknowledge
    | SendPage
    | FetchPage
    | FetchDigest
    | Establish
    | Typing
    | Ping
    | Unroute
    | Close
    | Report
)
Effects = tuple[Effect, ...]

NOTHING: Final[Effects] = ()
PING: Final = Ping()
UNROUTE: Final = Unroute()
