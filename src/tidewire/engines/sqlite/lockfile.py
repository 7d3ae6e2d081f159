"""One process a data directory: a lock file that the kernel releases when its holder dies."""

import fcntl
import os
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from tidewire.domain.errors import StoreUnusable

LOCK_NAME: Final = "tidewire.lock"


class DataDirectoryLock:
    """Held from construction to `release`. The file stays and names its last holder's pid."""

    def __init__(self, data_dir: Path) -> None:
        self._path = data_dir / LOCK_NAME
        try:
            self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise StoreUnusable(
                f"cannot write to the data directory {data_dir}: {error.strerror}; "
                "give this user write permission there, or name another directory"
            ) from error
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.ftruncate(self._file, 0)
            os.pwrite(self._file, f"{os.getpid()}\n".encode(), 0)
        except BlockingIOError as error:
            holder = os.pread(self._file, 32, 0).decode(errors="replace").strip() or "unknown"
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

    def release(self) -> None:
        """Let go. The file is not deleted: that would race with the next holder."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()
