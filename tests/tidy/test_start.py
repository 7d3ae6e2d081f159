"""What a server does not import before it listens: clients come back a second after it went away,
and a server that is still importing then makes them wait twice as long before their next try."""

import subprocess
import sys

import pytest

LATER = {
    "attr",
    "cryptography",
    "ctypes",
    "jwt",
    "litestar",
    "prometheus_client",
    "pygments",
    "rich",
    "yaml",
}
"""Imported by what needs it, when it is needed for the first time."""

START = """
import sys
import tidewire.runtime.cli
import tidewire.runtime.serve
print(*sorted({name.partition(".")[0] for name in sys.modules}))
"""


@pytest.mark.slow
def test_server_starts_without_what_it_needs_later() -> None:
    said = subprocess.run(
        [sys.executable, "-c", START], check=True, capture_output=True, text=True
    ).stdout
    imported = set(said.split())
    assert "uvloop" in imported, "the start is not what was looked at"
    assert imported & LATER == set()
