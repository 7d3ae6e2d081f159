"""One process per data directory: a lock file that the kernel releases when its holder dies.

The log is looked at under the lock, before SQLite opens the database (`log_look`). A process that
takes the lock looks at once. A process that only reads, beside a server or without one, calls
`look_first`: it looks itself unless the holder of the lock has done so.
"""

import errno
import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Self

from tidewire.domain.errors import StoreUnusable
from tidewire.engines.sqlite.log_look import DATABASE_NAME, Look, check_log, needs_look

LOCK_NAME: Final = "tidewire.lock"

_LOOKING: Final = "looking"
"""Written behind the holder's pid until the holder has looked at the log."""
_LOOK_S_MAX: Final = 60.0
"""How long to wait for another process that looks at the log: 64 MB take less than a second."""
_STEP_S: Final = 0.01


class DataDirectoryLock:
    """Held from construction to `release`. The file stays and names its last holder's pid."""

    def __init__(self, data_dir: Path, *, look: Look = check_log) -> None:
        """Raises StoreUnusable if another process holds it, and what `look` raises."""
        self._path = data_dir / LOCK_NAME
        try:
            self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise StoreUnusable(
                f"cannot write to the data directory {data_dir}: {error.strerror}; "
                "give this user write permission there, or name another directory"
            ) from error
        try:
            self._take()
            self._name(f"{os.getpid()} {_LOOKING}")
            look(data_dir / DATABASE_NAME)
            self._name(f"{os.getpid()}")
        except BlockingIOError as error:
            holder = next(iter(_holder(self._file)), "unknown")
            self.release()
            raise StoreUnusable(
                f"the data directory {data_dir} is in use by process {holder}; "
                "stop that process first, or use another directory"
            ) from error
        except OSError as error:
            self.release()
            raise StoreUnusable(
                f"cannot lock the data directory {data_dir}: {error.strerror}; "
                "it has to be on a local disk with some room"
            ) from error
        except BaseException:
            self.release()
            raise

    def _take(self) -> None:
        """Take the lock; wait for processes that hold it only to look at the log."""
        give_up_at = time.monotonic() + _LOOK_S_MAX
        while True:
            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() > give_up_at:
                    raise
                # Raises if a process holds it for good.
                fcntl.flock(self._file, fcntl.LOCK_SH | fcntl.LOCK_NB)
                # Else two waiting processes would keep each other from the lock.
                fcntl.flock(self._file, fcntl.LOCK_UN)
                time.sleep(_STEP_S)
            else:
                return

    def _name(self, holder: str) -> None:
        """Write who holds the lock. The file is never empty meanwhile. On a full disk the name of
        an earlier holder may stay: the lock is what counts."""
        text = f"{holder}\n".encode()
        try:
            os.pwrite(self._file, text, 0)
            os.ftruncate(self._file, len(text))
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise

    def release(self) -> None:
        """Let go. The file is not deleted: that would race with the next holder."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


def look_first(path: Path) -> None:
    """Before SQLite opens a database: look at its log, unless the lock's holder has looked."""
    if not needs_look(path):
        return
    give_up_at = time.monotonic() + _LOOK_S_MAX
    while True:
        with _shared(path.parent / LOCK_NAME) as holder:
            if holder is None:
                check_log(path)
                return
        if _LOOKING not in holder:
            return
        if time.monotonic() > give_up_at:
            raise StoreUnusable(f"another process is busy with the log of {path}; try again")
        time.sleep(_STEP_S)


@contextmanager
def _shared(lock: Path) -> Iterator[list[str] | None]:
    """Keep others from taking the lock; None, or what the file says of the process that has it."""
    try:
        file = os.open(lock, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        # A copy, or a backup: no server has ever used this directory.
        yield None
        return
    try:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            yield _holder(file)
        else:
            yield None
    finally:
        os.close(file)


def _holder(file: int) -> list[str]:
    """The pid of the lock's last holder, and what it does."""
    return os.pread(file, 64, 0).decode(errors="replace").split()
