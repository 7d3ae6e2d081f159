"""Compare the server of this tree with the server of an earlier commit: CPU time per message.

`make bench-against REV=HEAD~20`. Both sides run `tidewire bench pairs 100 4` in turns, each with
its own environment and its own load generator, in one sitting: machines differ from minute to
minute, so only the ratio of two neighbouring runs means something. The order within a pair
alternates, which cancels a drift. The exit code is 1 if the median ratio is above the limit.

Needs only the standard library; `make` makes the two environments.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
WORKTREES = ROOT / "build" / "against"
SPARE_S = 120.0
"""How much longer than its measured time a run may take: start, log in, warm up, drain."""


class Pair(NamedTuple):
    """Server CPU per message of two neighbouring runs, in microseconds."""

    old_us: float
    new_us: float

    @property
    def ratio(self) -> float:
        return self.new_us / self.old_us


class Summary(NamedTuple):
    old_us: float
    new_us: float
    low_quartile: float
    median: float
    high_quartile: float

    def within(self, limit: float) -> bool:
        return self.median <= limit


def summarize(pairs: Sequence[Pair]) -> Summary:
    """Medians of both sides, and the quartiles of the ratios. Needs two pairs or more."""
    low, median, high = statistics.quantiles([pair.ratio for pair in pairs], method="inclusive")
    return Summary(
        old_us=statistics.median(pair.old_us for pair in pairs),
        new_us=statistics.median(pair.new_us for pair in pairs),
        low_quartile=low,
        median=median,
        high_quartile=high,
    )


def main(arguments: Sequence[str] | None = None) -> int:
    wanted = _parser().parse_args(arguments)
    old = _worktree(wanted.rev)
    print(f"old: {_described(old)}")
    print(f"new: {_described(ROOT)} (this tree)")
    print(f"server CPU of 'bench {' '.join(wanted.workload)}', {wanted.seconds:g} s a run\n")
    print(f"{'pair':>4}  {'old µs':>7}  {'new µs':>7}  {'new/old':>7}")
    pairs: list[Pair] = []
    for number in range(1, wanted.pairs + 1):
        pair = _measure_pair(old, wanted, is_old_first=number % 2 == 1)
        pairs.append(pair)
        print(f"{number:>4}  {pair.old_us:7.1f}  {pair.new_us:7.1f}  {pair.ratio:7.3f}", flush=True)
    summary = summarize(pairs)
    is_within = summary.within(wanted.limit)
    print(
        f"\nmedians: old {summary.old_us:.1f} µs, new {summary.new_us:.1f} µs a message\n"
        f"ratio new/old: median {summary.median:.3f}, "
        f"quartiles {summary.low_quartile:.3f} to {summary.high_quartile:.3f}; "
        f"limit {wanted.limit:.2f}: {'held' if is_within else 'MISSED'}"
    )
    return os.EX_OK if is_within else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("rev", help="the commit to compare with")
    parser.add_argument("--pairs", type=_two_or_more, default=15, help="pairs of runs (15)")
    parser.add_argument("--seconds", type=float, default=8.0, help="measured time of a run (8)")
    parser.add_argument("--limit", type=float, default=1.03, help="highest median ratio (1.03)")
    parser.add_argument(
        "--workload",
        type=str.split,
        default=["pairs", "100", "4"],
        help="a workload of 'tidewire bench' with its numbers ('pairs 100 4')",
    )
    parser.add_argument(
        "--no-batch",
        action="store_true",
        help="measure this tree without arrays of frames, as beside a commit without them",
    )
    return parser


def _two_or_more(text: str) -> int:
    number = int(text)
    if number < 2:
        raise argparse.ArgumentTypeError("quartiles need two pairs or more")
    return number


def _worktree(rev: str) -> Path:
    """A checkout of the commit with an environment of its own; kept for the next comparison."""
    commit = _git("rev-parse", "--verify", f"{rev}^{{commit}}")
    place = WORKTREES / commit[:12]
    if not place.is_dir():
        _git("worktree", "prune")
        _git("worktree", "add", "--detach", str(place), commit)
    # `make` notices by itself when nothing is to be done.
    subprocess.run(["make", "--silent", ".venv/.ready"], cwd=place, check=True)
    return place


def _described(tree: Path) -> str:
    changed = " with uncommitted changes" if _git("status", "--porcelain", tree=tree) else ""
    return _git("log", "-1", "--format=%h %s", tree=tree) + changed


def _git(*arguments: str, tree: Path = ROOT) -> str:
    done = subprocess.run(
        ["git", *arguments], cwd=tree, check=False, capture_output=True, text=True
    )
    if done.returncode != os.EX_OK:
        sys.exit(f"git {arguments[0]}: {done.stderr.strip()}")
    return done.stdout.strip()


def _measure_pair(old: Path, wanted: argparse.Namespace, *, is_old_first: bool) -> Pair:
    workload, seconds = wanted.workload, wanted.seconds
    here = [*workload, "--no-batch"] if wanted.no_batch else workload
    if is_old_first:
        old_us = _measure(old, workload, seconds)
        return Pair(old_us, _measure(ROOT, here, seconds))
    new_us = _measure(ROOT, here, seconds)
    return Pair(_measure(old, workload, seconds), new_us)


def _measure(tree: Path, workload: Sequence[str], seconds: float) -> float:
    with tempfile.TemporaryDirectory(prefix="against-", dir=WORKTREES) as directory:
        command = [str(tree / ".venv" / "bin" / "tidewire"), "bench", *workload, "--json"]
        command += ["--seconds", str(seconds), "--data-dir", directory]
        # Not run in the tree: settings of one server must not reach the other.
        done = subprocess.run(
            command,
            cwd=directory,
            check=False,
            capture_output=True,
            text=True,
            timeout=seconds + SPARE_S,
        )
    if done.returncode != os.EX_OK:
        sys.exit(f"{' '.join(command)} failed:\n{(done.stderr or done.stdout)[-2_000:]}")
    return float(json.loads(done.stdout)["server_cpu_s_per_1000"]) * 1_000


if __name__ == "__main__":
    sys.exit(main())
