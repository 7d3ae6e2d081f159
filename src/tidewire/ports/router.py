"""Where users are connected, and bringing frames to them. One process: memory. Cluster: Redis."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

import msgspec

from tidewire.domain.ids import ConnectionId, UserId
from tidewire.domain.news import ChatNews
from tidewire.domain.resync import ResyncReason


class Push(msgspec.Struct, frozen=True):
    """A framed frame, and the users whose connections get it."""

    user_ids: Sequence[UserId]
    frame_type: str
    """The `type` of the frame. Connections that do not know entries get an `entry` in the form that
    they know; the process that has the connection makes that form."""
    framed: bytes
    except_connection: ConnectionId | None = None
    news: ChatNews | None = None
    """The news of the frame's commit about its chat, for the processes with the connections."""


class Router(Protocol):
    """Brings frames to the connections of users.

    Lossless or told: a frame reaches every connection registered before the call, or that one is
    told to sync again (`resync`), or closed. Frames to one connection keep their order.
    """

    def push(self, push: Push) -> None:
        """Write a framed WebSocket frame to every connection of its users but one.

        Does not wait: what cannot be written at once is queued within the connection's bound.
        """
        ...

    def resync(self, user_ids: Sequence[UserId] | None, reason: ResyncReason) -> None:
        """Tell every connection of these users (None: of all users) that it may have missed a push,
        and is to ask for a digest after a delay that differs from connection to connection."""
        ...

    async def presence(self, user_ids: Sequence[UserId]) -> Mapping[UserId, int]:
        """The users who are connected, and how many connections each has, as far as is known.
        Raises Unavailable if that is not known now."""
        ...

    async def settled(self) -> None:
        """Wait until this process has finished everything pushed before: handed it on, or given it
        up and told the recipients to sync again."""
        ...


class Route(NamedTuple):
    """Where a connection is to be found: its user and the device."""

    connection_id: ConnectionId
    user_id: UserId
    device_id: str


class Registrar(Protocol):
    """Makes the routes of this process known to the others of a cluster."""

    async def register(self, route: Route) -> int:
        """Make a route known. After this returns, pushes reach the connection, or it is told to
        sync again later: so await this before the connection's digest is read.

        Returns how many connections its user has on other devices at other servers, as far as is
        known. An older connection of the same device elsewhere is closed. Takes a second or so at
        most, and never raises.
        """
        ...

    def unregister(self, route: Route) -> None:
        """Remove a route: the connection takes no pushes any more."""
        ...


class LocalRouter(Router, Protocol):
    """The connections of this process, for the code that brings the pushes of other processes."""

    def resync_connections(
        self, connection_ids: Sequence[ConnectionId], reason: ResyncReason
    ) -> None:
        """As `resync`, for exactly these connections."""
        ...

    def close_duplicate(self, connection_id: ConnectionId) -> None:
        """Close a connection whose device has connected elsewhere."""
        ...
