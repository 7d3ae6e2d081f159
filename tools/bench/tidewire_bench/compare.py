"""Product and sketch in turns, on the same file system, so that one day's figures can be compared.

The sketch is the least that any server of this kind has to do (`sketch_server.py`,
`sketch_load.py`). Each run is a process of its own, so that none inherits another one's memory.
"""

import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from tidewire_bench.run import bare_environment
from tidewire_bench.target import LoadImpossible

POINTS: Final = (
    ("pairs", 1, 1),
    ("pairs", 25, 8),
    ("pairs", 100, 4),
    ("pairs", 500, 1),
    ("group", 100, 4),
)
"""Latency, throughput twice, many people with one message outstanding each, a group."""
GENERATORS_DIFFER_MAX: Final = 0.2
"""Beyond this the throughputs cannot be compared; the server's processor time still can."""
SKETCH: Final = ("tidewire_bench.sketch_load",)
PRODUCT: Final = ("tidewire", "bench")
BARE: Final = ("--no-batch",)
_RUN_S_SPARE: Final = 120.0

Point = tuple[str, int, int]


class Side(msgspec.Struct, frozen=True, kw_only=True):
    """One system at one point: one run, or the medians of several."""

    messages_per_s: float
    deliveries_per_s: float
    ack_p50_ms: float
    ack_p99_ms: float
    delivered_p50_ms: float
    delivered_p99_ms: float
    server_cpu_s_per_1000: float
    generator_cpu_s_per_1000: float


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """One point. Ratios are product to sketch, None where the sketch has nothing to divide by."""

    workload: str
    sketch: Side
    product: Side
    bare: Side
    """The product without arrays of frames, as for a client that does not offer them."""
    durability: str = "synced"
    throughput_ratio: float | None
    bare_throughput_ratio: float | None
    ack_p50_ratio: float | None
    server_cpu_ratio: float | None
    bare_server_cpu_ratio: float | None
    generator_cpu_ratio: float | None
    sketch_spread: float | None
    product_spread: float | None
    """Of the throughput: (highest - lowest) / median of the rounds. A ratio means something only if
    it is well outside of both: a disk that others use moves figures by more than any change."""
    is_void: bool
    """The generators differ too much: compare the servers' processor time instead."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """What to compare, where and how long."""

    work_dir: Path
    """For the databases of both."""
    points: Sequence[Point] = POINTS
    rounds: int = 3
    measured_s: float = 10.0


def compare_all(wanted: Compared, progress: Callable[[str], None]) -> list[Comparison]:
    """All points, in turns, `rounds` times each. Raises LoadImpossible if a run fails."""
    done = []
    for point in wanted.points:
        name = " ".join(map(str, point))
        sketch, product, bare = [], [], []
        for number in range(1, wanted.rounds + 1):
            progress(f"{name}, round {number} of {wanted.rounds}: sketch")
            sketch.append(_run(SKETCH, point, wanted))
            progress(f"{name}, round {number} of {wanted.rounds}: tidewire")
            product.append(_run(PRODUCT, point, wanted))
            progress(f"{name}, round {number} of {wanted.rounds}: tidewire without batch")
            bare.append(_run(PRODUCT, point, wanted, BARE))
        done.append(ratios(name, sketch, product, bare))
    return done


def ratios(
    name: str,
    sketch_runs: Sequence[Side],
    product_runs: Sequence[Side],
    bare_runs: Sequence[Side],
) -> Comparison:
    """Compare the medians."""
    counted = "deliveries_per_s" if name.startswith("group") else "messages_per_s"
    sketch, product, bare = map(_medians, (sketch_runs, product_runs, bare_runs))
    generator = _ratio(product.generator_cpu_s_per_1000, sketch.generator_cpu_s_per_1000)
    return Comparison(
        workload=name,
        sketch=sketch,
        product=product,
        bare=bare,
        throughput_ratio=_ratio(getattr(product, counted), getattr(sketch, counted)),
        bare_throughput_ratio=_ratio(getattr(bare, counted), getattr(sketch, counted)),
        ack_p50_ratio=_ratio(product.ack_p50_ms, sketch.ack_p50_ms),
        server_cpu_ratio=_ratio(product.server_cpu_s_per_1000, sketch.server_cpu_s_per_1000),
        bare_server_cpu_ratio=_ratio(bare.server_cpu_s_per_1000, sketch.server_cpu_s_per_1000),
        generator_cpu_ratio=generator,
        sketch_spread=_spread(sketch_runs, counted),
        product_spread=_spread(product_runs, counted),
        is_void=generator is not None and abs(generator - 1) > GENERATORS_DIFFER_MAX,
    )


def _ratio(ours: float, theirs: float) -> float | None:
    return round(ours / theirs, 3) if theirs else None


def _spread(runs: Sequence[Side], name: str) -> float | None:
    values = [float(getattr(run, name)) for run in runs]
    return _ratio(max(values) - min(values), statistics.median(values))


def _medians(runs: Sequence[Side]) -> Side:
    return Side(
        **{
            name: float(statistics.median(getattr(run, name) for run in runs))
            for name in Side.__struct_fields__
        }
    )


def _run(
    program: Sequence[str], point: Point, wanted: Compared, options: Sequence[str] = ()
) -> Side:
    command = [sys.executable, "-m", *program, *map(str, point), *options, "--json"]
    command += ["--seconds", str(wanted.measured_s), "--data-dir", str(wanted.work_dir)]
    try:
        done = subprocess.run(
            command,
            env=bare_environment(),
            capture_output=True,
            timeout=wanted.measured_s + _RUN_S_SPARE,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise LoadImpossible(f"{' '.join(command)} did not end") from error
    if done.returncode != os.EX_OK:
        said = (done.stderr or done.stdout).decode(errors="replace")[-1_000:].strip()
        raise LoadImpossible(f"{' '.join(command[1:])} failed: {said}")
    return msgspec.json.decode(done.stdout, type=Side)
