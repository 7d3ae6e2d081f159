"""kill -9 of the whole server while a crowd talks, again and again. Slow: ten lives of a server.

What was acknowledged is there once, clients are complete after they synced, and no number that
anybody was shown was too high.
"""

from pathlib import Path

import pytest

from tests.e2e.crowds import crowd
from tidewire.ops.load.mixed_frames import RISING

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

ROUNDS = 10
PAIRS = 20


async def test_kill_under_load_ten_times_on_one_data_directory(tmp_path: Path) -> None:
    """Each client holds every digest against what it was shown before, and every message against
    what all others have met (`ops/load/mixed_client.py`, `ops/load/book.py`)."""
    async with crowd(tmp_path / "data", PAIRS, seed=20261115) as people:
        faults = people.outcome.faults
        stored = 0
        for number in range(ROUNDS + 1):
            await people.arrive()
            assert await people.audit() == people.book.acked_count >= stored
            stored = people.book.acked_count
            assert faults.first == [], f"after kill {number}"
            if number == ROUNDS:
                break
            tasks = await people.talk(people.generator.randrange(100, 800))
            assert people.under_way > 0, "nothing was on its way at the kill"
            people.server.kill()
            await people.gone(tasks)
            await people.server.start()
        assert stored > 100 * ROUNDS
        for name in RISING:
            shown = [getattr(one.shown[people.group], name) for one in people.clients]
            assert max(shown) > 0, f"nobody was shown {name}, so nothing was proved of it"
        assert set(people.outcome.errors) <= {"unreachable"}
