"""What `pip install tidewire` alone brings, and what it must not need."""

import subprocess
import sys
import tomllib
from importlib.resources import files

import pytest

from tests.tidy.repository import ROOT

SERVER_ONLY = [
    "argon2",
    "cryptography",
    "httptools",
    "jwt",
    "litestar",
    "prometheus_client",
    "rich",
    "textual",
    "typer",
    "uvicorn",
    "uvloop",
]

BLOCK = """
import sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {names!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Blocked())
"""


CHAT_ONLY = [name for name in SERVER_ONLY if name not in ("rich", "textual", "typer")]


def run(code: str, missing: list[str] = SERVER_ONLY) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", BLOCK.format(names=missing) + code],
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_base_install_needs_four_libraries() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    names = [one.partition(">")[0].partition("=")[0] for one in project["dependencies"]]
    assert names == ["apsw", "httpx", "msgspec", "picows"]
    assert set(project["optional-dependencies"]) == {"all", "chat", "cluster", "server"}


@pytest.mark.slow
def test_client_imports_nothing_of_the_servers() -> None:
    done = run("import tidewire.client, tidewire.client.blocking")
    assert done.returncode == 0, done.stderr
    listed = run(
        "import tidewire.client.blocking\n"
        "print([name for name in sys.modules if name.startswith('tidewire.')])"
    )
    rooms = {name.split(".")[1].strip("'],") for name in listed.stdout.split("'") if "." in name}
    assert rooms == {"client", "domain", "wire"}


@pytest.mark.slow
def test_command_without_the_extra_says_what_to_install() -> None:
    done = run("from tidewire.runtime.cli import main; main()")
    assert done.returncode != 0
    assert done.stderr.strip().count("\n") == 0
    assert "pip install 'tidewire[chat]'" in done.stderr
    assert "'tidewire[server]'" in done.stderr


@pytest.mark.slow
def test_command_of_the_server_without_its_extra_says_what_to_install() -> None:
    done = run("sys.argv[1:] = ['serve']; from tidewire.runtime.cli import main; main()", CHAT_ONLY)
    assert done.returncode == 2, done.stderr
    assert done.stderr.strip().count("\n") == 0
    assert "pip install 'tidewire[server]'" in done.stderr


def test_package_is_typed() -> None:
    assert files("tidewire").joinpath("py.typed").is_file()
