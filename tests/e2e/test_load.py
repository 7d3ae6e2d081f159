"""The load tool against a real server, briefly: it finds nothing wrong, and says what it saw."""

from pathlib import Path

import pytest

from tests.e2e.commands import tidewire
from tidewire_bench.compare import Compared, compare_all

# Each starts a server of its own.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]


@pytest.mark.parametrize(
    "workload", [("pairs", "2", "2"), ("changes", "2", "2"), ("group", "4", "2")]
)
def test_bench_talk_checks_what_it_measures(tmp_path: Path, workload: tuple[str, ...]) -> None:
    done = tidewire(
        "bench", *workload, "--seconds", "2", "--warm-up", "0.1", "--json", "--data-dir", tmp_path
    )
    assert done.exit_code == 0, done.err
    figures = done.json
    assert figures["durability"] == "synced"
    assert figures["limits"]["log.level"] == "warning"
    assert figures["messages"] > 0
    # A measured process has worked, and not longer than the run on every core. The kernel counts in
    # steps of 10 ms: a short run of a server that gets few turns would be none at all.
    assert 0 < figures["server_cpu_s"] < 10
    assert "errors" not in figures
    assert list(tmp_path.iterdir()) == []


def test_bench_idle_counts_memory(tmp_path: Path) -> None:
    done = tidewire("bench", "idle", "20", "--seconds", "0", "--json", "--data-dir", tmp_path)
    assert done.exit_code == 0, done.err
    assert done.json["connections"] == 20
    assert "server_rss_kb_per_connection" in done.json


def test_bench_storm_brings_everybody_back_from_a_kill(tmp_path: Path) -> None:
    done = tidewire("bench", "storm", "10", "--json", "--data-dir", tmp_path)
    assert done.exit_code == 0, done.err
    assert done.json["all_s"] > 0
    assert done.json["try_most_s"] > 0
    assert done.json["server_cpu_ms_per_client"] > 0
    assert set(done.json.get("errors", {})) <= {"unreachable"}


def test_bench_catch_up_reads_everything(tmp_path: Path) -> None:
    done = tidewire("bench", "catch-up", "1200", "--json", "--data-dir", tmp_path)
    assert done.exit_code == 0, done.err
    assert done.json["messages"] == 1200


def test_bench_compare_measures_the_sketch_as_well(tmp_path: Path) -> None:
    wanted = Compared(work_dir=tmp_path, points=(("pairs", 2, 2),), rounds=1, measured_s=2.0)
    [point] = compare_all(wanted, lambda stage: None)
    for side in (point.sketch, point.product):
        assert side.messages_per_s > 0
        assert 0 < side.ack_p50_ms <= side.ack_p99_ms
        assert side.server_cpu_s_per_1000 > 0
    assert list(tmp_path.iterdir()) == []
