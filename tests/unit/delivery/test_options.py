"""Options of positions: what is impossible is refused by name."""

import pytest

from tidewire.delivery.options import DeliveryOptions


@pytest.mark.parametrize("name", ["waiting_max", "batch_max", "retry_ms"])
@pytest.mark.parametrize("value", [0, -1])
def test_impossible_bound_is_refused(name: str, value: int) -> None:
    with pytest.raises(ValueError, match=f"{name} is at least 1"):
        DeliveryOptions(**{name: value})


def test_shutdown_may_wait_for_nothing_but_not_for_less() -> None:
    assert DeliveryOptions(drain_ms=0).drain_ms == 0
    with pytest.raises(ValueError, match="drain_ms is not negative"):
        DeliveryOptions(drain_ms=-1)
