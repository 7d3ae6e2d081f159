"""Every attack of the siege, for a moment. Slow: real servers, and a process for each attacker.

The attacker is closed or bounded, the server's memory stays, and two people who talk all the while
get their acks as two others do on a server that is not attacked. Some attacks share a server, one
after the other: it has to withstand the last as it did the first. `make siege` does the same for
longer, on a server each.
"""

import asyncio
import os
import signal
from pathlib import Path

import pytest

from tests.e2e.siege import SIEGE, besieged, conversation

pytestmark = [pytest.mark.slow, pytest.mark.timeout(480)]

SECONDS = 1.5
SERVERS = 6
FROZEN_S = 3.0


@pytest.mark.parametrize("server", range(SERVERS))
async def test_siege_is_withstood(server: int, tmp_path: Path) -> None:
    faults = {}
    async with (
        conversation(tmp_path / "control") as control,
        besieged(tmp_path / "data", control) as scene,
    ):
        for attack in SIEGE[server::SERVERS]:
            faults[attack.name] = (await scene.withstand(attack, SECONDS)).faults
    assert faults == {name: [] for name in faults}


async def test_server_that_freezes_under_an_attack_is_noticed(tmp_path: Path) -> None:
    """Whatever else the machine does: the control tells its part from the server's."""
    [attack] = [each for each in SIEGE if each.name == "probes"]
    async with (
        conversation(tmp_path / "control") as control,
        besieged(tmp_path / "data", control) as scene,
    ):
        pids = scene.attacked.site.server.pids()

        def signal_all(number: signal.Signals) -> None:
            for pid in pids:
                os.kill(pid, number)

        suffering = asyncio.create_task(scene.suffer(attack, FROZEN_S))
        await asyncio.sleep(0.5)
        signal_all(signal.SIGSTOP)
        await asyncio.sleep(FROZEN_S)
        signal_all(signal.SIGCONT)
        verdict = await suffering
    assert verdict.slow, (verdict.besieged_ms, verdict.control_ms)
