"""News between the processes of a cluster about the positions of a chat's members. PURE.

News tells only of commits, after them. A head comes with the membership version that it was
committed under: a process that knows the members of that version may show ticks up to that head.
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
    """`membership_version` and `head` are those of one commit; 0: the news does not have them."""

    chat_id: ChatId
    membership_version: int = 0
    head: int = 0
    moves: tuple[Move, ...] = ()
    is_change: bool = False
    """The commit changed the members, so ticks may no longer have to wait for one of them."""


class ChatStanding(msgspec.Struct, frozen=True):
    """A chat as it was read: the head row first, then the members and their positions."""

    chat_id: ChatId
    membership_version: int
    head: int
    members: dict[UserId, int]
    """Their `joined_sequence`."""
    positions: dict[UserId, Positions]
    has_block: bool = False
