"""The workspace web/ is in order, and what the server serves is what it builds. Slow: compilers."""

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.web import WEB, run_node
from tests.tidy.repository import tracked_files

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


def npm(node: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["npm", "run", "--silent", *arguments], cwd=WEB, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize("script", ["check", "test", "size"])
def test_workspace_is_in_order(node: str, script: str) -> None:
    done = npm(node, script)
    assert done.returncode == 0, done.stdout + done.stderr


def test_served_files_are_what_is_built() -> None:
    """`make web` has to be run after a change in web/: all but packed copies, byte for byte."""
    assert "as they are built" in run_node("scripts/build.mjs", "--compare")


def test_build_is_the_same_each_time_and_elsewhere(node: str, tmp_path: Path) -> None:
    """Another directory, another day: the names and bytes of all files stay, packed ones too."""
    elsewhere = tmp_path / "another place" / "web"
    for source in tracked_files():
        if source.is_relative_to(WEB):
            copy = elsewhere / source.relative_to(WEB)
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(source.read_bytes())
    packages = WEB / "node_modules"
    unused = shutil.ignore_patterns(".bin", "@tidewire", "@biomejs", "*typescript")
    shutil.copytree(packages, elsewhere / "node_modules", ignore=unused)
    built = [tmp_path / "here", tmp_path / "there"]
    run_node("scripts/build.mjs", str(built[0]))
    run_node("scripts/build.mjs", str(built[1]), directory=elsewhere)
    here, there = ({p.relative_to(d): p.read_bytes() for p in files(d)} for d in built)
    assert here == there


def test_difference_is_noticed(node: str, tmp_path: Path) -> None:
    run_node("scripts/build.mjs", str(tmp_path))
    page = tmp_path / "index.html"
    page.write_text(page.read_text() + "<!-- by hand -->")
    (tmp_path / "assets" / "old-12345678.js").write_text("")
    done = subprocess.run(
        [node, "scripts/build.mjs", "--compare", str(tmp_path)],
        cwd=WEB,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "index.html: other bytes" in done.stderr
    assert "assets/old-12345678.js: not built any more" in done.stderr


def files(directory: Path) -> list[Path]:
    return [path for path in directory.rglob("*") if path.is_file()]
