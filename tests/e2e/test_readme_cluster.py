"""The tour's cluster section, played as it is written: two gateways and a word across them.

Slow: it starts DynamoDB Local, Kafka, Redis and three servers, as a reader would.
"""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import stack
from tests.support.ports import free_port
from tests.tidy.repository import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.timeout(480)]

BLOCK = re.compile(r"```sh\n(.*?)```", re.DOTALL)
END = "\nkill $(jobs -p); wait\nmake --silent stack-down\n"


def blocks() -> tuple[str, str]:
    text = (ROOT / "docs/tour.md").read_text(encoding="utf-8")
    section = text.split("\n## A cluster on this machine\n")[1].split("\n## ")[0]
    starting, talking = BLOCK.findall(section)
    return starting, talking


@pytest.mark.skipif(stack.IS_OFF, reason="STACK=off")
def test_two_gateways_and_a_word_across_them(tmp_path: Path) -> None:
    for name in (".venv", "Makefile", "deploy"):
        target = Path(sys.prefix) if name == ".venv" else ROOT / name
        (tmp_path / name).symlink_to(target)
    starting, talking = blocks()
    script = starting + talking + END
    ports = {written: str(free_port()) for written in ("8081", "8082", "8083")}
    assert all(written in script for written in ports)
    script = re.sub("|".join(ports), lambda found: ports[found[0]], script)
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("TIDEWIRE_")
    }
    environment |= {"STACK_DIR": str(tmp_path / "stack"), "XDG_DATA_HOME": str(tmp_path)}
    player = subprocess.Popen(
        ["bash", "-c", script],
        cwd=tmp_path,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        said, _ = player.communicate(timeout=400)
    finally:
        if player.poll() is None:
            os.killpg(player.pid, signal.SIGKILL)
            player.communicate()
            subprocess.run(
                [sys.executable, str(stack.SCRIPT), "down"], env=environment, check=False
            )
    assert re.search(r"#1 alice: Hello over there", said), said
    assert "Tidewire" in said
