"""Product and sketch in turns, on the same file system, so that one day's figures can be compared.

The sketch is the least that any server of this kind has to do (`sketch_server.py`,
`sketch_load.py`). Each run is a process of its own, so that none inherits another one's memory.
"""

import os
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from tidewire.ops.load.target import LoadImpossible, is_listening

POINTS: Final = (("pairs", 1, 1), ("pairs", 25, 8), ("pairs", 100, 4), ("group", 100, 4))
GENERATORS_DIFFER_MAX: Final = 0.2
"""Beyond this the throughputs say nothing; the server's processor time still does."""
SERVER_NAME: Final = "sketch_server.py"
LOAD_NAME: Final = "sketch_load.py"
_SKETCH_ROUNDING_S: Final = 0.05
_START_S_MAX: Final = 10.0
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
    generator_cpu_error: float = 0.0
    """How far off the generator's figure may be, as a part of it: the sketch rounds to 0.1 s."""


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """One point. Ratios are product to sketch."""

    workload: str
    sketch: Side | None
    product: Side
    durability: str = "synced"
    throughput_ratio: float | None = None
    ack_p50_ratio: float | None = None
    server_cpu_ratio: float | None = None
    generator_cpu_ratio: float | None = None
    sketch_spread: float | None = None
    product_spread: float | None = None
    """Of the throughput: (highest - lowest) / median of the rounds. A ratio means something only if
    it is well outside of both: a disk that others use moves figures by more than any change."""
    is_too_coarse: bool = False
    """The run was too short to tell whether the generators differ: the sketch rounds its figure."""
    is_void: bool = False
    """The generators differ too much: compare the servers' processor time instead."""


class _SketchLine(msgspec.Struct):
    msgs_per_s: float
    deliveries_per_s: float
    ack_p50_ms: float | None
    ack_p99_ms: float | None
    dlv_p50_ms: float | None
    dlv_p99_ms: float | None
    server_cpu_s_per_1k: float
    load_cpu_s: float


class _ProductLine(msgspec.Struct):
    messages_per_s: float
    deliveries_per_s: float
    ack_p50_ms: float
    ack_p99_ms: float
    delivered_p50_ms: float
    delivered_p99_ms: float
    server_cpu_s_per_1000: float
    generator_cpu_s_per_1000: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """What to compare, where and how long."""

    sketch_dir: Path
    work_dir: Path
    """For the databases of both."""
    environment: Mapping[str, str]
    points: Sequence[Point] = POINTS
    rounds: int = 3
    measured_s: float = 10.0

    @property
    def has_sketch(self) -> bool:
        return (self.sketch_dir / SERVER_NAME).is_file() and (self.sketch_dir / LOAD_NAME).is_file()


def compare(wanted: Compared, progress: Callable[[str], None]) -> list[Comparison]:
    """All points, in turns, `rounds` times each. Raises LoadImpossible if a run fails."""
    done = []
    for point in wanted.points:
        name = " ".join(map(str, point))
        sketch, product = [], []
        for number in range(1, wanted.rounds + 1):
            if wanted.has_sketch:
                progress(f"{name}, round {number} of {wanted.rounds}: sketch")
                sketch.append(_run_sketch(wanted, point))
            progress(f"{name}, round {number} of {wanted.rounds}: tidewire")
            product.append(_run_product(wanted, point))
        done.append(ratios(name, sketch, product))
    return done


