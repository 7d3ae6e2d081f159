"""The way between the gateways of a cluster, for sends that one of them appends for another."""

from collections.abc import Sequence
from typing import Protocol

from tidewire.domain.ids import ChatId


class Between(Protocol):
    """Nothing that is told here is sure to arrive, or to arrive once. A gateway that tells
    something knows what to do without an answer."""

    async def leases(self, wishes: Sequence[tuple[ChatId, str]], life_ms: int) -> list[str]:
        """Ask for the leases of chats; who has each now, in the same order: this gateway, if it was
        free, for so long; empty if the holder cannot be read. One that the gateway named beside its
        chat has may be taken from it. Raises Unavailable."""
        ...

    async def hand(self, gateway_id: str, body: bytes) -> bool:
        """Tell a gateway something. False: it is not there, and was not told. Raises Unavailable:
        it may have been told."""
        ...

    async def close(self) -> None: ...
