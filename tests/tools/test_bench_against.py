"""The arithmetic of `make bench-against`, and that it refuses what it cannot compare."""

import pytest

from tools import bench_against
from tools.bench_against import Pair, summarize


def test_summary_has_the_quartiles_of_the_ratios_of_neighbouring_runs() -> None:
    # A machine that becomes half as fast after the second pair changes no ratio.
    summary = summarize([Pair(50, 50), Pair(50, 51), Pair(100, 104), Pair(100, 106), Pair(100, 98)])

    assert summary.median == pytest.approx(1.02)
    assert summary.low_quartile == pytest.approx(1.00)
    assert summary.high_quartile == pytest.approx(1.04)
    assert (summary.old_us, summary.new_us) == (100, 98)


@pytest.mark.parametrize(("new_us", "is_within"), [(103.0, True), (103.1, False)])
def test_limit_holds_the_median(new_us: float, is_within: bool) -> None:
    assert summarize([Pair(100, new_us)] * 3).within(1.03) is is_within


def test_commit_that_is_not_there_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="rev-parse"):
        bench_against.main(["no-such-commit"])


def test_one_pair_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        bench_against.main(["HEAD", "--pairs", "1"])
    assert "two pairs" in capsys.readouterr().err
