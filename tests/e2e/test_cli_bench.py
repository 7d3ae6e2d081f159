"""The benchmarks run, measure something, and show that memory does not grow with messages."""

from pathlib import Path

import pytest

from tests.e2e.commands import tidewire

pytestmark = pytest.mark.slow
"""They store thousands of messages for good."""


def test_bench_ingest_measures_product_and_ceiling_at_every_level(tmp_path: Path) -> None:
    done = tidewire(
        "bench", "ingest", "--json", "--seconds", "0.1", "--rounds", "1", "--data-dir", tmp_path
    )
    assert done.exit_code == 0, done.err
    levels = done.json["levels"]
    assert [level["senders"] for level in levels] == [1, 8, 64, 256]
    for level in levels:
        assert level["product"]["messages_per_s"] > 0
        assert level["ceiling"]["messages_per_s"] > 0
    assert list(tmp_path.iterdir()) == []


def test_bench_entries_measures_each_kind_beside_its_bar(tmp_path: Path) -> None:
    done = tidewire("bench", "entries", "--json", "--rounds", "2", "--data-dir", tmp_path)
    costs = done.json
    bars = {cost["what"]: cost["bar"] for cost in costs}
    pages = {
        f"{what}, {kinds} kinds": 2.0
        for what in ("page", "request for a page")
        for kinds in (4, 10)
    }
    assert bars == {"edit": 1.5, "react": 1.5, "delete": 1.5} | pages
    assert all(cost["cost_us"] > 0 and cost["beside_us"] > 0 for cost in costs)
    # Two rounds on a busy machine say nothing about the bars, but what is above one is told.
    above = [cost["what"] for cost in costs if cost["ratio"] > cost["bar"]]
    assert (done.exit_code, done.err.count("ABOVE ITS BAR")) == (min(len(above), 1), len(above))
    assert list(tmp_path.iterdir()) == []


def test_memory_stays_flat_while_messages_are_stored_and_verified(tmp_path: Path) -> None:
    done = tidewire("bench", "endurance", "--messages", "30000", "--data-dir", tmp_path)
    assert done.exit_code == 0, done.err
    result = done.json
    assert (result["messages"], result["violations"]) == (30_000, 0)
    # What is bounded may fill up (page caches, 16 MB for verify); what grows would show.
    assert result["rss_appended_mb"] - result["rss_before_mb"] < 40
    assert result["rss_verified_mb"] - result["rss_before_mb"] < 60
