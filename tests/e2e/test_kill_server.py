"""kill -9 of a server while a crowd talks, again and again. Slow: ten lives of a server.

What was acknowledged is there once, clients are complete after they synced, and no number that
anybody was shown was too high. `python -m tests.e2e.kills` does the same as often as one likes.
"""

from pathlib import Path

import pytest

from tests.e2e.crowds import crowd
from tests.e2e.kills import PAIRS, Kills

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

ROUNDS = 10


async def test_kill_under_load_ten_times_on_one_data_directory(tmp_path: Path) -> None:
    """Each client holds every digest against what it was shown before, and every message against
    what all others have met (`tidewire_bench/mixed_client.py`, `tidewire_bench/book.py`)."""
    async with crowd(tmp_path / "data", PAIRS, seed=20261115) as people:
        kills = Kills(people)
        for _ in range(ROUNDS):
            await kills.round()
        await kills.check()
        kills.final_check()
