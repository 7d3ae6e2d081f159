"""Runs a program on a terminal of its own, types into it and reads its screen. Holds no test."""

import fcntl
import os
import pty
import struct
import subprocess
import termios
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.e2e.commands import TIMEOUT_S

KEYS = {"Enter": b"\r", "^q": b"\x11"}


class Terminal:
    """A program on a terminal of 80 by 24. What it writes is kept, and taken when it is seen."""

    def __init__(self, ours: int, process: "subprocess.Popen[bytes]") -> None:
        self.ours = ours
        self.process = process
        self._written = b""

    def see(self, text: str) -> None:
        watch = threading.Timer(TIMEOUT_S, self.process.kill)
        watch.start()
        try:
            while text.encode() not in self._written:
                self._written += os.read(self.ours, 65_536)
        except OSError:
            raise AssertionError(f"{text!r} was not seen in {self._written!r}") from None
        finally:
            watch.cancel()

    @property
    def seen(self) -> str:
        """All that was written since the last key, or the start."""
        return self._written.decode(errors="replace")

    def press(self, keys: str) -> None:
        # What was written before is no answer to this.
        self._written = b""
        os.write(self.ours, KEYS.get(keys, keys.encode()))


@contextmanager
def on_a_terminal(command: str, directory: Path) -> Iterator[Terminal]:
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    process = subprocess.Popen(
        ["/bin/sh", "-c", f"exec {command}"],
        cwd=directory,
        env={**os.environ, "XDG_DATA_HOME": str(directory / "home"), "TERM": "xterm-256color"},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    )
    os.close(theirs)
    try:
        yield Terminal(ours, process)
    finally:
        process.kill()
        process.wait()
        os.close(ours)
