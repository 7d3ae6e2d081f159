"""A start on a full disk (B3): reads go on, sends are refused, and it heals. Slow: real servers."""

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.full_disk import EXPECTED
from tests.engines.sqlite.child import CANNOT_MOUNT

TIMEOUT_S = 150

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("end", ["stopped", "killed"])
async def test_server_starts_on_a_full_disk_and_heals_when_there_is_room(
    tmp_path: Path, end: str
) -> None:
    done = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-m", "tests.e2e.full_disk", str(tmp_path), end],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.stderr == ""
    # Where nothing may be mounted, tests/engines/sqlite/test_full_disk.py is all there is.
    assert done.stdout.splitlines() in (EXPECTED, [CANNOT_MOUNT])
