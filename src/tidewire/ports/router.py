"""Where users are connected, and bringing frames to them. One process: memory. Cluster: Redis."""

from collections.abc import Sequence
from typing import Protocol

from tidewire.domain.ids import ConnectionId, UserId
from tidewire.domain.resync import ResyncReason


class Router(Protocol):
    """Brings frames to the connections of users.

    Lossless or told: a frame reaches every connection registered before the call, or that one is
    told to sync again (`resync`), or closed. Frames to one connection keep their order.
    """

    def push(
        self,
        user_ids: Sequence[UserId],
        framed: bytes,
        *,
        except_connection: ConnectionId | None = None,
    ) -> None:
        """Write a framed WebSocket frame to every connection of these users but one.

        Does not wait: what cannot be written at once is queued within the connection's bound.
        """
        ...

    def online(self, user_ids: Sequence[UserId]) -> list[UserId]:
        """Those of the users that have a connection, as far as is known here."""
        ...

    def connections_of(self, user_id: UserId) -> int:
        """How many connections a user has, as far as is known here."""
        ...

    def resync(self, user_ids: Sequence[UserId] | None, reason: ResyncReason) -> None:
        """Tell every connection of these users (None: of everybody) that it may have missed a push,
        and is to ask for a digest after a delay that differs from connection to connection."""
        ...
