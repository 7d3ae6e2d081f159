"""Kill -9 of a store under load, again and again, on the same data: `make torture ROUNDS=n`.

Goal: what was acknowledged is stored after every kill, once, as it was acknowledged. Method: a
child process (`tests.crash.child`) runs store and ingest service under load from 16 senders and
reports its questions and answers over a pipe. At a random instant it is killed; then the database
file is read as it is and compared with the reports; the next child goes on with the same directory
and begins with the sends that got no answer.

A round counts if there were both acknowledged and unanswered sends at the kill. Kills come from
0.05 ms to 0.4 s after the first answer, half of them evenly over that time, half evenly over the
orders of magnitude; one in ten comes while the child opens the store, and usually does not count.
"""

import argparse
import os
import secrets
import select
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import IO, Final

from tests.crash.child import CAST
from tests.support.crash_ledger import Ledger
from tests.support.crash_records import (
    Opened,
    Opening,
    Placed,
    Ready,
    Record,
    Restarted,
    decode_line,
    encode_line,
)
from tests.support.crash_snapshot import page_faults, read_snapshot, state_faults
from tests.support.history import Sent

DELAY_S_MIN: Final = 0.000_05
DELAY_S_MAX: Final = 0.4
OPENING_KILLS: Final = 0.1
"""The share of kills that are timed from the beginning of the opening."""
OPENING_S_MAX: Final = 0.05
REPEATS: Final = 20
"""How many sends that were answered in earlier rounds are sent again."""
PATIENCE_S: Final = 60.0
"""How long a child may take until it is under load."""
ROOT: Final = Path(__file__).resolve().parents[2]


class ChildFailed(Exception):
    """The child has ended by itself, or was never under load."""


@dataclass(slots=True)
class Tally:
    """Counts of what has happened over all rounds."""

    rounds: int = 0
    """The rounds that count."""
    kills: int = 0
    acked: int = 0
    unanswered: int = 0
    found: int = 0
    """Unanswered sends that were stored after all."""
    restarts: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    """Promised entries, by kind."""
    phases: Counter[str] = field(default_factory=Counter)
    """What the child was doing when it was killed."""

    def __str__(self) -> str:
        kinds = ", ".join(f"{count} {kind}" for kind, count in self.kinds.items())
        phases = "\n".join(f"{times:6} killed {phase}" for phase, times in self.phases.items())
        return (
            f"{self.rounds} rounds counted of {self.kills} kills; {self.acked} answers to sends, "
            f"{self.unanswered} sends unanswered at a kill, {self.found} of them stored after all; "
            f"{self.restarts} restarts of the log; promised: {kinds}\n{phases}"
        )


