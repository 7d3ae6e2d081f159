"""A file system for SQLite for which a test can cut the power, at any operation.

Goal: to run the real engine, with its threads, on a disk of which we know what is durable. Method:
an apsw VFS over the real unix one, so that locks and the shared memory of the write-ahead log are
the real ones. Every change goes to the real file and is noted on a `Disk` as well, which makes at
the end what the power cut may have left (`crash_disk` has the rules).

Only operations that change the disk are counted and can be hit: creates, writes, truncates, syncs,
deletes. Those on the header of a log that is restarted over old frames have names of their own. A
cut at a read leaves the same as a cut at the next of these. The operation that is hit is under way
when the power goes: a write may still arrive in part, a sync has not happened. After it everything
fails, except closing files and releasing locks, because the process has to end somehow. The real
files then no longer matter.
"""

import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from random import Random
from typing import Final

import apsw

from tests.support.crash_disk import Disk, Inode, Truncate, Write

SYNC_S: Final = 0.0002
"""How long a sync takes: other threads can run meanwhile, as with a real disk."""

_LOG_HEADER_BYTES: Final = 32
_SHARED_MEMORY: Final = "-shm"
_numbers: Final = count(1)

Lie = Callable[[str, str], bool]
"""Says, by the kind of the file and the phase, whether its sync is only pretended."""


def never(kind: str, phase: str) -> bool:
    """An honest disk."""
    return False


class Machine:
    """A computer with one data directory. Use its `vfs` in `SqliteOptions`, then cut the power."""

    def __init__(self, directory: Path, *, lie: Lie = never) -> None:
        self.directory = directory
        self.vfs = f"tidewire-power-{next(_numbers)}"
        self.operations = 0
        """How many changes of the disk the process has made."""
        self.files_open = 0
        self.hit: str | None = None
        """Which operation the power cut or the kill has hit: phase, file and act."""
        self.phase = "open"
        """What the process is doing, for `hit`."""
        self.lie = lie
        self.sync_to_fail: str | None = None
        """The kind of file whose next sync fails, as on a broken disk."""
        files = {
            path.name: path.read_bytes() for path in directory.iterdir() if _is_modelled(path.name)
        }
        self.disk = Disk(files)
        self._lock = threading.Lock()
        self._is_off = False
        self._countdown: int | None = None
        self._counted: str | None = None
        self._registered = _PowerVfs(self)
        self._unraisablehook = sys.unraisablehook
        sys.unraisablehook = self._note_unraisable

    @property
    def is_off(self) -> bool:
        return self._is_off

    def cut_at(self, number: int, act: str | None = None) -> None:
        """Stop at operation `number` from now on, 1 being the next one; with `act` only operations
        of that kind count, such as "database sync"."""
        with self._lock:
            self._countdown = number
            self._counted = act

    def stop(self, hit: str | None = None) -> None:
        """Stop now: everything that the process still does to the disk fails."""
        with self._lock:
            self._is_off = True
            self.hit = self.hit or hit

    def go_on(self) -> None:
        """Go on after a kill of the process: what it has written is still in the page cache."""
        assert self.files_open == 0, "somebody still has files open"
        self._is_off = False
        self._countdown = None
        self.hit = None
        self.operations = 0
        self.phase = "open"

    def written_again(self, path: Path) -> None:
        """Note that the process has rewritten a whole file and synced it, not through SQLite."""
        inode = self.disk.file(path.name)
        assert inode is not None
        with self._lock:
            inode.forget_pending()
            inode.durable[:] = path.read_bytes()

    def left_by_cut(self, random: Random) -> dict[str, bytes]:
        """The files as the power cut leaves them. Memory, and so the -shm file, is gone."""
        assert self._is_off, "the power is on"
        assert self.files_open == 0, "somebody still has files open"
        return self.disk.after_cut(random)

    def close(self) -> None:
        """Close it. Machines must be closed in the reverse order in which they were made."""
        assert sys.unraisablehook == self._note_unraisable
        sys.unraisablehook = self._unraisablehook
        self._registered.unregister()

    def _note_unraisable(self, unraisable: "sys.UnraisableHookArgs") -> None:
        """Hide errors of the cut: SQLite goes on after some, so apsw cannot raise them."""
        if not (isinstance(unraisable.exc_value, apsw.IOError) and self._is_off):
            self._unraisablehook(unraisable)

    def faults(self) -> list[str]:
        """The files that differ between the model's disk and the real one: there must be none."""
        real = {
            path.name: path.read_bytes()
            for path in self.directory.iterdir()
            if _is_modelled(path.name)
        }
        model = self.disk.contents()
        names = sorted(real.keys() | model.keys())
        return [name for name in names if real.get(name) != model.get(name)]

    # Called by the files, from any thread.

    @contextmanager
    def changing(self, name: str, act: str, note: Callable[[], None]) -> Iterator[None]:
        """The context of a change of the disk, which `note` records. Raises if the power is off
        before the change, or goes off with it."""
        with self._lock:
            self.check_power()
            note()
            self.operations += 1
            act = f"{_kind(name)} {act}"
            if self._countdown is not None and self._counted in {None, act}:
                self._countdown -= 1
            is_hit = self._countdown == 0
            if is_hit:
                self._is_off = True
                self.hit = f"{self.phase}: {act}"
        yield
        if is_hit:
            raise apsw.IOError("the power goes off")

    def count_open(self, step: int) -> None:
        with self._lock:
            self.files_open += step

    def check_power(self) -> None:
        """Called before a read. Raises if the power is off."""
        if self._is_off:
            raise apsw.IOError("the power is off")

    def sync(self, name: str, inode: Inode, *, act: str, with_names: bool) -> None:
        """Make durable what is there now, without the changes that come during the sync."""
        changes = 0

        def begin() -> None:
            nonlocal changes
            changes = inode.changes

        with self.changing(name, act, begin):
            time.sleep(SYNC_S)
        is_pretended = self.lie(_kind(name), self.phase)
        with self._lock:
            if self._is_off:
                raise apsw.IOError("the power goes off")
            if self.sync_to_fail == _kind(name):
                self.sync_to_fail = None
                inode.forget_pending()
                raise apsw.IOError("the disk cannot be written")
            if is_pretended:
                return
            inode.sync(changes)
        if with_names:
            self.sync_directory(name)

    def sync_directory(self, name: str) -> None:
        with self.changing(name, "directory sync", lambda: None):
            pass
        with self._lock:
            self.disk.sync_names()


