"""The workspace web/ is in order, and what the server serves is what it builds. Slow: compilers."""

import gzip
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.web import WEB, run_node
from tests.tidy.repository import ROOT, tracked_files

STATIC = ROOT / "src/tidewire/web/static"

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


def npm(node: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["npm", "run", "--silent", *arguments], cwd=WEB, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize("script", ["check", "test", "size"])
def test_workspace_is_in_order(node: str, script: str) -> None:
    done = npm(node, script)
    assert done.returncode == 0, done.stdout + done.stderr


def test_build_is_the_same_each_time_and_elsewhere(node: str, tmp_path: Path) -> None:
    """Another directory, another day: the names and bytes of all files are those that are served,
    and packed copies are of them and say nothing of when they were made."""
    elsewhere, built = tmp_path / "another place" / "web", tmp_path / "built"
    for source in tracked_files():
        if source.is_relative_to(WEB):
            copy = elsewhere / source.relative_to(WEB)
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(source.read_bytes())
    unused = shutil.ignore_patterns(".bin", "@tidewire", "@biomejs", "*typescript")
    shutil.copytree(WEB / "node_modules", elsewhere / "node_modules", ignore=unused)
    run_node("scripts/build.mjs", str(built), directory=elsewhere)
    here, there = (
        {path.relative_to(place): path.read_bytes() for path in files(place)}
        for place in (STATIC, built)
    )
    assert here.keys() == there.keys()
    for name, body in there.items():
        if name.suffix == ".gz":
            assert gzip.decompress(body) == there[name.with_suffix("")], name
            assert body[4:8] == bytes(4), f"{name} has a time in it"
        elif name.suffix != ".br":
            assert body == here[name], name


def test_served_files_are_what_is_built_and_nothing_else(node: str, tmp_path: Path) -> None:
    """`make web` has to be run after a change in web/: all but packed copies, byte for byte. What
    is done to a copy of them here is noticed, and is all that differs."""
    served = tmp_path / "static"
    shutil.copytree(STATIC, served)
    page = served / "index.html"
    page.write_text(page.read_text() + "<!-- by hand -->")
    (served / "assets" / "old-12345678.js").write_text("")
    done = subprocess.run(
        [node, "scripts/build.mjs", "--compare", str(served)],
        cwd=WEB,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr.splitlines() == [
        "assets/old-12345678.js: not built any more",
        "index.html: other bytes",
        "src/tidewire/web/static is not what web/ builds; run 'make web'",
    ]


def files(directory: Path) -> list[Path]:
    return [path for path in directory.rglob("*") if path.is_file()]
