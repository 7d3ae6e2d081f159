"""The power is cut while the log restarts: its header is torn, over frames that are all copied.

That is no damage, and nothing is missing. Each operation from the checkpoint to the end of the
first commit in the new log is cut, each with many outcomes.
"""

import asyncio
import shutil
from collections import Counter
from pathlib import Path
from random import Random

import apsw
import pytest

from tests.crash.power import Machine, write_files
from tests.crash.test_restart import CAST, closed, sent
from tests.support.crash_cast import establish
from tests.support.crash_snapshot import page_faults, read_snapshot, state_faults
from tidewire.domain.errors import TidewireError
from tidewire.engines.sqlite import DATABASE_NAME, SqliteOptions, SqliteStorage
from tidewire.engines.sqlite.log_look import judge_log
from tidewire.engines.sqlite.wal import Verdict

SEEDS = 8
SEEDS_OF_HEADERS = 300
"""Many, because a header of 32 bytes is seldom torn; only outcomes in which it is are opened."""
BEFORE = 4
"""How many messages are in the log before it is restarted."""


async def live(machine: Machine, cut_at: int) -> None:
    """Make some commits and restart the log, with a cut at operation `cut_at` of the restart."""
    options = SqliteOptions(vfs=machine.vfs, readers=1)
    storage = await SqliteStorage.open(
        machine.directory, options=options, on_fatal=lambda why: None
    )
    try:
        await establish(storage, CAST)
        for number in range(1, BEFORE + 1):
            await sent(storage, number)
        machine.phase = "restart"
        machine.cut_at(cut_at)
        restart = apsw.Connection(str(machine.directory / DATABASE_NAME), vfs=machine.vfs)
        try:
            restart.execute("SELECT count(*) FROM messages").fetchall()
            restart.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_RESTART)
            await sent(storage, BEFORE + 1)
        finally:
            restart.close()
    except (TidewireError, apsw.IOError):
        assert machine.hit is not None
    finally:
        machine.stop()
        await closed(storage)


async def opened(directory: Path) -> None:
    storage = await SqliteStorage.open(directory)
    await storage.close()


def check(left: Path) -> None:
    """Assert that the store opens without an error, and has everything acknowledged."""
    asyncio.run(opened(left))
    assert page_faults(left) + state_faults(left) == []
    kept = [message.content for message in read_snapshot(left).messages]
    expected = [f"message {number}" for number in range(1, BEFORE + 2)]
    assert kept in (expected, expected[:BEFORE])


# Slow: some thirty lives, each with many outcomes of its cut.
@pytest.mark.slow
@pytest.mark.timeout(240)
def test_restart_of_the_log_survives_a_cut_at_each_of_its_operations(tmp_path: Path) -> None:
    hits: set[str] = set()
    verdicts: Counter[Verdict] = Counter()
    for cut_at in range(1, 100):
        home = tmp_path / f"life-{cut_at}"
        home.mkdir()
        machine = Machine(home)
        asyncio.run(live(machine, cut_at))
        if machine.hit is None:
            machine.close()
            break
        hits.add(machine.hit)
        for seed in range(SEEDS_OF_HEADERS if "wal restart" in machine.hit else SEEDS):
            left = tmp_path / "left"
            write_files(left, machine.left_by_cut(Random(seed)))
            verdict = judge_log(left / DATABASE_NAME).verdict
            verdicts[verdict] += 1
            if seed < SEEDS or verdict is not Verdict.WHOLE:
                check(left)
            shutil.rmtree(left)
        machine.close()
    assert {"restart: wal restart write", "restart: wal restart sync"} <= hits
    assert {"restart: database write", "restart: database sync", "restart: wal write"} <= hits
    # Torn headers were among them, and torn commits after new headers.
    assert verdicts[Verdict.CUT] > 0
    assert verdicts[Verdict.TORN] > 0
    assert not verdicts[Verdict.BROKEN]
    assert not verdicts[Verdict.HEADERLESS]
