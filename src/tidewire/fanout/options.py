"""Settings of pushes that an operator may change."""

from dataclasses import dataclass
from typing import Final

from tidewire.domain.limits import check_numbers

ALONE_MAX: Final = 16
"""How many chats whose ticks need more reads are read at the same time. After a restart no members
are known, and reads for users come before ticks."""
LARGE_MEMBERS: Final = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class FanoutOptions:
    """Bounds and times of the fan-out plane. An impossible value raises ValueError."""

    rosters_max: int = 20_000
    """How many chats' members are remembered; the one used longest ago is forgotten first."""
    roster_users_max: int = 500_000
    """How many members are remembered over all chats."""
    roster_age_ms_max: int | None = None
    """How old the remembered members of a chat may be for pushes without a version (typing). None:
    any age, where every change is heard of; a process that hears of none reads them again."""
    waiting_events_max: int = 10_000
    """How many events may wait while the members of their chats are read; beyond it all connected
    clients are told to sync again. A worker that reads the log stops reading instead, when it holds
    this many; events that are behind a waiting one in a partition count, too."""
    status_interval_ms: int = 250
    """The shortest time between two status updates of one chat."""
    status_large_interval_ms: int | None = None
    """The same for a chat of more than `LARGE_MEMBERS`, where reading its positions costs a request
    for each hundred. None: no difference, where it costs the same for every chat."""
    status_chats_max: int = 50_000
    """How many chats may have a status update due or just sent; beyond it, a chat is told only at
    its next move after there is room."""
    status_gather_ms: int = 20
    """The shortest time between two reads of positions: chats due meanwhile are read together."""
    status_batch_max: int = 200
    """How many chats' positions are read at once for status updates."""
    retry_ms: int = 500
    """How long to wait before the next try after the store could not be read."""
    read_attempts_max: int = 5
    """How often a chat's members are asked for before all clients are told to sync again."""

    def __post_init__(self) -> None:
        check_numbers(self)
