"""Rewrites the database without deleted data and without free pages.

A deletion overwrites the text in its page (`PRAGMA secure_delete`). Copies of the text remain in
the write-ahead log until that is restarted, and, where a page was split before, perhaps in an
unused part of another page. The file that is written here has neither.

The server is stopped meanwhile. SQLite writes a complete new file beside the old one; it gets the
old one's name when it is complete and on the disk. So at whatever point this ends, there is one
database, and it is complete.
"""

import shutil
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final

import apsw

from tidewire.domain.errors import StoreUnusable
from tidewire.engines.sqlite.copying import (
    Progress,
    discard_database,
    make_private,
    no_progress,
    sync_file,
)
from tidewire.engines.sqlite.database import (
    DATABASE_NAME,
    SqliteOptions,
    check_complete,
    check_library,
    connect,
    single,
)
from tidewire.engines.sqlite.errors import translate_errors
from tidewire.engines.sqlite.inspect import check_is_there, check_schema, open_for_reading
from tidewire.engines.sqlite.lockfile import DataDirectoryLock

COMPACTING_ENDING: Final = ".compacting"

_PROGRESS_STEPS: Final = 20_000
"""Steps of SQLite's virtual machine between two progress reports: some milliseconds."""


def compact(data_dir: Path, progress: Progress = no_progress) -> tuple[int, int]:
    """Rewrite the database of a stopped server; returns its bytes before and after. Raises
    StoreUnusable with the reason; then the database is as it was."""
    check_library(apsw.sqlite_lib_version())
    path = data_dir / DATABASE_NAME
    check_is_there(path)
    with DataDirectoryLock(data_dir):
        before = path.stat().st_size
        partial = path.with_name(path.name + COMPACTING_ENDING)
        try:
            with _alone(path) as database:
                discard_database(partial)
                _check_room(data_dir, database)
                make_private(partial)
                _write(database, partial, progress)
                _check_copy(database, partial)
                sync_file(partial)
                partial.replace(path)
                sync_file(data_dir)
        except OSError as error:
            raise StoreUnusable(f"cannot write {partial}: {error.strerror}") from error
        finally:
            discard_database(partial)
    return before, path.stat().st_size


@contextmanager
def _alone(path: Path) -> Iterator[apsw.Connection]:
    """A connection to the database, with its log folded in and deleted. No other program can read
    it until the end: one that had it open would go on with the old file and the new file's log."""
    options = SqliteOptions()
    with closing(connect(path, options, cache_kib=options.writer_cache_kib)) as database:
        check_complete(database, path)
        check_schema(database, path)
        try:
            with translate_errors():
                # This statement, too, fails while another program has the database open.
                database.execute("PRAGMA journal_mode = DELETE")
                database.execute("PRAGMA locking_mode = EXCLUSIVE")
                database.execute("BEGIN EXCLUSIVE")
                database.execute("COMMIT")
        except Exception as error:
            if isinstance(error.__cause__, apsw.BusyError | apsw.LockedError):
                raise StoreUnusable(
                    f"another program reads {path}, perhaps a backup or a verify; wait until it "
                    "has ended, then run this again"
                ) from error
            raise
        yield database


def _check_room(data_dir: Path, database: apsw.Connection) -> None:
    pages = single(database, "PRAGMA page_count") - single(database, "PRAGMA freelist_count")
    needed, free = pages * _page_bytes(database), shutil.disk_usage(data_dir).free
    if free < needed:
        raise StoreUnusable(
            f"there is not enough room beside the database: {needed / 1e6:,.1f} MB are needed for "
            f"a while, {free / 1e6:,.1f} MB are free in {data_dir}"
        )


def _write(database: apsw.Connection, partial: Path, progress: Progress) -> None:
    page_bytes = _page_bytes(database)
    total = single(database, "PRAGMA page_count")

    def look() -> bool:
        progress(min(partial.stat().st_size // page_bytes, total), total)
        return False

    database.set_progress_handler(look, _PROGRESS_STEPS)
    try:
        with translate_errors():
            database.execute("VACUUM INTO ?", (str(partial),))
    finally:
        database.set_progress_handler(None)
    progress(total, total)


def _check_copy(database: apsw.Connection, partial: Path) -> None:
    """Check that the new file has every row. Otherwise the old file stays."""
    with closing(open_for_reading(partial)) as copy, translate_errors():
        found, wanted = _counts(copy), _counts(database)
    if found != wanted:
        raise StoreUnusable(
            f"the compacted copy of {database.filename} is not complete, and was discarded; run "
            "'tidewire verify' to see what is wrong with the database"
        )


def _counts(database: apsw.Connection) -> dict[str, Any]:
    names: list[Any] = database.execute(
        "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
    ).fetchall()
    counts = {
        name: single(database, f"SELECT count(*) FROM {name}")  # noqa: S608 - our own tables
        for (name,) in names
    }
    return counts | {
        "user_version": single(database, "PRAGMA user_version"),
        "application_id": single(database, "PRAGMA application_id"),
    }


def _page_bytes(database: apsw.Connection) -> int:
    return int(single(database, "PRAGMA page_size"))
