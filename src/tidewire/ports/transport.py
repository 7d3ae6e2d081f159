"""Between the edge, which owns sockets, and the gateway, which owns conversations.

The edge speaks WebSocket: it upgrades, reassembles, answers control frames and closes. The gateway
speaks our protocol: it says who may connect and what is written. Neither knows the other's insides.
All of it happens on one event loop.
"""

from collections.abc import Mapping
from typing import Protocol

import msgspec

from tidewire.domain.ids import SessionId, UserId


class UpgradeRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request for `/v1/ws`, before it is answered.

    Header names are in lower case. `client_ip` is the peer's, or what a trusted proxy says it is.
    """

    path: str
    query: str
    headers: Mapping[str, str]
    client_ip: str


class Admission(msgspec.Struct, frozen=True, kw_only=True):
    """A client may connect. `subprotocol` is what the answer names, for browsers."""

    user_id: UserId
    session_id: SessionId
    device_id: str
    token_expires_at_ms: int
    client_ip: str
    subprotocol: str | None = None
    token_round: int = 0
    """The hub's `token_round` when the token was checked. In a later one it may have ended."""
    features: tuple[str, ...] = ()
    """The features that the client has offered and this server knows."""
    withheld: tuple[str, ...] = ()
    """Those features that are not possible yet: the client is not told of them."""


class HandshakeRefusal(msgspec.Struct, frozen=True, kw_only=True):
    """A client may not connect: an HTTP status and the flat JSON body."""

    http_status: int
    error: str
    message: str
    details: Mapping[str, object] = {}
    retry_after_seconds: int | None = None


class SocketTransport(Protocol):
    """An open WebSocket, as the gateway writes to it."""

    def write(self, framed: bytes) -> None:
        """Send WebSocket frames that are already framed (`wire.framing`), one or many, in order.

        Never blocks. After `close` or the loss of the peer it does nothing.
        """
        ...

    def unsent_bytes(self) -> int:
        """How many of the written bytes have not left this process yet."""
        ...

    def tell_drained_below(self, unsent_bytes: int) -> None:
        """Call `SocketListener.drained` each time the unsent bytes fall to this number after they
        were above it."""
        ...

    def ping(self) -> None:
        """Ask the peer for a pong."""
        ...

    def close(self, code: int, reason: str) -> None:
        """Send what is unsent, then a close frame, wait for the peer's a while, then drop it."""
        ...


class SocketListener(Protocol):
    """One conversation, as the edge feeds it."""

    def text_received(self, payload: bytes | memoryview) -> int:
        """Take a whole text message. Returns its number of frames, because limits count each one.

        A memoryview is good only until this returns.
        """
        ...

    def pong_received(self) -> None:
        """The peer has sent a pong: a sign of life."""
        ...

    def drained(self) -> None:
        """The peer has read so much that no more is unsent than `tell_drained_below` has set."""
        ...

    def overrun(self) -> None:
        """The peer sends more than it may, and does not stop: nothing more of it is read. Close
        the connection."""
        ...

    def lost(self, *, is_closed_by_peer: bool = False) -> None:
        """The socket is gone, closed by either side. Called once; nothing is received after it.

        `is_closed_by_peer`: the peer closed the connection of its own accord.
        """
        ...


class SocketGateway(Protocol):
    """Admits connections and talks on them."""

    async def authorise(self, request: UpgradeRequest) -> Admission | HandshakeRefusal:
        """May this request become a connection? Never raises on what a peer sent."""
        ...

    def connected(self, admission: Admission, transport: SocketTransport) -> SocketListener:
        """The upgrade has been answered: begin the conversation."""
        ...
