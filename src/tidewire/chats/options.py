"""What an operator may tune about chats."""

from dataclasses import dataclass

from tidewire.domain.chats import DirectPolicy
from tidewire.domain.limits import GROUP_MEMBERS_MAX


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatOptions:
    """Bounds of the chat plane."""

    group_members_max: int = GROUP_MEMBERS_MAX
    """How many members a group may have, its owner included."""

    direct_policy: DirectPolicy = DirectPolicy.ANYONE
    """Who may begin a direct chat with whom: anyone, people who share a group, or nobody."""
