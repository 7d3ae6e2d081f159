"""A leak of each kind is flagged; noise is not."""

import random
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from tidewire_bench.flatness import (
    MIB,
    SLOPE_POINTS_MAX,
    Bounds,
    Sample,
    Verdict,
    judge,
    shown,
    slope_per_s,
    warm_up_s,
)

BOUNDS = Bounds(sqlite_bytes=48 * MIB, wal_bytes=64 * MIB)
HOUR_S = 3600

Shape = Callable[[float], float]


def sample(at_s: float = 0.0, **fields: float) -> Sample:
    usual: dict[str, float] = {
        "rss_bytes": 90 * MIB,
        "sqlite_bytes": 8 * MIB,
        "files": 74,
        "threads": 7,
        "tasks": 4,
        "connections": 46,
        "wal_bytes": 20 * MIB,
        "lag_s": 0.001,
        "sends_waiting": 0,
        "writes_waiting": 0,
        "positions_waiting": 0,
        "unsent_bytes": 0,
    }
    return Sample(at_s=at_s, **(usual | fields))


def series(seconds: int = HOUR_S, step_s: float = 2.0, /, **shapes: Shape) -> list[Sample]:
    """Noisy, as a real one: connections come and go, memory jitters, now and then a peak."""
    chance = random.Random(7)
    taken = []
    for number in range(int(seconds / step_s)):
        at_s = number * step_s
        away = chance.randrange(10)
        noisy: dict[str, float] = {
            "rss_bytes": 90 * MIB + chance.gauss(0, MIB),
            "sqlite_bytes": 8.0 * MIB,
            "connections": 46 - away,
            "files": 74 - away + chance.choice((0, 0, 1, 2)),
            "tasks": chance.choice((4, 4, 5, 9)),
            "threads": 7,
            "wal_bytes": chance.uniform(0, 60) * MIB,
            "lag_s": chance.expovariate(200),
            "sends_waiting": chance.choice((0, 0, 0, 3, 400)),
        }
        if chance.random() < 0.02:
            noisy["rss_bytes"] += 60 * MIB
        for name, shape in shapes.items():
            noisy[name] = noisy.get(name, 0.0) + shape(at_s)
        taken.append(sample(at_s, **noisy))
    return taken


def judged(
    taken: list[Sample], seconds: float = HOUR_S, after: Sample | None = None, **bounds: Any
) -> Verdict:
    allowed = msgspec.structs.replace(BOUNDS, **bounds)
    return judge(taken, sample(), after or sample(), seconds=seconds, bounds=allowed)


@pytest.mark.parametrize(("seconds", "step_s"), [(HOUR_S, 2.0), (300, 0.5), (30, 0.5)])
def test_flat_but_noisy_series_is_flat(seconds: int, step_s: float) -> None:
    verdict = judged(series(seconds, step_s), seconds)
    assert verdict.complaints == []
    assert all(line.is_flat for line in verdict.lines)


@pytest.mark.parametrize(
    ("name", "shape", "words"),
    [
        ("rss_bytes", lambda at_s: 10 * MIB * at_s / HOUR_S, "memory without SQLite's"),
        ("rss_bytes", lambda at_s: 20 * MIB * (at_s > 2400), "memory without SQLite's"),
        ("files", lambda at_s: 70, "files without connections"),
        ("threads", lambda at_s: at_s // 600, "threads grew by 6"),
        ("sqlite_bytes", lambda at_s: 80 * MIB * at_s / HOUR_S, "SQLite's memory"),
        ("wal_bytes", lambda at_s: 100 * MIB * at_s / HOUR_S, "write-ahead log"),
        ("lag_s", lambda at_s: 0.3, "event-loop lag: 0.30"),
        ("tasks", lambda at_s: 100, "tasks: 104"),
        ("sends_waiting", lambda at_s: 100, "sends waiting"),
        ("writes_waiting", lambda at_s: 100, "writes waiting"),
        ("positions_waiting", lambda at_s: 100, "positions waiting"),
        ("unsent_bytes", lambda at_s: 2 * MIB, "bytes unsent"),
    ],
)
def test_each_kind_of_growth_is_flagged(name: str, shape: Shape, words: str) -> None:
    verdict = judged(series(**{name: shape}))
    assert any(words in complaint for complaint in verdict.complaints), verdict.complaints


def test_page_caches_that_fill_up_are_no_growth_of_memory() -> None:
    """SQLite holds more and more, up to its bound, and the process as much with it."""

    def filling(at_s: float) -> float:
        return 38 * MIB * min(1.0, at_s / 2400)

    assert judged(series(rss_bytes=filling, sqlite_bytes=filling)).complaints == []


def test_memory_that_grows_beside_full_caches_is_flagged() -> None:
    verdict = judged(
        series(
            rss_bytes=lambda at_s: 38 * MIB + 10 * MIB * at_s / HOUR_S,
            sqlite_bytes=lambda at_s: 38 * MIB,
        )
    )
    assert [line.what for line in verdict.lines if not line.is_flat] == ["memory without SQLite's"]


def test_growth_in_the_warm_up_is_not_counted() -> None:
    assert warm_up_s(30) == 10
    assert warm_up_s(HOUR_S) == 180
    warming = series(rss_bytes=lambda at_s: -30 * MIB * max(0.0, 1 - at_s / 180))
    assert judged(warming).complaints == []


def test_more_connections_have_more_files_and_that_is_no_leak() -> None:
    more = series(files=lambda at_s: at_s / 60, connections=lambda at_s: at_s / 60)
    assert judged(more).complaints == []


@pytest.mark.parametrize("name", ["files", "tasks", "threads"])
def test_level_that_is_not_found_again_is_flagged(name: str) -> None:
    allowed = getattr(BOUNDS, f"{name}_level")
    usual = getattr(sample(), name)
    fine = judged(series(), after=sample(**{name: usual + allowed}))
    assert fine.complaints == []
    verdict = judged(series(), after=sample(**{name: usual + allowed + 1}))
    (complaint,) = verdict.complaints
    assert complaint.startswith(f"{name} when quiet again grew by {allowed + 1:.0f}, where at most")


def test_levels_with_different_connections_are_not_compared() -> None:
    (complaint,) = judged(series(), after=sample(connections=45)).complaints
    assert "46 connections were open before and 45 after" in complaint


def test_too_few_samples_are_no_proof() -> None:
    (complaint,) = judged(series(10, 2.0), 10).complaints
    assert "too few to judge" in complaint
    assert judged([], 10).complaints == ["only 0 samples after the warm-up: too few to judge"]


def test_slope_is_not_moved_by_outliers() -> None:
    chance = random.Random(3)
    points = [(float(at), 3.0 * at) for at in range(100)]
    for at in chance.sample(range(100), 20):
        points[at] = float(at), 1e9
    assert slope_per_s(points) == pytest.approx(3.0, rel=0.2)


def test_slope_of_a_long_series_is_that_of_its_medians() -> None:
    points = [(float(at), 0.5 * at) for at in range(20 * SLOPE_POINTS_MAX)]
    assert slope_per_s(points) == pytest.approx(0.5)


def test_slope_of_a_single_instant_is_none() -> None:
    assert slope_per_s([(1.0, 5.0), (1.0, 9.0)]) == 0.0


def test_values_are_said_with_their_unit() -> None:
    assert shown(2_500_000, "MB") == "2.5"
    assert shown(0.0125, "s") == "0.013"
    assert shown(7.0, "") == "7"
