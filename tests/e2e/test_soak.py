"""Half a minute of `make soak`: the same load and the same checks. Slow: that is what it is."""

import json
import subprocess
from pathlib import Path

import pytest

from tests.e2e.commands import PROGRAM, tidewire

pytestmark = pytest.mark.slow

SECONDS = 30


@pytest.mark.timeout(480)
def test_soak_delivers_everything_and_nothing_grows(tmp_path: Path) -> None:
    done = subprocess.run(
        [*PROGRAM, "bench", "soak", "--seconds", str(SECONDS), "--json", "--data-dir", tmp_path],
        capture_output=True,
        text=True,
        timeout=420,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout)
    assert figures["complaints"] == []
    assert "faults" not in figures
    # Three hundred a second where there is room; a busy machine leaves less.
    assert figures["messages"] > 10 * SECONDS
    assert figures["deliveries"] > figures["messages"]
    # Nothing of the mix was left out.
    wanted = {
        "REST reads",
        "bad input",
        "deletions",
        "dropped the socket",
        "edits",
        "groups made and left",
        "half-open sockets",
        "left with a close",
        "logins and logouts",
        "members added or removed",
        "messages over REST",
        "reactions",
        "replies",
        "slow consumers closed",
        "views compared",
    }
    assert wanted <= {kind for kind, count in figures["done"].items() if count}
    assert figures["stop_s"] < 10
    assert figures["verified"] == "nothing wrong"
    assert list(tmp_path.iterdir()) == []


def test_soak_is_too_short_to_judge_below_ten_seconds() -> None:
    done = tidewire("bench", "soak", "--seconds", "3")
    assert done.exit_code == 2
