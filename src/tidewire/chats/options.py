"""What an operator may tune about chats."""

from dataclasses import dataclass

from tidewire.domain.chats import DirectPolicy
from tidewire.domain.limits import GROUP_MEMBERS_MAX


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatOptions:
    """Bounds of the chat plane. An impossible value raises ValueError."""

    group_members_max: int = GROUP_MEMBERS_MAX
    """How many members a group may have, its owner included."""

    direct_policy: DirectPolicy = DirectPolicy.ANYONE
    """Who may begin a direct chat with whom: anyone, people who share a group, or nobody."""

    def __post_init__(self) -> None:
        if not 2 <= self.group_members_max <= GROUP_MEMBERS_MAX:
            raise ValueError(f"group_members_max is 2 to {GROUP_MEMBERS_MAX}")
