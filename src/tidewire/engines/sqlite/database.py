"""Opening the database file: where it is, how its connections are set up, whether it is ours.

Everything that can be wrong with a file or a library is told here, at the start, in one sentence.
"""

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Final

import apsw

from tidewire.domain.errors import StoreUnusable
from tidewire.engines.sqlite.copying import sync_file
from tidewire.engines.sqlite.errors import translate_errors
from tidewire.engines.sqlite.lockfile import look_first
from tidewire.engines.sqlite.log_look import DATABASE_NAME as DATABASE_NAME
from tidewire.engines.sqlite.log_look import size_bytes, wal_of

APPLICATION_ID: Final = 0x54494445
"""The letters TIDE, in the file's header: `file tidewire.db` shows them."""

SQLITE_VERSION_MIN: Final = (3, 51, 3)
"""Up to 3.51.2 a WAL that is reset while another connection reads can corrupt the database."""


SYNCHRONOUS: Final = ("OFF", "NORMAL", "FULL", "EXTRA")
SYNCED: Final = ("FULL", "EXTRA")
"""With these a commit waits for the disk, so that only the last one can be torn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SqliteOptions:
    """How the engine uses the disk and the machine. An impossible value raises ValueError."""

    synchronous: str = "FULL"
    """What a commit waits for. Anything less loses acknowledged messages with the power."""
    readers: int = 3
    """Connections that read, each with a thread."""
    read_ms_max: int = 1_000
    """A read is stopped after this time, so that none pins the WAL."""
    reads_waiting_max: int = 4_096
    """Reads that may wait for a connection; one more is refused."""
    writes_waiting_max: int = 4_096
    """Writes that may wait for the writer; one more is refused."""
    commit_writes_max: int = 512
    """Writes in one transaction (an append of many messages is one write)."""
    busy_ms_max: int = 2_000
    """How long to wait for a lock that another program holds."""
    writer_cache_kib: int = 32 * 1024
    """The page cache of the connection that writes."""
    reader_cache_kib: int = 4 * 1024
    """The page cache of each connection that reads."""
    checkpoint_bytes: int = 16 * 1024 * 1024
    """The WAL is copied into the database, beside the commits, each time it has grown by this."""
    wal_bytes_max: int = 64 * 1024 * 1024
    """Past this size the WAL is restarted between two batches."""
    vfs: str | None = None
    """The name of SQLite's file system layer; tests put one there that takes the power away."""

    def __post_init__(self) -> None:
        if self.synchronous not in SYNCHRONOUS:
            raise ValueError(f"synchronous is {', '.join(SYNCHRONOUS[:-1])} or {SYNCHRONOUS[-1]}")
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, int) and value < 1:
                raise ValueError(f"{field.name} is at least 1")
        if self.wal_bytes_max < self.checkpoint_bytes:
            raise ValueError("wal_bytes_max is at least checkpoint_bytes")


def check_library(version: str) -> None:
    """Refuse a SQLite library with the WAL-reset bug."""
    numbers = tuple(int(part) for part in version.split("."))
    if numbers < SQLITE_VERSION_MIN:
        wanted = ".".join(map(str, SQLITE_VERSION_MIN))
        raise StoreUnusable(
            f"the SQLite library is {version}, but {wanted} or newer is needed: older ones can "
            "damage the database when the write-ahead log is reset; install the apsw package "
            "from the lock file, which brings its own SQLite"
        )


def connect(path: Path, options: SqliteOptions, *, cache_kib: int) -> apsw.Connection:
    """A connection to an existing or new file, set up the way all of ours are.

    Raises LogDamaged before SQLite has touched the file if its log lacks what was stored for good.
    """
    look_first(path)
    flags = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE | apsw.SQLITE_OPEN_NOMUTEX
    with translate_errors():
        database = apsw.Connection(str(path), flags=flags, vfs=options.vfs)
        try:
            database.set_busy_timeout(options.busy_ms_max)
            # The WAL is checkpointed by a thread of its own, never inside a commit.
            database.execute("PRAGMA wal_autocheckpoint = 0")
            database.execute(f"PRAGMA synchronous = {options.synchronous}")
            database.execute(f"PRAGMA cache_size = -{cache_kib}")
            database.execute(f"PRAGMA journal_size_limit = {options.wal_bytes_max}")
            database.execute("PRAGMA temp_store = memory")
            database.execute("PRAGMA trusted_schema = OFF")
        except BaseException:
            database.close()
            raise
    return database


def connect_reader(path: Path, options: SqliteOptions) -> apsw.Connection:
    """A connection that can only read."""
    database = connect(path, options, cache_kib=options.reader_cache_kib)
    database.execute("PRAGMA query_only = ON")
    return database


def single(database: apsw.Connection, query: str) -> Any:
    """The one value of a query that has one row and one column."""
    row = database.execute(query).fetchone()
    assert row is not None
    return row[0]


def schema_version(database: apsw.Connection) -> int:
    """The number of the last migration in the file; 0 for a new file. Refuses a foreign file."""
    with translate_errors():
        version = single(database, "PRAGMA user_version")
        application_id = single(database, "PRAGMA application_id")
        objects = single(database, "SELECT count(*) FROM sqlite_schema")
    if application_id != APPLICATION_ID and (application_id or version or objects):
        raise StoreUnusable(
            f"{database.filename} is an SQLite database of some other program; "
            "name another data directory"
        )
    return int(version)


def check_not_emptied(path: Path) -> None:
    """Refuse a log whose database is gone: SQLite would make a new one and delete the log."""
    wal = wal_of(path)
    if size_bytes(path) == 0 and size_bytes(wal) > 0:
        raise StoreUnusable(
            f"{path} is missing or empty, but its write-ahead log {wal.name} is there: put the "
            "database back beside it, or move the log away and restore a backup"
        )


def check_complete(database: apsw.Connection, path: Path) -> None:
    """Refuse a file that ends inside a page: SQLite would take the rest of the page for zeros."""
    with translate_errors():
        page_bytes = single(database, "PRAGMA page_size")
    # After a crash the end may be missing, but then it is in the log.
    has_log = any(size_bytes(path.with_name(path.name + end)) > 0 for end in ("-wal", "-journal"))
    if not has_log and size_bytes(path) % page_bytes:
        raise StoreUnusable(
            f"{path} is damaged: its end is missing; keep a copy of it, and restore a backup"
        )


def check_writable(database: apsw.Connection) -> None:
    """Refuse a file that may only be read: SQLite itself would say so at the first write only."""
    if database.readonly("main"):
        raise StoreUnusable(
            f"{database.filename} is read-only; give this user write permission for it"
        )


def check_data_dir(data_dir: Path) -> Path:
    """Make the data directory if it is not there; the path of its database file."""
    missing = [path for path in (data_dir, *data_dir.parents) if not path.exists()]
    try:
        data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        # SQLite syncs the names in this directory; that it is there itself is for us to sync.
        for path in missing:
            sync_file(path.parent)
    except FileExistsError as error:
        raise StoreUnusable(f"{data_dir} is not a directory; name another one") from error
    except OSError as error:
        raise StoreUnusable(
            f"cannot make the data directory {data_dir}: {error.strerror}; "
            "make it yourself, or name another one"
        ) from error
    return data_dir / DATABASE_NAME
