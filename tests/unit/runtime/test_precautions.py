"""What an operator is told at the start, and the limit of open files."""

import resource
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.logs import our_lines
from tidewire.runtime.config import load
from tidewire.runtime.serve import doubts, take_precautions


def doubts_of(data_dir: Path, **flags: str) -> list[str]:
    named = {name.replace("__", "."): value for name, value in flags.items()}
    return list(doubts(load(data_dir=data_dir, flags=named, environ={}).config))


@pytest.mark.parametrize(
    ("mode", "is_open"),
    [(0o700, False), (0o750, False), (0o777, True), (0o770, True), (0o701, True)],
)
def test_data_directory_that_others_can_enter_is_told(
    tmp_path: Path, mode: int, *, is_open: bool
) -> None:
    directory = tmp_path / "data"
    directory.mkdir()
    directory.chmod(mode)
    told = doubts_of(directory)
    assert [str(directory) in sentence for sentence in told] == [True] * is_open


def test_data_directory_that_is_not_there_yet_is_no_doubt(tmp_path: Path) -> None:
    assert doubts_of(tmp_path / "data") == []


@pytest.mark.parametrize(("mode", "is_open"), [(0o600, False), (0o640, False), (0o644, True)])
def test_tls_key_that_all_can_read_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: int, *, is_open: bool
) -> None:
    monkeypatch.setattr("tidewire.runtime.config._impossible_server", lambda server: iter(()))
    key = tmp_path / "tls.key"
    key.write_text("")
    key.chmod(mode)
    told = doubts_of(tmp_path / "data", server__tls_key=str(key), server__tls_cert=str(key))
    assert ["chmod 600" in sentence for sentence in told] == [True] * is_open


@pytest.mark.parametrize(("scheme", "is_open"), [("http", True), ("https", False)])
def test_keys_over_plain_http_are_told(tmp_path: Path, scheme: str, *, is_open: bool) -> None:
    told = doubts_of(
        tmp_path / "data",
        identity__issuer="https://id.example.org",
        identity__jwks_url=f"{scheme}://id.example.org/keys",
    )
    assert ["jwks_url" in sentence for sentence in told] == [True] * is_open


def test_doubts_are_warnings(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    tmp_path.chmod(0o777)
    take_precautions(load(data_dir=tmp_path, environ={}).config)
    assert [record.levelname for record in our_lines(caplog)] == ["WARNING"]


def test_soft_limit_of_files_is_raised_to_the_hard_one() -> None:
    # In a process of its own: a limit is not given back.
    program = (
        "import resource; from tidewire.runtime.serve import raise_file_limit;"
        "hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1];"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard)); raise_file_limit();"
        "print(resource.getrlimit(resource.RLIMIT_NOFILE)[0])"
    )
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert int(told.stdout) == resource.getrlimit(resource.RLIMIT_NOFILE)[1]
