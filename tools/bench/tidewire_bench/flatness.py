"""Judges whether a server under a constant load stays the same. PURE.

The beginning is left out. Of the rest, the medians of the first and the last third are compared,
and the median of all slopes (Theil and Sen's) is drawn over the whole time: if either is above its
tolerance, that is growth. Outliers do not move them, neither one nor a third of all samples.

Some things grow for a reason. No wide tolerance hides them; they are counted:

- SQLite's page caches fill as the database grows, up to `writer_cache_kib` (of `SqliteOptions`)
  once and `reader_cache_kib` for each reader and the checkpointer. The server reports what SQLite
  holds, which is judged by that bound; the memory without it is judged for growth. (The allocator
  needs about a sixth more than SQLite counts; that part of a filling cache shows as growth.)
- Rosters, sessions, limiters and positions of the planes are bounded by numbers of entries, and the
  load has the same people all the time: their caches are full after the warm-up. The few groups
  that are made and left add a roster each, some hundred bytes.
- The write-ahead log goes up and down as it is restarted. It is judged by its bound, and so are the
  queues: they have to be short half of the time. Tasks are requests under way, a queue like the
  others, longer while something else keeps the machine busy. A task that never ends is found when
  the server is quiet again, because then no more may be left than before.
- A connection has a file, so files are judged without connections. The rest are files of the store,
  and sockets of requests and of connections that begin or end: as many more are allowed as tasks,
  and a file that stays open is found like a task that never ends.
"""

import statistics
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

MIB: Final = 1024 * 1024
SLOPE_POINTS_MAX: Final = 150
"""Up to so many points the slopes of all pairs are taken; longer series are thinned by medians."""


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """The server at one instant."""

    at_s: float
    rss_bytes: float
    sqlite_bytes: float
    files: float
    threads: float
    tasks: float
    connections: float
    wal_bytes: float
    lag_s: float
    sends_waiting: float
    writes_waiting: float
    positions_waiting: float
    unsent_bytes: float

    @property
    def memory_bytes(self) -> float:
        return self.rss_bytes - self.sqlite_bytes

    @property
    def files_alone(self) -> float:
        return self.files - self.connections