class Torture:
    """The rounds over one data directory. `seed` decides the load and when to kill."""

    def __init__(self, directory: Path, seed: str, *, child_options: Sequence[str] = ()) -> None:
        """`child_options` (`tests.crash.child`) make a child do something wrong, to be caught."""
        self._child_options = child_options
        self.tally = Tally()
        self._ledger = Ledger(CAST)
        self._directory = directory
        self._seed = seed
        self._round = 0
        self._store_exists = False

    def round(self) -> list[str]:
        """Run one life, one kill and one check; return what is wrong."""
        self._round += 1
        random = Random(f"{self._seed}/{self._round}")
        answers_before = self._ledger.answers
        try:
            phase = self._live_and_be_killed(random)
        except ChildFailed as failure:
            return [str(failure)]
        acked, unanswered = self._ledger.answers - answers_before, len(self._ledger.open)
        self.tally.kills += 1
        self.tally.rounds += bool(acked and unanswered)
        self.tally.acked += acked
        self.tally.unanswered += unanswered
        self.tally.phases[phase] += 1
        self.tally.kinds = self._ledger.kinds()
        return self._faults() if self._store_exists else []

    def final_faults(self) -> list[str]:
        """Faults whose check is too slow for every round: traces, and every page."""
        snapshot = read_snapshot(self._directory)
        return self._ledger.trace_faults(snapshot) + page_faults(self._directory)

    def _faults(self) -> list[str]:
        snapshot = read_snapshot(self._directory)
        faults = self._ledger.faults_in(snapshot) + state_faults(self._directory)
        self._ledger.end_life()
        self.tally.found += self._ledger.settle(snapshot)
        return faults

    def _live_and_be_killed(self, random: Random) -> str:
        """Run a child and kill it; return what it was doing then."""
        child = subprocess.Popen(
            [
                *(sys.executable, "-m", "tests.crash.child"),
                *(str(self._directory), self._seed, str(self._round), *self._child_options),
            ],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        with child:
            assert child.stdin is not None
            assert child.stdout is not None
            try:
                child.stdin.write(b"".join(map(encode_line, self._again(random))))
                child.stdin.close()
                return self._watch(child, child.stdout, random)
            finally:
                child.kill()

    def _again(self, random: Random) -> list[Sent]:
        """The sends that the next child repeats first: those without an answer, and some others."""
        promised = list(self._ledger.promises)
        keys = dict.fromkeys(random.sample(promised, min(REPEATS, len(promised))))
        return [self._ledger.sends[key] for key in self._ledger.open | keys]

    def _watch(self, child: subprocess.Popen[bytes], reports: IO[bytes], random: Random) -> str:
        """Read what the child reports, kill it at its time, read the rest."""
        if random.random() < OPENING_KILLS:
            anchor: type[Record] = Opening
            delay_s = OPENING_S_MAX * random.random()
        else:
            anchor = Placed
            by_magnitude_s = DELAY_S_MIN * (DELAY_S_MAX / DELAY_S_MIN) ** random.random()
            delay_s = random.choice((by_magnitude_s, DELAY_S_MAX * random.random()))
        phase, rest = "before the opening", b""
        kill_at = patience = time.monotonic() + PATIENCE_S
        while (wait_s := kill_at - time.monotonic()) > 0:
            if not select.select([reports], [], [], wait_s)[0]:
                continue
            received = os.read(reports.fileno(), 1 << 16)
            if not received:
                raise ChildFailed(f"the child has ended by itself, exit code {child.wait()}")
            *lines, rest = (rest + received).split(b"\n")
            for record in map(decode_line, lines):
                self._take(record)
                phase = _phase_after(record, phase)
                if kill_at == patience and isinstance(record, anchor):
                    kill_at = time.monotonic() + delay_s
        if kill_at == patience:
            raise ChildFailed(f"no answer from the child in {PATIENCE_S} s")
        child.kill()
        for line in (rest + reports.read()).splitlines():
            self._take(decode_line(line))
        return f"{phase}, {_magnitude(delay_s)}"

    def _take(self, record: Record) -> None:
        self._ledger.feed(record)
        if isinstance(record, Restarted):
            self.tally.restarts += 1
        elif isinstance(record, Opened):
            self._store_exists = True


def _phase_after(record: Record, phase: str) -> str:
    if isinstance(record, Opening):
        return "while opening"
    if isinstance(record, Opened):
        return "while making chats"
    if isinstance(record, Ready):
        return "before the first answer"
    return "under load" if isinstance(record, Placed) else phase


def _magnitude(delay_s: float) -> str:
    for bound_ms in (1, 10, 100):
        if delay_s * 1000 < bound_ms:
            return f"within {bound_ms} ms"
    return "later"


def torture(
    directory: Path, seed: str, rounds: int, told: Callable[[Tally], None] = lambda tally: None
) -> tuple[Tally, list[str]]:
    """Kill until so many rounds have counted, or something is wrong."""
    run = Torture(directory, seed)
    while run.tally.rounds < rounds:
        if faults := run.round():
            return run.tally, faults
        told(run.tally)
    return run.tally, run.final_faults()


def command(seed: str, rounds: int) -> str:
    """The command that repeats the run."""
    parts = ["python", "-m", "tests.crash.torture", "--rounds", str(rounds), "--seed", seed]
    return shlex.join(parts)


def main() -> int:
    parser = argparse.ArgumentParser(description="Kill a store under load, and check it.")
    parser.add_argument("--rounds", type=int, default=40, help="how many rounds have to count")
    parser.add_argument("--seed", default=secrets.token_hex(4))
    parser.add_argument("--directory", type=Path, help="an empty one; it is kept")
    given = parser.parse_args()
    directory = given.directory or Path(tempfile.mkdtemp(prefix="tidewire-torture-"))
    print(f"seed {given.seed}, data in {directory}")
    began = time.monotonic()

    def progress(tally: Tally) -> None:
        passed_s = time.monotonic() - began
        done = f"{tally.rounds} of {given.rounds} rounds, {tally.acked} answers, {passed_s:.0f} s"
        print(f"\r{done} ", end="", flush=True)

    tally, faults = torture(directory, given.seed, given.rounds, progress)
    print(f"\n{tally}")
    for fault in faults:
        print(f"FAULT {fault}")
    if faults:
        print(f"the data is kept in {directory}; again with: {command(given.seed, given.rounds)}")
    elif given.directory is None:
        shutil.rmtree(directory)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
