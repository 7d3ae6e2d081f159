"""Backup of a live database, and restore into a new life of the store."""

import shutil
from contextlib import closing
from pathlib import Path

import apsw

from tidewire.domain.errors import StoreUnusable
from tidewire.domain.limits import RESTORE_SEQUENCE_JUMP, SEQUENCE_MAX
from tidewire.engines.sqlite import copying
from tidewire.engines.sqlite.database import (
    DATABASE_NAME,
    SqliteOptions,
    check_complete,
    check_data_dir,
    connect,
    connect_reader,
    schema_version,
    transaction,
)
from tidewire.engines.sqlite.errors import translate_errors
from tidewire.engines.sqlite.lockfile import DataDirectoryLock
from tidewire.engines.sqlite.log_look import RECOVERED_ENDING, no_look
from tidewire.engines.sqlite.migrate import migrate, set_epoch


def backup(data_dir: Path, file: Path, progress: copying.Progress = copying.no_progress) -> None:
    """Copy the database of a data directory, also while a server uses it."""
    path = data_dir / DATABASE_NAME
    if not path.exists():
        raise StoreUnusable(f"there is no database in {data_dir}; nothing to back up")
    with closing(connect_reader(path, SqliteOptions())) as source:
        if schema_version(source) == 0:
            raise StoreUnusable(f"the database in {data_dir} is empty; nothing to back up")
        copying.copy_database(source, file, progress)


def restore(file: Path, data_dir: Path, *, keep_sessions: bool = False) -> str:
    """Put a backup into a data directory that has no database; returns the new epoch.

    Every counter jumps ahead and the epoch changes, so that no client takes a new message for one
    that it has seen before the restore. Unless `keep_sessions` is set, all sessions end: a session
    may have been revoked since the backup because a device was lost, and it is not known which. The
    database gets its name when all this is done.
    """
    if not file.is_file():
        raise StoreUnusable(f"there is no file {file}")
    wal = file.with_name(file.name + "-wal")
    if wal.exists() and wal.stat().st_size > 0:
        raise StoreUnusable(
            f"{file} has a write-ahead log beside it, so it is a database in use and not all of "
            "it; make a backup with 'tidewire backup' and restore that"
        )
    path = check_data_dir(data_dir)
    with DataDirectoryLock(data_dir, look=no_look):
        # A log alone counts as well: SQLite would take it for the log of the restored database.
        for ending in ("", "-wal", "-journal", RECOVERED_ENDING):
            if path.with_name(path.name + ending).exists():
                raise StoreUnusable(
                    f"{data_dir} has a database already ({path.name}{ending}); restore into an "
                    f"empty directory, or move all files {path.name}* away first"
                )
        partial = path.with_name(path.name + ".restoring")
        try:
            copying.discard_database(partial)
            copying.make_private(partial)
            shutil.copyfile(file, partial)
            epoch = begin_new_life(partial, data_dir, keep_sessions=keep_sessions)
            copying.sync_file(partial)
            partial.replace(path)
            copying.sync_file(data_dir)
        except OSError as error:
            raise StoreUnusable(f"cannot restore into {data_dir}: {error.strerror}") from error
        finally:
            copying.discard_database(partial)
    return epoch


def begin_new_life(
    path: Path, data_dir: Path, *, keep_sessions: bool, what: str = "the backup"
) -> str:
    """Give an undamaged database a new epoch, move its counters ahead, and delete its sessions
    unless they are kept; returns the epoch. Leaves one file without a log. Raises StoreUnusable."""
    options = SqliteOptions()
    opened = connect(path, options, cache_kib=options.writer_cache_kib)
    with closing(opened) as database:
        _check_whole(database, what)
        if schema_version(database) == 0:
            raise StoreUnusable(f"{what} is empty; it holds no Tidewire database")
        check_complete(database, path)
        migrate(database, data_dir)
        with translate_errors():
            with transaction(database):
                database.execute(
                    "UPDATE chat_counters SET sequence_counter = min(sequence_counter + ?, ?)",
                    (RESTORE_SEQUENCE_JUMP, SEQUENCE_MAX),
                )
                if not keep_sessions:
                    database.execute("DELETE FROM sessions")
                epoch = set_epoch(database)
            # Fold the WAL in, so that the one file that is renamed holds everything.
            database.execute("PRAGMA journal_mode = DELETE")
    return epoch


def _check_whole(database: apsw.Connection, what: str) -> None:
    with translate_errors():
        rows = database.execute("PRAGMA integrity_check(1)").fetchall()
    if rows != [("ok",)]:
        raise StoreUnusable(f"{what} is damaged: {rows[0][0]}; use another one")
