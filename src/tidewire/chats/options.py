"""Settings of chats that an operator may change."""

from dataclasses import dataclass
from typing import Final

from tidewire.domain.chats import DirectPolicy
from tidewire.domain.limits import GROUP_MEMBERS_MAX

STRANGERS_PER_HOUR_MAX: Final = 1_000_000
"""In effect no bound."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatOptions:
    """Bounds of the chat plane. An impossible value raises ValueError."""

    group_members_max: int = GROUP_MEMBERS_MAX
    """How many members a group may have, its owner included."""

    direct_policy: DirectPolicy = DirectPolicy.ANYONE
    """Who may begin a direct chat with whom: anyone, people who share a group, or nobody."""

    strangers_per_hour: int = 50
    """How many people a user may add to groups, or begin direct chats with, in an hour, if they
    share no chat with the user yet. All may be added at once, and the allowance comes back evenly.
    Bounds how many people one account can bother; lower it where strangers can register, raise it
    for bots that write to people first."""

    edit_window_ms: int | None = None
    """For how long its author can edit a message, from when it was stored; None: always. Deleting
    it is always possible."""

    def __post_init__(self) -> None:
        if not 2 <= self.group_members_max <= GROUP_MEMBERS_MAX:
            raise ValueError(f"group_members_max is 2 to {GROUP_MEMBERS_MAX}")
        if not 1 <= self.strangers_per_hour <= STRANGERS_PER_HOUR_MAX:
            raise ValueError(f"strangers_per_hour is 1 to {STRANGERS_PER_HOUR_MAX}")
        if self.edit_window_ms is not None and self.edit_window_ms < 1:
            raise ValueError("edit_window_ms is at least 1, or none")
