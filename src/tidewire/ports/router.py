"""Where users are connected, and bringing frames to them. One process: memory. Cluster: Redis."""

from collections.abc import Mapping, Sequence
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

    def resync(self, user_ids: Sequence[UserId] | None, reason: ResyncReason) -> None:
        """Tell every connection of these users (None: of everybody) that it may have missed a push,
        and is to ask for a digest after a delay that differs from connection to connection."""
        ...

    async def presence(self, user_ids: Sequence[UserId]) -> Mapping[UserId, int]:
        """How many connections those of the users have who are connected, as far as is known. Never
        raises: whoever cannot be asked about is not there."""
        ...

    async def settled(self) -> None:
        """Wait until everything pushed before is out of this process's hands: handed on, or given
        up with those concerned told to sync again."""
        ...
