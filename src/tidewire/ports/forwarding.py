"""The way between the gateways of a cluster, for sends that one of them appends for another."""

from collections.abc import Sequence
from typing import Protocol

from tidewire.domain.ids import ChatId


class Between(Protocol):
    """A message between gateways may get lost, or arrive more than once. A gateway that sends one
    must be able to go on without an answer."""

    async def leases(self, wishes: Sequence[tuple[ChatId, str]], life_ms: int) -> list[str]:
        """Ask for the leases of chats. Returns the holder of each, in the same order: this gateway,
        for `life_ms`, if the lease was free; empty if the holder cannot be read. A wish is a chat
        and a gateway; if that gateway has the lease, it may be taken over. Raises Unavailable."""
        ...

    async def hand(self, gateway_id: str, body: bytes) -> bool:
        """Send a message to a gateway. False: the gateway is not there, and nothing was sent.
        Raises Unavailable: the message may have been sent."""
        ...

    async def close(self) -> None: ...
