"""The JavaScript client does what the contract asks: in Node, and in a browser that is killed.

Goal: every check of the kit, every MUST among them, with the client as it is shipped. Method: the
kit's lines in Node, whose process gets SIGKILL; the same user as a page of Chromium with a profile
on the disk, whose processes get it all. Slow: most duties are about time.
"""

from pathlib import Path

import pytest

from tests.web.adapters import TIME_SCALE, ChromiumAdapter
from tidewire_conformance import ALL, run_conformance
from tidewire_conformance.lines import LinesAdapter

PATIENCE_S = 30.0
"""A program's start, and a browser's all the more, shares its cores with others'."""

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.mark.parametrize("has_features", [True, False], ids=["new server", "old server"])
async def test_client_in_node_conforms(drivers: Path, *, has_features: bool) -> None:
    command = ["node", str(drivers / "node.mjs")]
    report = await run_conformance(
        lambda: LinesAdapter(command, time_scale=TIME_SCALE),
        patience_s=PATIENCE_S,
        has_features=has_features,
    )
    assert not report.failed, f"\n{report}"
    assert len(report.results) == len(ALL)


async def test_client_in_chromium_conforms(drivers: Path) -> None:
    report = await run_conformance(
        lambda: ChromiumAdapter(drivers / "page.js"), patience_s=PATIENCE_S, parallel=4
    )
    assert not report.failed, f"\n{report}"
    assert len(report.results) == len(ALL)
