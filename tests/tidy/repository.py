"""What the tidy tests look at: the repository's files and the list of PURE modules."""

import subprocess
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def tracked_files() -> list[Path]:
    """Files that are in git, or would be after `git add --all`."""
    # A checkout that belongs to somebody else (a container's mount) is fine to read.
    git = ["git", "-c", "safe.directory=*"]
    listing = subprocess.run(
        [*git, "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    paths = sorted({ROOT / name for name in listing.split("\0") if name})
    return [path for path in paths if path.is_file()]


def python_files() -> list[Path]:
    """Python files of src and tests."""
    return [path for path in tracked_files() if path.suffix == ".py"]


def relative(path: Path) -> str:
    """The path as people write it, from the root of the repository."""
    return path.relative_to(ROOT).as_posix()


def pure_patterns() -> list[str]:
    """The list of PURE modules, which is also what the coverage gate measures."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    patterns: list[str] = project["tool"]["coverage"]["report"]["include"]
    return patterns


def pure_modules() -> list[Path]:
    """Every file that a pattern of the list matches."""
    return sorted({path for pattern in pure_patterns() for path in ROOT.glob(pattern)})
