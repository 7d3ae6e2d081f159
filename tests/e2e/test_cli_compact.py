"""`tidewire compact` as an operator runs it. Slow: each starts the program."""

from pathlib import Path

import pytest

from tests.e2e.commands import make_store, one, tidewire
from tests.e2e.serving import serving

pytestmark = pytest.mark.slow


def test_compact_tells_what_it_did_and_which_copies_remain(tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    make_store(data_dir)
    (data_dir / "backups").mkdir()
    file = data_dir / "backups" / "monday.db"
    assert tidewire("backup", data_dir, file).exit_code == 0
    count = one(data_dir, "SELECT count(*) FROM messages")
    done = tidewire("compact", data_dir)
    assert (done.exit_code, done.err) == (0, "")
    assert " MB before, " in done.out
    assert f"- {file}" in done.out
    assert one(data_dir, "SELECT count(*) FROM messages") == count
    assert tidewire("verify", data_dir).exit_code == 0


def test_compact_of_nothing_is_an_error(tmp_path: Path) -> None:
    done = tidewire("compact", tmp_path / "data")
    assert (done.exit_code, done.out) == (2, "")
    assert "there is no database" in done.err


def test_compact_beside_a_server_is_refused(tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    with serving(data_dir) as server:
        assert server.is_up
        done = tidewire("compact", data_dir)
    assert (done.exit_code, done.out) == (2, "")
    assert "stop that process first" in done.err
