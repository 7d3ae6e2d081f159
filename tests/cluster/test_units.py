"""What a message costs in the database, in the mixes of `tidewire bench units`, at length.

Units are exact; the pace of a mix is not, on a busy machine: acknowledgements that come together
are written together.
"""

from pathlib import Path

import pytest

from tests.cluster.counted import hold_to_bars
from tidewire_bench.mixes import MIXES


@pytest.mark.timeout(480)
async def test_every_mix_costs_no_more_than_its_bar(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await hold_to_bars(MIXES, tmp_path, monkeypatch)
