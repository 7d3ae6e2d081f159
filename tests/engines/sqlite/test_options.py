"""Options of the engine: what is impossible is refused by name."""

from dataclasses import fields
from typing import Any

import pytest

from tidewire.engines.sqlite import SqliteOptions

NUMBERS = [field.name for field in fields(SqliteOptions) if isinstance(field.default, int)]


@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize("value", [0, -1])
def test_impossible_number_is_refused(name: str, value: int) -> None:
    changed: dict[str, Any] = {name: value}
    with pytest.raises(ValueError, match=f"{name} is at least 1"):
        SqliteOptions(**changed)


def test_log_is_restarted_only_after_it_could_be_copied() -> None:
    assert SqliteOptions(checkpoint_bytes=5, wal_bytes_max=5).wal_bytes_max == 5
    with pytest.raises(ValueError, match="wal_bytes_max is at least checkpoint_bytes"):
        SqliteOptions(checkpoint_bytes=6, wal_bytes_max=5)


def test_unknown_way_to_sync_is_refused() -> None:
    with pytest.raises(ValueError, match="synchronous is OFF, NORMAL, FULL or EXTRA"):
        SqliteOptions(synchronous="MAYBE")
