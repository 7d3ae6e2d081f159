"""A process of its own that uses a store, for tests of what happens between processes.

Holds no test. Run as `python -m tests.engines.sqlite.child MODE DATA_DIR`; what it says on standard
output is what the tests wait for.
"""

import asyncio
import contextlib
import ctypes
import os
import signal
import struct
import subprocess
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Final
from unittest import mock

from tests.engines.sqlite.faulty_vfs import FaultyVfs, FileKind, fail_on, sync_error
from tests.engines.sqlite.full_disk import full_disk_story
from tests.support.engines import SqliteHarness
from tests.support.world import World
from tidewire.domain.errors import TidewireError
from tidewire.domain.ids import ClientMessageId
from tidewire.engines.sqlite import SqliteOptions, SqliteStorage
from tidewire.engines.sqlite.backup import backup, restore
from tidewire.ports.storage import Storage

ROOT: Final = Path(__file__).resolve().parents[3]
HEALTHY_SENDS: Final = 20
UNUSED_KEY: Final = ClientMessageId("ffffffff-0000-4000-8000-000000000000")
SENDS_MAX: Final = 5_000
CANNOT_MOUNT: Final = "cannot mount"


Child = subprocess.Popen[str]


def start(mode: str, data_dir: Path, *more: str, is_mute: bool = False) -> Child:
    """Start a child; its output is piped. A mute one has no standard error at all."""
    command = [sys.executable, "-m", "tests.engines.sqlite.child", mode, str(data_dir), *more]
    if is_mute:
        command = ["sh", "-c", 'exec "$@" 2>&-', "sh", *command]
    return subprocess.Popen(
        command,
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


class ChildStore(SqliteHarness):
    """A store whose fatal handler is the real one."""

    def __init__(self, directory: Path, options: SqliteOptions) -> None:
        super().__init__(directory)
        self._options = options

    async def _open(self) -> Storage:
        return await SqliteStorage.open(
            self.directory, listener=self._listen, options=self._options
        )


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


async def hold(data_dir: Path) -> None:
    """Open the store and keep it until somebody ends this process."""
    await SqliteStorage.open(data_dir)
    say("open")
    await asyncio.to_thread(sys.stdin.read)


async def try_to_open(data_dir: Path) -> None:
    """Open the store as somebody for whom the permissions of files count; tell what came of it."""
    if os.getuid() == 0:
        give_up_privileges()
    try:
        storage = await SqliteStorage.open(data_dir)
    except TidewireError as error:
        say(f"{type(error).__name__}: {error}")
    else:
        await storage.close()
        say("opened")


async def fill_a_real_disk(data_dir: Path) -> None:
    """Mount a small disk there, seen by this process only, and tell what a store on it does."""
    try:
        mount_small_disk(data_dir)
    except OSError:
        say(CANNOT_MOUNT)
        return
    ballast = data_dir / "ballast"

    def fill() -> None:
        with contextlib.suppress(OSError), ballast.open("wb", buffering=0) as file:
            while file.write(bytes(1024)):
                pass

    for line in await full_disk_story(ChildStore(data_dir, SqliteOptions()), fill, ballast.unlink):
        say(line)


def mount_small_disk(directory: Path) -> None:
    """Needs root or user namespaces; nothing is left of it when the process ends."""
    new_mounts, new_users = 0x00020000, 0x10000000
    private_below = (1 << 18) | (1 << 14)
    libc = ctypes.CDLL(None, use_errno=True)

    def check(result: int) -> None:
        if result != 0:
            raise OSError(ctypes.get_errno(), "no mount here")

    check(libc.unshare(new_mounts if os.getuid() == 0 else new_mounts | new_users))
    check(libc.mount(b"none", b"/", None, private_below, None))
    check(libc.mount(b"tmpfs", bytes(directory), b"tmpfs", 0, b"size=2m"))


async def send_on_a_failing_disk(data_dir: Path, kind: FileKind) -> None:
    """Send one message after the other and say each sequence that was acknowledged. After some of
    them, files of one kind can no longer be synced."""
    vfs = FaultyVfs()
    # A checkpoint syncs the log as well; where commits are to fail first, there is none.
    checkpoint_bytes = 64 * 1024 if kind is FileKind.DATABASE else 64 * 1024 * 1024
    store = ChildStore(data_dir, SqliteOptions(vfs=vfs.name, checkpoint_bytes=checkpoint_bytes))
    await store.open()
    world = World(store)
    one, other = await world.people(2)
    chat = await world.direct(one, other)
    say(f"{chat} {one}")
    for number in range(SENDS_MAX):
        if number == HEALTHY_SENDS:
            vfs.before_sync = fail_on(kind, sync_error)
        answer = await world.send(chat, one, f"message {number}")
        say(str(answer.sequence))
    say("the disk failed, and nobody noticed")


async def back_up(data_dir: Path) -> None:
    """Back a store up into the file that the command line names, as an operator does."""
    backup(data_dir, Path(sys.argv[3]))
    say("done")


async def die_while_restoring(data_dir: Path) -> None:
    """Restore the file that the command line names, and be killed just before it is done."""

    def die(path: Path) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    with mock.patch("tidewire.engines.sqlite.copying.sync_file", die):
        restore(Path(sys.argv[3]), data_dir)
    say("the restore survived")


def give_up_privileges() -> None:
    """Be an owner like any other: without its capabilities, root is bound by a file's permissions.

    Not by becoming another user, who may not be able to read this very program.
    """
    version_3, this_thread = 0x20080522, 0
    header = struct.pack("Ii", version_3, this_thread)
    none = struct.pack("6I", 0, 0, 0, 0, 0, 0)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.capset(header, none) != 0:
        raise OSError(ctypes.get_errno(), "cannot give up privileges")


MODES: Final[dict[str, Callable[[Path], Coroutine[object, object, None]]]] = {
    "hold": hold,
    "try-to-open": try_to_open,
    "fill-a-real-disk": fill_a_real_disk,
    "back-up": back_up,
    "die-while-restoring": die_while_restoring,
    "send-wal-fails": lambda data_dir: send_on_a_failing_disk(data_dir, FileKind.WAL),
    "send-database-fails": lambda data_dir: send_on_a_failing_disk(data_dir, FileKind.DATABASE),
}


if __name__ == "__main__":
    asyncio.run(MODES[sys.argv[1]](Path(sys.argv[2])))