class _PowerFile(apsw.VFSFile):
    """A file of the real VFS, whose changes are noted on the model's disk."""

    def __init__(self, machine: Machine, path: str | apsw.URIFilename, flags: list[int]) -> None:
        name = _name_of(path)
        self._machine = machine
        self._name = name
        inode = machine.disk.file(name)
        # The unix VFS syncs the directory after the first sync of a journal or log that it opened
        # with CREATE, even if the file existed, and of no other file (os_unix.c,
        # UNIXFILE_DIRSYNC).
        journals = apsw.SQLITE_OPEN_MAIN_JOURNAL | apsw.SQLITE_OPEN_WAL
        self._syncs_names = bool(flags[0] & journals and flags[0] & apsw.SQLITE_OPEN_CREATE)
        self._is_open = False
        self._is_restarting = False
        if inode is not None:
            machine.check_power()
            self._inode = inode
            super().__init__("unix", path, flags)
        else:
            with machine.changing(name, "create", self._create):
                super().__init__("unix", path, flags)
        self._is_open = True
        machine.count_open(+1)

    def _create(self) -> None:
        self._inode = self._machine.disk.create(self._name)

    def xRead(self, amount: int, offset: int) -> bytes:  # noqa: N802
        self._machine.check_power()
        return super().xRead(amount, offset)

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802
        write = Write(offset, bytes(data))
        self._is_restarting = self._is_restart(write)
        act = "restart write" if self._is_restarting else "write"
        with self._machine.changing(self._name, act, lambda: self._inode.change(write)):
            super().xWrite(data, offset)

    def xTruncate(self, newsize: int) -> None:  # noqa: N802
        truncate = Truncate(newsize)
        with self._machine.changing(self._name, "truncate", lambda: self._inode.change(truncate)):
            super().xTruncate(newsize)

    def xSync(self, flags: int) -> None:  # noqa: N802
        # The real file is not synced: the model's disk is the one that counts.
        act = "restart sync" if self._is_restarting else "sync"
        self._is_restarting = False
        self._machine.sync(self._name, self._inode, act=act, with_names=self._syncs_names)
        self._syncs_names = False

    def _is_restart(self, write: Write) -> bool:
        """Whether the log is restarted: a header is written over the old one, before old frames."""
        is_header = write.offset == 0 and len(write.data) == _LOG_HEADER_BYTES
        return is_header and super().xFileSize() > _LOG_HEADER_BYTES

    def xFileSize(self) -> int:  # noqa: N802
        self._machine.check_power()
        return super().xFileSize()

    def xClose(self) -> None:  # noqa: N802
        if self._is_open:
            self._is_open = False
            self._machine.count_open(-1)
        super().xClose()


class _PowerVfs(apsw.VFS):
    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        super().__init__(machine.vfs, "unix")

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:  # noqa: N802
        assert name is not None, "temporary files are in memory"
        return _PowerFile(self._machine, name, flags)

    def xDelete(self, filename: str, syncdir: bool) -> None:  # noqa: N802
        name = _name_of(filename)
        machine = self._machine
        with machine.changing(name, "delete", lambda: machine.disk.delete(name)):
            super().xDelete(filename, False)
        if syncdir:
            machine.sync_directory(name)


def write_files(directory: Path, files: dict[str, bytes]) -> None:
    directory.mkdir()
    for name, content in files.items():
        (directory / name).write_bytes(content)


def tally(hits: Counter[str]) -> str:
    """What was hit, the most frequent first, one line each."""
    return "\n".join(f"{times:6} {hit}" for hit, times in hits.most_common())


def _is_modelled(name: str) -> bool:
    """Whether a file of SQLite is on the modelled disk; the shared memory of the log is not."""
    return ".db" in name and not name.endswith(_SHARED_MEMORY)


def _name_of(path: str | apsw.URIFilename) -> str:
    return Path(path.filename() if isinstance(path, apsw.URIFilename) else path).name


def _kind(name: str) -> str:
    for ending in ("wal", "journal"):
        if name.endswith(f"-{ending}"):
            return ending
    return "database"
