"""Every attack of the siege, for a moment. Slow: a real server and an attacker's process for each.

The attacker is closed or bounded, the server's memory stays, and two people who talk all the while
get their acks as if nothing happened. `make siege` does the same for longer.
"""

from pathlib import Path

import pytest

from tests.e2e.siege import SIEGE, Attack, besieged

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

SECONDS = 1.5


@pytest.mark.parametrize("attack", SIEGE, ids=[attack.name for attack in SIEGE])
async def test_siege_is_withstood(attack: Attack, tmp_path: Path) -> None:
    async with besieged(tmp_path / "data") as scene:
        verdict = await scene.withstand(attack, SECONDS)
    assert verdict.faults == []
