"""What a message costs in the database: those mixes of `bench units` that take seconds, with fewer
messages. All of them, at their length, are in test_units.py."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.cluster.counted import hold_to_bars
from tidewire_bench.mixes import BY_NAME

BRIEF = (
    replace(BY_NAME["append"], messages=40, warm_up=32),
    replace(BY_NAME["direct"], messages=10, warm_up=6),
)


@pytest.mark.slow
@pytest.mark.timeout(180)
async def test_message_costs_no_more_than_its_bar(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await hold_to_bars(BRIEF, tmp_path, monkeypatch)
