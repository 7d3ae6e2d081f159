"""Three distributions come of this repository, and none has files of another."""

import tomllib
from pathlib import Path
from typing import Any

import pytest
from hatchling.builders.wheel import WheelBuilder

from tests.tidy.repository import ROOT

TOOLS = {
    "tidewire-bench": ROOT / "tools" / "bench",
    "tidewire-conformance": ROOT / "tools" / "conformance",
}


def packed(directory: Path) -> set[str]:
    """Files of the wheel."""
    builder = WheelBuilder(str(directory))
    return {file.distribution_path for file in builder.recurse_included_files()}


def project(directory: Path) -> dict[str, Any]:
    read = tomllib.loads((directory / "pyproject.toml").read_text("utf-8"))
    described: dict[str, Any] = read["project"]
    return described


def test_product_has_neither_tools_nor_tests() -> None:
    files = packed(ROOT)
    assert "tidewire/runtime/cli.py" in files
    assert "tidewire/web/static/index.html" in files
    assert {file.partition("/")[0] for file in files} == {"tidewire"}
    assert not [file for file in files if "bench" in file or "conformance" in file]


@pytest.mark.parametrize("name", TOOLS)
def test_tool_has_its_own_package_and_needs_this_release_alone(name: str) -> None:
    assert {file.partition("/")[0] for file in packed(TOOLS[name])} == {name.replace("-", "_")}
    described, product = project(TOOLS[name]), project(ROOT)
    assert described["name"] == name
    assert described["version"] == product["version"]
    [needed] = described["dependencies"]
    assert needed.replace("[server]", "") == f"tidewire=={product['version']}"
