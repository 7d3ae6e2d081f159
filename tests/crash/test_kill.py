"""Kill -9 under load: see `tests.crash.torture`, which does any number of rounds."""

import secrets
import sys
from pathlib import Path

import pytest

from tests.crash.torture import Torture, command, torture
from tidewire.domain.messages import EntryKind

ROUNDS = 40


# Slow: every round is a process that starts, opens the store and works for a while.
@pytest.mark.slow
@pytest.mark.timeout(480)
def test_kills_lose_nothing_that_was_promised(tmp_path: Path) -> None:
    seed = secrets.token_hex(4)
    tally, faults = torture(tmp_path / "data", seed, ROUNDS)
    sys.stdout.write(f"seed {seed}: {tally}\n")
    assert not faults, "\n".join([f"again with: {command(seed, ROUNDS)}", *faults])
    assert tally.rounds == ROUNDS
    assert tally.found > 0, "no kill came between a commit and its answer"
    assert tally.kinds.keys() == set(EntryKind), "not all kinds of entries were stored"


# Slow: starts processes.
@pytest.mark.slow
@pytest.mark.parametrize(
    ("option", "words"), [("--forgetful", "lost: "), ("--retentive", "readable: ")]
)
def test_child_that_does_wrong_is_caught(option: str, words: str, tmp_path: Path) -> None:
    """One child keeps messages only in memory, the other keeps the texts of deleted messages."""
    run = Torture(tmp_path / "data", "wrong", child_options=[option])
    faults: list[str] = []
    # A kill before the first answer leaves traces too, but breaks no promise yet.
    while not any(fault.startswith(words) for fault in faults) and run.tally.kills < 40:
        faults += run.round()
    assert any(fault.startswith(words) for fault in faults), faults
