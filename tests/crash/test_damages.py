"""One byte of a log is damaged, many times, in logs of the real engine: it is noticed each time.

`make test` does some of what `python -m tests.crash.damages` does by the hundred.
"""

import logging
import secrets
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.crash.damages import damage_logs

DAMAGES = 30
"""How many damages in each of two runs."""


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """A store that dies logs it every time; here that is expected."""
    with caplog.at_level(logging.CRITICAL + 1):
        yield


# Slow: each damage is noticed, refused, recovered and verified.
@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.parametrize("seed", ["ebb", None])
def test_damage_with_three_commits_behind_it_is_noticed(seed: str | None, tmp_path: Path) -> None:
    seed = seed or secrets.token_hex(4)
    tally, faults = damage_logs(tmp_path, seed, DAMAGES)
    sys.stdout.write(f"seed {seed}: {tally}")
    again = f"python -m tests.crash.damages --damages {DAMAGES} --seed {seed}"
    assert not faults, "\n".join([f"again with: {again}", *faults])
    assert tally.damages >= DAMAGES
    assert tally.restarted > 0, "no log had been restarted"
    assert tally.checkpointed > 0, "no log had been copied in part"
    assert tally.sectors > 0
