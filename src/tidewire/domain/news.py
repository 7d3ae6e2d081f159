"""What the processes of a cluster tell each other about where the members of a chat stand. PURE.

Only what was committed is told, after its commit. A head is told with the membership version that
it was committed under: who knows the members of that version may show ticks up to that head.
"""

import msgspec

from tidewire.domain.delivery import Positions
from tidewire.domain.ids import ChatId, UserId


class Move(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A member's positions after a commit."""

    user_id: UserId
    delivered: int
    read: int

    @property
    def positions(self) -> Positions:
        return Positions(self.delivered, self.read)


class ChatNews(msgspec.Struct, frozen=True, array_like=True):
    """`membership_version` and `head` were so at one commit; 0: nothing is said about them."""

    chat_id: ChatId
    membership_version: int = 0
    head: int = 0
    moves: tuple[Move, ...] = ()
    is_change: bool = False
    """The commit changed the members: one who was waited for may be a member no longer."""


class ChatStanding(msgspec.Struct, frozen=True):
    """A chat as it was read: the head row first, then the members and where they stand."""

    chat_id: ChatId
    membership_version: int
    head: int
    members: dict[UserId, int]
    """Their `joined_sequence`."""
    positions: dict[UserId, Positions]
    has_block: bool = False
