"""`tidewire schema` describes the protocol, and says the same each time. Slow: it is a program."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.e2e.commands import PROGRAM, TIMEOUT_S, tidewire
from tidewire.wire.schema import wire_schemas

pytestmark = pytest.mark.slow

FILES = {
    "client-frames.schema.json",
    "server-frames.schema.json",
    "event-records.schema.json",
    "openapi.json",
}


def test_schema_is_written_to_files(tmp_path: Path) -> None:
    out = tmp_path / "new" / "directory"
    done = tidewire("schema", "--out", out)
    assert (done.exit_code, done.err) == (0, "")
    assert {Path(line).name for line in done.out.splitlines()} == FILES
    assert {path.name for path in out.iterdir()} == FILES
    for name, schema in wire_schemas().items():
        written = json.loads((out / f"{name}.schema.json").read_text())
        assert written == json.loads(json.dumps(schema))
    assert "/api/v1/chats" in json.loads((out / "openapi.json").read_text())["paths"]


def test_schema_is_printed_and_always_the_same() -> None:
    said = {
        subprocess.run(
            [*PROGRAM, "schema"],
            env=os.environ | {"PYTHONHASHSEED": seed},
            capture_output=True,
            timeout=TIMEOUT_S,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(said) == 1
    assert {f"{name}.json" for name in json.loads(said.pop())} == FILES


def test_place_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file")
    done = tidewire("schema", "--out", tmp_path / "taken")
    assert (done.exit_code, done.out) == (2, "")
    assert "File exists" in done.err