def ratios(name: str, sketch_runs: Sequence[Side], product_runs: Sequence[Side]) -> Comparison:
    """Put the medians of two sides beside each other."""
    counted = "deliveries_per_s" if name.startswith("group") else "messages_per_s"
    product = _medians(product_runs)
    product_spread = _spread(product_runs, counted)
    if not sketch_runs:
        return Comparison(
            workload=name, sketch=None, product=product, product_spread=product_spread
        )
    sketch = _medians(sketch_runs)
    ours, theirs = getattr(product, counted), getattr(sketch, counted)
    generator = _ratio(product.generator_cpu_s_per_1000, sketch.generator_cpu_s_per_1000)
    differ = 0.0 if generator is None else abs(generator - 1)
    # Undecided while the sketch's rounding alone could move the verdict.
    is_too_coarse = abs(differ - GENERATORS_DIFFER_MAX) < sketch.generator_cpu_error
    return Comparison(
        workload=name,
        sketch=sketch,
        product=product,
        throughput_ratio=_ratio(ours, theirs),
        ack_p50_ratio=_ratio(product.ack_p50_ms, sketch.ack_p50_ms),
        server_cpu_ratio=_ratio(product.server_cpu_s_per_1000, sketch.server_cpu_s_per_1000),
        generator_cpu_ratio=generator,
        sketch_spread=_spread(sketch_runs, counted),
        product_spread=product_spread,
        is_too_coarse=is_too_coarse,
        is_void=not is_too_coarse and differ > GENERATORS_DIFFER_MAX,
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


def _run_sketch(wanted: Compared, point: Point) -> Side:
    port = _free_port()
    environment = dict(wanted.environment) | {"SKETCH_DIR": str(wanted.work_dir)}
    server = subprocess.Popen(  # noqa: S603 - a program beside us
        [sys.executable, str(wanted.sketch_dir / SERVER_NAME), str(port)],
        env=environment,
        stderr=subprocess.DEVNULL,  # it complains about its own generator's end
    )
    try:
        end_s = time.perf_counter() + _START_S_MAX
        while not is_listening(port):
            if server.poll() is not None or time.perf_counter() > end_s:
                raise LoadImpossible("the sketch's server did not start")
            time.sleep(0.02)
        environment |= {"SERVER_PIDS": str(server.pid), "RUN": str(wanted.measured_s)}
        line = _output(
            [sys.executable, str(wanted.sketch_dir / LOAD_NAME), str(port), *map(str, point)],
            environment,
            wanted.measured_s,
        )
    finally:
        server.kill()
        server.wait()
    told = msgspec.json.decode(line, type=_SketchLine)
    messages = told.msgs_per_s * wanted.measured_s
    return Side(
        messages_per_s=told.msgs_per_s,
        deliveries_per_s=told.deliveries_per_s,
        ack_p50_ms=told.ack_p50_ms or 0.0,
        ack_p99_ms=told.ack_p99_ms or 0.0,
        delivered_p50_ms=told.dlv_p50_ms or 0.0,
        delivered_p99_ms=told.dlv_p99_ms or 0.0,
        server_cpu_s_per_1000=told.server_cpu_s_per_1k,
        generator_cpu_s_per_1000=told.load_cpu_s / messages * 1000 if messages else 0.0,
        generator_cpu_error=_SKETCH_ROUNDING_S / told.load_cpu_s if told.load_cpu_s else 1.0,
    )


def _run_product(wanted: Compared, point: Point) -> Side:
    command = [sys.executable, "-m", "tidewire", "bench", *map(str, point), "--json"]
    command += ["--seconds", str(wanted.measured_s), "--data-dir", str(wanted.work_dir)]
    line = _output(command, wanted.environment, wanted.measured_s)
    told = msgspec.json.decode(line, type=_ProductLine)
    return Side(**msgspec.structs.asdict(told))


def _output(command: Sequence[str], environment: Mapping[str, str], measured_s: float) -> bytes:
    try:
        done = subprocess.run(  # noqa: S603 - our own programs
            command,
            env=dict(environment),
            capture_output=True,
            timeout=measured_s + _RUN_S_SPARE,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise LoadImpossible(f"{' '.join(command)} did not end") from error
    if done.returncode != os.EX_OK:
        said = (done.stderr or done.stdout).decode(errors="replace")[-1_000:].strip()
        raise LoadImpossible(f"{' '.join(command[1:])} failed: {said}")
    return done.stdout


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