class Bounds(msgspec.Struct, frozen=True, kw_only=True):
    """What the server's settings allow, and how much movement does not count as growth."""

    sqlite_bytes: float
    """The page caches together; what SQLite needs besides is in `sqlite_spare_bytes`."""
    sqlite_spare_bytes: float = 8 * MIB
    """Statements, the schema and lookaside memory of each connection, pages that are pinned."""
    wal_bytes: float
    wal_spare_bytes: float = 32 * MIB
    """A restart waits for readers, and commits go on meanwhile."""
    memory_growth_bytes: float = 4 * MIB
    memory_growth_part: float = 0.04
    """Only what is above both counts as growth."""
    threads_growth: float = 1
    files_level: float = 0
    """How many more may be open when it is quiet again with the same connections."""
    tasks_level: float = 0
    threads_level: float = 6
    """The event loop's pool has cores + 4 threads and makes them when they are needed."""
    queue_median: float = 64
    """Half of the time no more than this waits in any queue, or is under way."""
    unsent_median_bytes: float = MIB
    lag_median_s: float = 0.25


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that was watched."""

    what: str
    unit: str
    first: float
    """Median of the first third after the warm-up."""
    last: float
    highest: float
    judged: float
    """What is compared with `allowed`: growth, by the medians or by the slope, whichever is more;
    or, if the thing has a bound, its highest value or its median over the whole time."""
    allowed: float
    is_growth: bool
    is_flat: bool


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    lines: list[Line]
    complaints: list[str]
    """A sentence for each thing that grew."""


def warm_up_s(seconds: float) -> float:
    """A third of a short run, three minutes of a long one."""
    return min(180.0, seconds / 3)


def judge(
    samples: Sequence[Sample], before: Sample, after: Sample, *, seconds: float, bounds: Bounds
) -> Verdict:
    """`before` and `after` were taken without load, with the same connections open."""
    begin_s = samples[0].at_s + warm_up_s(seconds) if samples else 0.0
    judged = [sample for sample in samples if sample.at_s >= begin_s]
    if len(judged) < 6:
        sentence = f"only {len(judged)} samples after the warm-up: too few to judge"
        return Verdict(lines=[], complaints=[sentence])
    memory_allowed = max(
        bounds.memory_growth_bytes,
        bounds.memory_growth_part * statistics.median(_values(judged, "memory_bytes")),
    )
    lines = [
        _grows(judged, "memory without SQLite's", "MB", "memory_bytes", memory_allowed),
        _grows(judged, "threads", "", "threads", bounds.threads_growth),
        _stays(judged, "SQLite's memory", "MB", "sqlite_bytes", max,
               bounds.sqlite_bytes + bounds.sqlite_spare_bytes),
        _stays(judged, "write-ahead log", "MB", "wal_bytes", max,
               bounds.wal_bytes + bounds.wal_spare_bytes),
        _stays(judged, "event-loop lag", "s", "lag_s", statistics.median, bounds.lag_median_s),
        _stays(judged, "tasks", "", "tasks", statistics.median, bounds.queue_median),
        _stays(judged, "files without connections", "", "files_alone", statistics.median,
               before.files_alone + bounds.queue_median),
        _stays(judged, "sends waiting", "", "sends_waiting", statistics.median,
               bounds.queue_median),
        _stays(judged, "writes waiting", "", "writes_waiting", statistics.median,
               bounds.queue_median),
        _stays(judged, "positions waiting", "", "positions_waiting", statistics.median,
               bounds.queue_median),
        _stays(judged, "bytes unsent", "MB", "unsent_bytes", statistics.median,
               bounds.unsent_median_bytes),
        _returns(before, after, "files when quiet again", "files", bounds.files_level),
        _returns(before, after, "tasks when quiet again", "tasks", bounds.tasks_level),
        _returns(before, after, "threads when quiet again", "threads", bounds.threads_level),
    ]  # fmt: skip
    complaints = [_complaint(line) for line in lines if not line.is_flat]
    if before.connections != after.connections:
        complaints.append(
            f"{before.connections:.0f} connections were open before and {after.connections:.0f} "
            "after, so the two cannot be compared"
        )
    return Verdict(lines=lines, complaints=complaints)


def slope_per_s(points: Sequence[tuple[float, float]]) -> float:
    """The median of the slopes between all pairs of points, which outliers do not move."""
    thinned = _thinned(points)
    slopes = [
        (thinned[late][1] - thinned[early][1]) / (thinned[late][0] - thinned[early][0])
        for early in range(len(thinned))
        for late in range(early + 1, len(thinned))
        if thinned[late][0] > thinned[early][0]
    ]
    return statistics.median(slopes) if slopes else 0.0


def _thinned(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    size = -(-len(points) // SLOPE_POINTS_MAX)
    runs = [points[at : at + size] for at in range(0, len(points), size)]
    return [
        (statistics.median(at for at, _ in run), statistics.median(value for _, value in run))
        for run in runs
    ]


def _values(samples: Sequence[Sample], name: str) -> list[float]:
    return [float(getattr(sample, name)) for sample in samples]


def _grows(judged: Sequence[Sample], what: str, unit: str, name: str, allowed: float) -> Line:
    values = _values(judged, name)
    third = len(values) // 3
    first, last = statistics.median(values[:third]), statistics.median(values[-third:])
    slope = slope_per_s([*zip(_values(judged, "at_s"), values, strict=True)])
    growth = max(last - first, slope * (judged[-1].at_s - judged[0].at_s))
    return _line(what, unit, (first, last, max(values)), growth, allowed, is_growth=True)


def _stays(
    judged: Sequence[Sample],
    what: str,
    unit: str,
    name: str,
    measure: Callable[[list[float]], float],
    allowed: float,
) -> Line:
    """For a thing that may move freely below a bound: its measure over the first and last third."""
    values = _values(judged, name)
    third = len(values) // 3
    seen = measure(values[:third]), measure(values[-third:]), max(values)
    return _line(what, unit, seen, measure(values), allowed, is_growth=False)


def _returns(before: Sample, after: Sample, what: str, name: str, allowed: float) -> Line:
    first, last = _values([before, after], name)
    seen = first, last, max(first, last)
    return _line(what, "", seen, last - first, allowed, is_growth=True)


def _line(
    what: str,
    unit: str,
    seen: tuple[float, float, float],
    judged: float,
    allowed: float,
    *,
    is_growth: bool,
) -> Line:
    first, last, highest = seen
    return Line(
        what=what,
        unit=unit,
        first=first,
        last=last,
        highest=highest,
        judged=judged,
        allowed=allowed,
        is_growth=is_growth,
        is_flat=judged <= allowed,
    )


def _complaint(line: Line) -> str:
    first, last, highest, judged, allowed = (
        _with_unit(value, line.unit)
        for value in (line.first, line.last, line.highest, line.judged, line.allowed)
    )
    told = f"{line.what} grew by {judged}" if line.is_growth else f"{line.what}: {judged}"
    return (
        f"{told}, where at most {allowed} is allowed ({first} at first, {last} at last, highest "
        f"{highest})"
    )


def _with_unit(value: float, unit: str) -> str:
    return f"{shown(value, unit)} {unit}".rstrip()


def shown(value: float, unit: str) -> str:
    """The number without its unit, rounded to useful digits."""
    if unit == "MB":
        return f"{value / 1e6:.1f}"
    if unit == "s":
        return f"{value:.3f}"
    return f"{value:.0f}"
