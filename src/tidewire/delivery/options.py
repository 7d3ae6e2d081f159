"""Settings of positions that an operator may change."""

from dataclasses import dataclass

from tidewire.domain.limits import check_numbers


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryOptions:
    """Bounds and times of the delivery plane. An impossible value raises ValueError."""

    waiting_max: int = 65_536
    """How many positions may wait to be written, one for each connection, user and chat."""
    batch_max: int = 1_024
    """How many positions are written at once."""
    retry_ms: int = 1_000
    """How long to wait before the next try after the store could not write positions."""
    drain_ms: int = 5_000
    """How long a shutdown waits for positions to be written."""

    def __post_init__(self) -> None:
        check_numbers(self, may_be_zero=("drain_ms",))
