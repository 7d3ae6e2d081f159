"""Runs the real command in a process of its own, and makes stores for it. Holds no test."""

import asyncio
import fcntl
import json
import os
import pty
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import apsw

from tests.support import forked
from tests.support.engines import SqliteHarness
from tests.support.world import World
from tidewire.domain.ids import ChatId
from tidewire.engines.sqlite import DATABASE_NAME

TIMEOUT_S = 90
COLUMNS = 80

# Nothing in our environment may make a terminal of no terminal, or change its width.
_UNWANTED = ("COLUMNS", "LINES", "FORCE_COLOR", "NO_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE")
# Whoever is started in the background is deaf to Ctrl-C, and so are all that it starts.
_ENV = ["env", "--default-signal=INT", *(f"--unset={name}" for name in _UNWANTED), "TERM=xterm"]
PROGRAM = [*_ENV, sys.executable, "-m", "tidewire"]
EVERY_OPTION = [*_ENV, sys.executable, "-m", "tests.support.every_option"]
"""The same command, with the options that operators cannot set."""
AT_ONCE = [*_ENV, sys.executable, "-m", "tests.support.at_once"]
"""The same again, with a server that does not gather acknowledgements."""
HALFWAY = [*_ENV, sys.executable, "-m", "tests.support.halfway"]
"""And with one whose erasures stand still in the middle."""


class Done(NamedTuple):
    """What a command said. An error is a sentence, never a traceback."""

    exit_code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


def tidewire(*arguments: str | Path, program: Sequence[str] = PROGRAM) -> Done:
    """Run the command to its end, as a program would: not on a terminal."""
    done = forked.run([*program, *map(str, arguments)], timeout=TIMEOUT_S)
    assert "Traceback" not in done.stderr, done.stderr
    return Done(done.returncode, done.stdout, done.stderr)


def tidewire_on_a_terminal(*arguments: str | Path) -> Done:
    """Run the command on a terminal of 80 columns; stdout and stderr come as one."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 25, COLUMNS, 0, 0))
    process = subprocess.Popen(
        [*PROGRAM, *map(str, arguments)], stdin=theirs, stdout=theirs, stderr=theirs
    )
    os.close(theirs)
    shown = b""
    # The terminal of a process that has ended gives an error instead of an end of file.
    try:
        while chunk := os.read(ours, 65_536):
            shown += chunk
    except OSError:
        pass
    finally:
        os.close(ours)
    return Done(process.wait(TIMEOUT_S), shown.decode().replace("\r\n", "\n"), "")


def make_store(data_dir: Path) -> ChatId:
    """A stopped store with people, a direct chat and a group of 25 messages; the group."""
    return asyncio.run(_make_store(data_dir))


async def _make_store(data_dir: Path) -> ChatId:
    world = World(SqliteHarness(data_dir))
    await world.engine.open()
    ann, bob, cleo = await world.people(3)
    direct = await world.direct(ann, bob)
    await world.send_many(direct, ann, 5)
    group = await world.group(ann, bob, cleo)
    head = await world.send_many(group, bob, 25)
    await world.read(cleo, group, head)
    await world.engine.close()
    return group


@contextmanager
def edited(data_dir: Path) -> Iterator[apsw.Connection]:
    """Somebody else's hand in the database."""
    database = apsw.Connection(str(data_dir / DATABASE_NAME))
    try:
        yield database
    finally:
        database.close()


def one(data_dir: Path, query: str, *bindings: str) -> Any:
    with edited(data_dir) as database:
        return database.execute(query, bindings).get
