"""HTTPS with a certificate of one's own: who names the authority gets in, others are told why not.

Slow: a server and several commands.
"""

import os
import socket
import subprocess
from pathlib import Path

import pytest

from tests.e2e.commands import EVERY_OPTION, PROGRAM, TIMEOUT_S, Done, tidewire
from tests.e2e.serving import serving
from tests.support.certificates import make_files

pytestmark = pytest.mark.slow

PASSWORD = "correct horse"


def send(url: str, home: Path, *arguments: str | Path) -> Done:
    environment = {**os.environ, "TIDEWIRE_PASSWORD": PASSWORD, "XDG_DATA_HOME": str(home)}
    command = [*PROGRAM, "send", "@bob", "Hello", "--user", "alice", "--url", url, "--timeout", "9"]
    done = subprocess.run(
        [*command, *map(str, arguments)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=40,
        check=False,
    )
    assert "Traceback" not in done.stderr, done.stderr
    return Done(done.returncode, done.stdout, done.stderr)


def test_private_authority_is_trusted_if_it_is_named(tmp_path: Path) -> None:
    ca, cert, key = make_files(tmp_path)
    with serving(tmp_path / "data", "--tls-cert", cert, "--tls-key", key) as server:
        assert server.url.startswith("https://")
        for name in ("alice", "bob"):
            added = subprocess.run(
                [*PROGRAM, "users", "add", name, "--password-stdin", "--data-dir", server.data_dir],
                input=PASSWORD,
                text=True,
                capture_output=True,
                check=False,
            )
            assert added.returncode == 0, added.stderr
        stranger = send(server.url, tmp_path / "home")
        assert stranger.exit_code == 2
        assert "certificate" in stranger.err
        friend = send(server.url, tmp_path / "home", "--ca-file", ca)
        assert (friend.exit_code, friend.out, friend.err) == (0, "1\n", "")


@pytest.mark.parametrize(
    ("text", "complaint"), [(None, "No such file"), ("nonsense", "holds no certificates")]
)
def test_file_that_is_no_authority_is_told(
    tmp_path: Path, text: str | None, complaint: str
) -> None:
    file = tmp_path / "ca.pem"
    if text is not None:
        file.write_text(text)
    done = tidewire("send", "@bob", "Hello", "--user", "alice", "--ca-file", file)
    assert done.exit_code == 2
    assert complaint in done.err


def test_handshake_that_does_not_go_on_is_ended(tmp_path: Path) -> None:
    _, cert, key = make_files(tmp_path)
    with (
        serving(
            tmp_path / "data",
            "--tls-cert",
            cert,
            "--tls-key",
            key,
            "--set",
            "server.tls_handshake_timeout_ms=300",
            program=EVERY_OPTION,
        ) as server,
        socket.create_connection(("127.0.0.1", int(server.url.rpartition(":")[2]))) as peer,
    ):
        peer.settimeout(TIMEOUT_S)
        # The beginning of a handshake, and no more.
        peer.sendall(b"\x16\x03\x01\x02\x00\x01")
        assert peer.recv(1) == b""
