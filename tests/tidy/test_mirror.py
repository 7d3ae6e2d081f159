"""Each PURE module has its test module at the same place under tests/unit."""

from pathlib import Path

import pytest

from tests.tidy.repository import ROOT, pure_modules, relative


def mirror_of(module: str) -> str:
    """Where the tests of `src/tidewire/<room>/<name>.py` live, and those of a tool or a helper."""
    for top in ("src/tidewire/", "tools/bench/tidewire_", "tests/"):
        module = module.removeprefix(top)
    folder, _, name = module.rpartition("/")
    return f"tests/unit/{folder}/test_{name}"


@pytest.mark.parametrize(
    "path", [path for path in pure_modules() if path.name != "__init__.py"], ids=relative
)
def test_pure_module_has_a_test_module(path: Path) -> None:
    mirror = mirror_of(relative(path))
    assert (ROOT / mirror).is_file(), f"{relative(path)} is PURE and needs its tests in {mirror}"


def test_mirror_of_keeps_the_room() -> None:
    assert mirror_of("src/tidewire/ingest/batcher.py") == "tests/unit/ingest/test_batcher.py"
    assert mirror_of("tools/bench/tidewire_bench/book.py") == "tests/unit/bench/test_book.py"
    assert mirror_of("tests/support/trace.py") == "tests/unit/support/test_trace.py"
