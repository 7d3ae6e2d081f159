"""Copies a database while others use it: a consistent snapshot, complete or not at all."""

import os
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Final

import apsw

from tidewire.domain.errors import StoreUnusable
from tidewire.engines.sqlite.errors import translate_errors
from tidewire.engines.sqlite.log_look import DATABASE_NAME
from tidewire.ports.runtime import sync_file as sync_file

_STEP_PAGES: Final = 2_048

Progress = Callable[[int, int], None]
"""Called with the number of pages done, and the number of all pages."""


def no_progress(done: int, total: int) -> None:
    """Progress callback that does nothing."""


def copy_database(source: apsw.Connection, target: Path, progress: Progress = no_progress) -> None:
    """Copy a database into a new file, which appears under its name when it is complete and synced.

    A read transaction around the copy fixes the snapshot: commits go on and are not in it.
    """
    if target.exists():
        raise StoreUnusable(f"{target} is there already; name a file that is not")
    if not target.parent.is_dir():
        raise StoreUnusable(f"there is no directory {target.parent}; make it first")
    partial = target.with_name(target.name + ".partial")
    try:
        discard_database(partial)
        make_private(partial)
        with translate_errors():
            _copy_pages(source, partial, progress)
        sync_file(partial)
        partial.replace(target)
        sync_file(target.parent)
    except OSError as error:
        raise StoreUnusable(f"cannot write {target}: {error.strerror}") from error
    finally:
        discard_database(partial)


def _copy_pages(source: apsw.Connection, partial: Path, progress: Progress) -> None:
    with closing(apsw.Connection(str(partial))) as copy:
        source.execute("BEGIN")
        try:
            source.execute("SELECT count(*) FROM sqlite_schema").fetchall()
            with copy.backup("main", source, "main") as backup:
                while not backup.done:
                    backup.step(_STEP_PAGES)
                    progress(backup.page_count - backup.remaining, backup.page_count)
        finally:
            source.execute("ROLLBACK")
        # One file without a WAL beside it, which could be forgotten when the copy is moved.
        copy.execute("PRAGMA journal_mode = DELETE")


def copies_in(data_dir: Path, application_id: int) -> list[Path]:
    """Other databases of this program below a data directory: backups, files that were moved aside,
    files that an interrupted command has left. They still hold what was deleted since."""
    found = []
    for path in data_dir.rglob("*"):
        is_other = path.is_file() and path != data_dir / DATABASE_NAME
        if is_other and _is_database(path, application_id):
            found.append(path)
    return sorted(found)


def _is_database(path: Path, application_id: int) -> bool:
    with path.open("rb") as file:
        head = file.read(72)
    return head.startswith(b"SQLite format 3\0") and head[68:] == application_id.to_bytes(4)


def make_private(path: Path) -> None:
    """Make the file if there is none, readable only by its owner, because it holds messages. SQLite
    gives the same mode to the files beside it."""
    if not path.exists():
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))


def discard_database(path: Path) -> None:
    """Delete a database with the files beside it, which must not be taken for the next one's."""
    for ending in ("", "-wal", "-shm", "-journal"):
        path.with_name(path.name + ending).unlink(missing_ok=True)
