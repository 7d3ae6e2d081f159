"""Options of pushes: what is impossible is refused by name."""

from dataclasses import fields

import pytest

from tidewire.fanout.options import FanoutOptions


@pytest.mark.parametrize("name", [field.name for field in fields(FanoutOptions)])
def test_impossible_bound_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=f"{name} is at least 1"):
        FanoutOptions(**{name: 0})
