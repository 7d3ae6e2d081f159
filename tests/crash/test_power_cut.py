"""The power is cut, hundreds of times, at random operations of the real engine on a modelled disk.

After each cut nothing that was acknowledged or shown is missing or different, nothing is stored
twice, the chains are whole, no position has fallen, and `tidewire verify` finds nothing. Engines
and disks that do not sync show that the check can fail: they must be caught.
"""

import logging
import secrets
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.crash.cuts import summary
from tests.crash.lives import SMALL, Lives, Story, survive
from tests.crash.power import Lie, never
from tidewire.engines.sqlite.wal import Verdict

CUTS = 100
"""How many cuts in each of three runs; more, until every place was cut."""
CUTS_MAX = 5 * CUTS

MUST_BE_HIT = (
    "open: ",
    "open: database write",
    "run: wal write",
    "run: wal sync",
    "run: wal restart ",
    "run: database write",
    "run: database sync",
    "close: ",
)
"""Opening and recovery, commits, restarts of the log, checkpoints, orderly ends: each was cut at
least once."""


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """A store that dies logs it every time; here that is expected."""
    with caplog.at_level(logging.CRITICAL + 1):
        yield


def never_seen(story: Story) -> list[str]:
    """What must happen in some life of a run, and has not happened so far. The seed alone does not
    decide it, because it depends on how threads interleave."""
    found = [
        wanted for wanted in MUST_BE_HIT if not any(hit.startswith(wanted) for hit in story.hits)
    ]
    if not story.restarts:
        found.append("a restart of the log")
    if not story.found:
        found.append("a cut between a commit and its answer")
    # The log was judged in every life; logs with these verdicts must open without an error.
    return [*found, *({Verdict.WHOLE, Verdict.TORN} - story.logs.keys())]


def is_all_seen(story: Story) -> bool:
    return not never_seen(story) or story.cuts >= CUTS_MAX


# Slow: each run has a hundred lives of a store, each with its recovery.
@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.parametrize("seed", ["tidal", "wire", None])
def test_power_cuts_lose_nothing_that_was_promised(seed: str | None, tmp_path: Path) -> None:
    seed = seed or secrets.token_hex(4)
    story, faults = survive(tmp_path, seed, CUTS, is_enough=is_all_seen)
    sys.stdout.write(f"seed {seed}: {summary(story)}")
    again = f"python -m tests.crash.cuts --cuts {story.cuts} --seed {seed}"
    assert not faults, "\n".join([f"again with: {again}", *faults])
    assert story.cuts >= CUTS
    missed = never_seen(story)
    assert not missed, f"never seen: {missed}\n{summary(story)}"


# Slow: it takes a few cuts until the missing syncs are noticed.
@pytest.mark.slow
@pytest.mark.parametrize(
    ("synchronous", "lie"),
    [
        pytest.param("OFF", never, id="engine-that-does-not-sync"),
        pytest.param("FULL", lambda kind, phase: kind == "wal", id="disk-that-forgets-the-log"),
        pytest.param(
            "FULL",
            lambda kind, phase: kind == "database" and phase == "run",
            id="checkpoints-that-do-not-sync",
        ),
    ],
)
def test_store_that_is_not_synced_is_caught(synchronous: str, lie: Lie, tmp_path: Path) -> None:
    options = replace(SMALL, synchronous=synchronous)
    story, faults = survive(tmp_path, "liar", 60, options=options, lie=lie)
    sys.stdout.write(f"caught after {story.cuts} cuts: {faults}\n")
    assert faults, "nobody has noticed"


def test_store_that_loses_acknowledged_messages_is_caught_as_such(tmp_path: Path) -> None:
    """The check notices not just some damage, but that acknowledged messages are gone."""
    lost: list[str] = []
    for number in range(20):
        home = tmp_path / str(number)
        home.mkdir()
        lives = Lives(home, f"loser-{number}", options=replace(SMALL, synchronous="OFF"))
        faults = lives.live_and_die()
        lives.end()
        lost += [fault for fault in faults if fault.startswith("lost: ")]
        if lost:
            break
    assert lost
