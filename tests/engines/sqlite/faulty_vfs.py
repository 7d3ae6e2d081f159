"""A file system layer for SQLite that does what a test tells it, and else what the real one does.

It holds no test. Give its name to `SqliteOptions(vfs=...)`.
"""

from collections.abc import Callable
from enum import Enum
from itertools import count
from typing import Final

import apsw

_NUMBERS: Final = count(1)


class FileKind(Enum):
    DATABASE = "database"
    WAL = "wal"
    OTHER = "other"


Fault = Callable[[FileKind, int], None]
"""Called before an operation on a file of this kind, with the bytes that it writes; raises an apsw
error to make it fail."""


def no_fault(kind: FileKind, size_bytes: int) -> None:
    """A healthy disk."""


class FaultyVfs(apsw.VFS):
    """Counts syncs; `before_write` and `before_sync` may refuse them."""

    def __init__(self) -> None:
        # One process registers many, each under a name of its own.
        self.name = f"faulty-{next(_NUMBERS)}"
        self.before_write: Fault = no_fault
        self.before_sync: Fault = no_fault
        self.syncs = dict.fromkeys(FileKind, 0)
        super().__init__(self.name, "")

    def xOpen(  # noqa: N802 - SQLite's name
        self, name: str | apsw.URIFilename | None, flags: list[int]
    ) -> apsw.VFSFile:
        return _FaultyFile(self, name, flags)


class _FaultyFile(apsw.VFSFile):
    def __init__(
        self, vfs: FaultyVfs, name: str | apsw.URIFilename | None, flags: list[int]
    ) -> None:
        self._vfs = vfs
        self._kind = FileKind.OTHER
        if flags[0] & apsw.SQLITE_OPEN_MAIN_DB:
            self._kind = FileKind.DATABASE
        elif flags[0] & apsw.SQLITE_OPEN_WAL:
            self._kind = FileKind.WAL
        super().__init__("", name, flags)

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802 - SQLite's name
        self._vfs.before_write(self._kind, len(data))
        super().xWrite(data, offset)

    def xSync(self, flags: int) -> None:  # noqa: N802 - SQLite's name
        self._vfs.before_sync(self._kind, 0)
        super().xSync(flags)
        self._vfs.syncs[self._kind] += 1


def sync_error() -> Exception:
    """What SQLite's own layer reports when fsync fails."""
    return apsw.exception_for(apsw.SQLITE_IOERR_FSYNC)


def fail_on(kind: FileKind, error: Callable[[], Exception]) -> Fault:
    """Fail every time, on files of this kind."""

    def fault(found: FileKind, size_bytes: int) -> None:
        if found is kind:
            raise error()

    return fault


def full_after(room_bytes: int) -> Fault:
    """A disk with this much room left, whichever file it is written to."""
    room = [room_bytes]

    def fault(found: FileKind, size_bytes: int) -> None:
        if size_bytes > room[0]:
            raise apsw.FullError("no room on the device")
        room[0] -= size_bytes

    return fault
