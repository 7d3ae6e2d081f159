"""What /proc shows of a server under load."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tidewire_bench.target import Process

CHILDREN = 2
PARENT = f"""
import os, sys, threading
for _ in range({CHILDREN}):
    if os.fork() == 0:
        files = [os.open("/dev/null", os.O_RDONLY) for _ in range(10)]
        threading.Thread(target=threading.Event().wait, daemon=True).start()
        sys.stdout.write("x")
        sys.stdout.flush()
        threading.Event().wait()
threading.Event().wait()
"""


@pytest.fixture
def family() -> Iterator[Process]:
    """A process with one thread, whose children have two threads and ten files more each."""
    with subprocess.Popen(
        [sys.executable, "-c", PARENT], stdout=subprocess.PIPE, start_new_session=True
    ) as parent:
        try:
            assert parent.stdout is not None
            assert parent.stdout.read(CHILDREN) == b"x" * CHILDREN
            yield Process(parent.pid)
        finally:
            os.killpg(parent.pid, signal.SIGKILL)


def test_numbers_of_a_server_are_those_of_all_its_processes(family: Process) -> None:
    parent_files = len(os.listdir(f"/proc/{family.pid}/fd"))  # noqa: PTH208 - no path is needed
    assert family.threads() == 1 + CHILDREN * 2
    assert family.files() == parent_files + CHILDREN * (parent_files + 10)
    assert family.highest_rss_bytes() >= family.rss_bytes() > (1 + CHILDREN) * 1024 * 1024
