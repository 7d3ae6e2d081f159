"""The checkpointer: copies the write-ahead log into the database, beside the commits.

A passive checkpoint waits for nothing and delays nothing, but under load it never quite catches up,
so the log would grow for ever. When the log passes its bound, new reads are held back until the
open ones have ended (they are short), and the writer restarts the log between two commits.
"""

import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future as ThreadFuture
from contextlib import suppress
from pathlib import Path
from typing import Final

import apsw

from tidewire.engines.sqlite.database import SqliteOptions, connect, single
from tidewire.engines.sqlite.errors import translate_errors
from tidewire.engines.sqlite.readers import ReadGate

_FRAME_BYTES: Final = 4096 + 24
"""A page and its header in the log."""

_CHUNK_BYTES: Final = 1024 * 1024

_RETRY_S_MIN: Final = 0.1
"""The first pause after a reader outside of this process has pinned the log: a short read that had
to wait for the processor has ended by then. It doubles each time, up to `_RETRY_S_MAX`."""
_RETRY_S_MAX: Final = 1.0

_WAIT_S_MAX: Final = 0.05
"""How long a restart may hold up commits to let short reads of other processes end."""
_WAIT_STEP_S: Final = 0.001

BetweenCommits = Callable[[Callable[[apsw.Connection], None]], ThreadFuture[None]]


class Checkpointer:
    """Owns a connection and a thread. Started with the writer, stopped before it."""

    def __init__(
        self, path: Path, options: SqliteOptions, gate: ReadGate, on_fatal: Callable[[str], None]
    ) -> None:
        self.restarts = 0
        """How often the log was restarted."""
        self.restarts_pinned = 0
        """How often that failed because a reader outside of this process pinned the log."""
        self.checkpoints_failed = 0
        """How often a checkpoint found the disk full or the database busy."""
        self._options = options
        self._gate = gate
        self._on_fatal = on_fatal
        self._database = connect(path, options, cache_kib=options.reader_cache_kib)
        try:
            # A connection that never read does not know of the log and would checkpoint nothing.
            with translate_errors():
                self._database.execute("SELECT count(*) FROM sqlite_schema").fetchall()
        except BaseException:
            self._database.close()
            raise
        self._wal_bytes = 0
        self._seen_bytes = 0
        self._pinned_until = 0.0
        self._retry_s = _RETRY_S_MIN
        self._wake = threading.Event()
        self._stopping = False
        self._between_commits: BetweenCommits | None = None
        self._thread = threading.Thread(target=self._run, name="tidewire-checkpoint", daemon=True)

    def start(self, database: apsw.Connection, between_commits: BetweenCommits) -> None:
        """Watch the commits of this connection."""
        self._between_commits = between_commits
        database.set_wal_hook(self._wal_grew)
        self._thread.start()

    @property
    def wal_bytes(self) -> int:
        """The size of the log after the last commit."""
        return self._wal_bytes

    def stop(self) -> None:
        self._stopping = True
        self._wake.set()
        self._thread.join()
        self._database.close()

    def _wal_grew(self, database: apsw.Connection, name: str, pages: int) -> int:
        """Called after every commit, on the writer's thread: must be cheap."""
        self._wal_bytes = pages * _FRAME_BYTES
        if self._wal_bytes < self._seen_bytes:
            # The log was restarted.
            self._seen_bytes = 0
        if self._wal_bytes - self._seen_bytes >= self._options.checkpoint_bytes:
            self._seen_bytes = self._wal_bytes
            self._wake.set()
        return apsw.SQLITE_OK

    # From here on: the checkpointer's thread.

    def _run(self) -> None:
        while True:
            self._wake.wait()
            self._wake.clear()
            if self._stopping:
                return
            try:
                self._copy()
                if self._wal_bytes >= self._options.wal_bytes_max:
                    self._restart()
            except (apsw.BusyError, apsw.FullError):
                # The log keeps everything meanwhile; the next try comes when the log has grown.
                self.checkpoints_failed += 1
            except apsw.Error as error:
                # After a failed sync the kernel may drop unwritten pages and mark them clean. The
                # log still has everything: the process ends, and the next start copies it again.
                self._on_fatal(f"the database could not be written ({error}); check the disk")
                return

    def _copy(self) -> None:
        """Copy what can be copied without waiting."""
        # Busy means that a commit was just writing the head of the log, not that a reader pins it.
        with suppress(apsw.BusyError):
            self._database.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)

    def _restart(self) -> None:
        assert self._between_commits is not None
        if time.monotonic() < self._pinned_until:
            return
        try:
            self._gate.hold(timeout_s=1.5 * self._options.read_ms_max / 1000)
            # Copies the commits made while the reads ended, so that little is left for the writer.
            self._copy()
            self._between_commits(_restart_wal).result()
            self.restarts += 1
            self._retry_s = _RETRY_S_MIN
        except apsw.BusyError:
            self.restarts_pinned += 1
            self._pinned_until = time.monotonic() + self._retry_s
            self._retry_s = min(2 * self._retry_s, _RETRY_S_MAX)
        finally:
            self._gate.release()


def _restart_wal(database: apsw.Connection) -> None:
    """Copy the little that is left, and let the next commit write at the start of the log.

    A read of another process (a verify, a backup of a small file) may pin the log. No commit comes
    meanwhile, so after a try or two the whole log is copied; reads that begin from then on do not
    need it, and it is free when the last earlier read ends. Copying does not count as waiting: on a
    slow disk it would use up the time for those reads, every time.
    """
    busy_ms = single(database, "PRAGMA busy_timeout")
    waited_s = 0.0
    # SQLite's busy timeout does not help: one read after the other takes the same lock again.
    database.set_busy_timeout(0)
    try:
        while True:
            try:
                database.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_RESTART)
            except apsw.BusyError:
                if waited_s >= _WAIT_S_MAX:
                    raise
                began_s = time.monotonic()
                time.sleep(_WAIT_STEP_S)
                waited_s += time.monotonic() - began_s
            else:
                return
    finally:
        database.set_busy_timeout(busy_ms)


def settle_log(database: apsw.Connection) -> None:
    """Make durable what an earlier process left in the log, before it is read.

    If a process died while it synced a commit, the commit may be only in the kernel's memory. If
    the sync had failed, the kernel has marked the pages clean and never writes them: on the disk
    the log ends there, whatever is appended. So all is copied into the database, and the log is
    restarted.
    """
    with translate_errors():
        try:
            database.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
        except (apsw.BusyError, apsw.FullError):
            # A long read of another process, such as a backup, pins the log; or the database has no
            # room to grow. Writing the log's own bytes again needs no room.
            _write_again(Path(f"{database.filename}-wal"))


def _write_again(path: Path) -> None:
    """Write a file's bytes over themselves, so that the kernel knows that it has to write them."""
    with path.open("r+b") as file:
        while chunk := file.read(_CHUNK_BYTES):
            file.seek(-len(chunk), os.SEEK_CUR)
            file.write(chunk)
        file.flush()
        os.fsync(file.fileno())
