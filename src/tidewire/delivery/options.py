"""What an operator may tune about positions."""

from dataclasses import dataclass

from tidewire.domain.limits import check_numbers


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryOptions:
    """Bounds and times of the delivery plane. An impossible value raises ValueError."""

    waiting_max: int = 65_536
    """How many (connection, user, chat) may have a position that is not written yet."""
    batch_max: int = 1_024
    """How many positions are written at once."""
    retry_ms: int = 1_000
    """How long to leave the store alone after it could not write positions."""
    drain_ms: int = 5_000
    """How long a shutdown waits for positions to be written."""

    def __post_init__(self) -> None:
        check_numbers(self, may_be_zero=("drain_ms",))
