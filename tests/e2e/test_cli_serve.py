"""`tidewire serve` as a process: its start, its end, and who else may use its data.

Slow: each test starts the program, some of them more than once.
"""

import json
import shlex
import signal
import socket
import stat
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.commands import PROGRAM, TIMEOUT_S, tidewire
from tests.e2e.ptys import on_a_terminal
from tests.e2e.serving import ServerProcess, serving

pytestmark = pytest.mark.slow

STOP_S_MAX = 10


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def own_events(lines: list[dict[str, Any]]) -> list[str]:
    """What the server says, where it has several processes without what each of them says."""
    return [line["event"] for line in lines if "process" not in line]


def test_server_starts_and_ends_in_order(tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    with serving(data_dir) as server:
        assert server.is_up
        assert server.get("/healthz")[0] == 200
        assert server.get("/readyz")[0] == 200
        assert (server.data_dir / "control.sock").is_socket()
        assert mode_of(data_dir / "control.sock") == 0o600
        exit_code, err = server.end()
    assert exit_code == 0
    assert own_events(ServerProcess.lines(err)) == ["listening", "stopping", "stopped"]
    assert mode_of(data_dir) == 0o700
    assert mode_of(data_dir / "secrets" / "token.key") == 0o600
    assert not (data_dir / "control.sock").exists()


def test_person_is_told_where_it_is_and_what_to_do_next(tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    with on_a_terminal(f"{shlex.join(PROGRAM)} serve {data_dir} --port 0", tmp_path) as first:
        first.see("listens on http://127.0.0.1:")
        first.see(f"Its data is in {data_dir}")
        first.see(f"users add alice --data-dir {data_dir}")
        first.see(f"say alice bob 'Hello!' --data-dir {data_dir}")
        assert tidewire("users", "add", "alice", "--no-password", "--data-dir", data_dir)
        first.process.send_signal(signal.SIGINT)
        assert first.process.wait(TIMEOUT_S) == 0
    with on_a_terminal(f"{shlex.join(PROGRAM)} serve {data_dir} --port 0", tmp_path) as second:
        second.see(f"Its data is in {data_dir}")
        second.process.send_signal(signal.SIGINT)
        second.see("stopped")
        assert "users add" not in second.seen


def test_lines_for_programs_are_json_on_both_streams(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [*PROGRAM, "serve", tmp_path, "--port", "0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert process.stdout is not None
    lines = [json.loads(process.stdout.readline()) for _ in range(2)]
    process.send_signal(signal.SIGTERM)
    rest, _ = process.communicate(timeout=TIMEOUT_S)
    lines += map(json.loads, rest.splitlines())
    assert own_events(lines) == ["listening", "listening", "stopping", "stopped"]


def test_start_that_fails_leaves_nothing_behind(tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    with socket.create_server(("127.0.0.1", 0)) as taken:
        done = tidewire("serve", data_dir, "--port", str(taken.getsockname()[1]))
    assert done.exit_code == 2
    assert not data_dir.exists()


def test_second_start_finds_the_data_and_the_key_again(tmp_path: Path) -> None:
    key = tmp_path / "secrets" / "token.key"
    with serving(tmp_path) as server:
        assert server.is_up
        before = key.read_text()
        added = tidewire("users", "add", "alice", "--no-password", "--data-dir", tmp_path)
        assert added.exit_code == 0
        assert server.end()[0] == 0
    with serving(tmp_path) as server:
        assert server.is_up
        assert key.read_text() == before
        assert tidewire("users", "list", "--data-dir", tmp_path).out.startswith("alice  user_")


def test_second_server_on_the_same_data_is_refused(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        assert server.is_up
        done = tidewire("serve", tmp_path, "--port", "0")
        assert (done.exit_code, done.out) == (2, "")
        holder = server.parts().get("store", server.process.pid)
        assert f"is in use by process {holder}" in done.err
        assert server.get("/healthz")[0] == 200


def test_port_that_is_taken_is_told_and_the_data_stays_usable(tmp_path: Path) -> None:
    assert tidewire("users", "add", "alice", "--no-password", "--data-dir", tmp_path).exit_code == 0
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = tidewire("serve", tmp_path, "--port", str(port))
    assert (done.exit_code, done.out) == (2, "")
    assert f"cannot listen on 127.0.0.1:{port}" in done.err
    assert tidewire("users", "list", "--data-dir", tmp_path).exit_code == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_ends_it_in_order_and_soon(tmp_path: Path, number: signal.Signals) -> None:
    with serving(tmp_path) as server:
        assert server.is_up
        # Somebody who has connected and says nothing holds nobody up.
        address = server.url.removeprefix("http://").split(":")
        with socket.create_connection((address[0], int(address[1]))):
            started = time.monotonic()
            assert server.end(number)[0] == 0
            assert time.monotonic() - started < STOP_S_MAX
    assert not (tmp_path / "tidewire.db-wal").exists(), "the store was not closed in order"


def test_server_that_was_killed_starts_again(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        assert server.is_up
        server.end(signal.SIGKILL)
    assert (tmp_path / "control.sock").exists(), "left behind, as nobody could clean up"
    assert tidewire("users", "list", "--data-dir", tmp_path).exit_code == 0
    with serving(tmp_path) as server:
        assert server.is_up
        assert server.get("/readyz")[0] == 200


def test_metrics_are_served(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        status, page = server.get("/metrics")
    assert status == 200
    for name in (
        "gateway_connections_active",
        "durability_persist_total",
        "event_loop_lag_seconds",
    ):
        assert f"\n{name}" in page


def test_wrong_settings_stop_the_start_with_a_line_each(tmp_path: Path) -> None:
    (tmp_path / "tidewire.toml").write_text("[server]\nprot = 80\n[log]\nlevel = 'loud'\n")
    done = tidewire("serve", tmp_path, "--set", "gateway.send_chat_burst=0")
    assert (done.exit_code, done.out) == (2, "")
    lines = done.err.splitlines()
    assert len(lines) == 3
    assert all(line.startswith("tidewire: error: ") for line in lines)
    assert "did you mean server.port?" in done.err
    assert not (tmp_path / "tidewire.db").exists()


def test_config_shows_values_and_where_they_come_from(tmp_path: Path) -> None:
    (tmp_path / "tidewire.toml").write_text(
        f"[identity]\nissuer = 'https://id'\nsecret = '{'s3cret' * 8}'\n"
    )
    done = tidewire("config", tmp_path, "--changed", "--set", "server.port=9")
    assert done.exit_code == 0
    assert "server.port = 9  (flag)" in done.out
    assert f"identity.secret = (hidden)  ({tmp_path / 'tidewire.toml'})" in done.out
    assert "s3cret" not in done.out
    whole = tidewire("config", tmp_path, "--json")
    assert whole.json["gateway.send_chat_burst"] == {
        "value": "20",
        "source": "default",
        "environment": "TIDEWIRE_GATEWAY_SEND_CHAT_BURST",
    }
    assert "s3cret" not in whole.out
