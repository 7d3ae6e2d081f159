"""What a message costs in the database, in the mixes of `tidewire bench units`.

Units are exact; the pace of a mix is not, on a busy machine: acknowledgements that come together
are written together. Each mix has a cluster of its own and mostly waits, so mixes run in parallel.

Slow: a mix measures a steady state, which takes time to reach.
"""

from pathlib import Path

import pytest

from tests.cluster.counted import hold_to_bars
from tidewire_bench.mixes import MIXES, Mix


@pytest.mark.slow
@pytest.mark.timeout(480)
@pytest.mark.parametrize("mix", MIXES, ids=[mix.name for mix in MIXES])
async def test_mix_costs_no_more_than_its_bar(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mix: Mix
) -> None:
    await hold_to_bars([mix], tmp_path, monkeypatch)
