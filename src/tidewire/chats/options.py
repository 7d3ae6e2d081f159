"""What an operator may tune about chats."""

from dataclasses import dataclass

from tidewire.domain.limits import GROUP_MEMBERS_MAX


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatOptions:
    """Bounds of the chat plane."""

    group_members_max: int = GROUP_MEMBERS_MAX
    """How many members a group may have, its owner included."""
