"""Opening the database file: where it is, how its connections are set up, whether it is ours.

Everything that can be wrong with a file or a library is reported here, at the start, in a sentence.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

import apsw
import msgspec

from tidewire.domain.errors import StoreUnusable
from tidewire.domain.limits import check_numbers
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
    """The name of SQLite's file system layer; tests use one that simulates a power cut."""

    def __post_init__(self) -> None:
        if self.synchronous not in SYNCHRONOUS:
            raise ValueError(f"synchronous is {', '.join(SYNCHRONOUS[:-1])} or {SYNCHRONOUS[-1]}")
        check_numbers(self)
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
            # Without this SQLite looks at the value bound to a LIMIT, and plans the statement again
            # each time: that took six sevenths of the time to read a digest.
            database.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
            # The WAL is checkpointed by a thread of its own, never inside a commit.
            database.execute("PRAGMA wal_autocheckpoint = 0")
            database.execute(f"PRAGMA synchronous = {options.synchronous}")
            database.execute(f"PRAGMA cache_size = -{cache_kib}")
            database.execute(f"PRAGMA journal_size_limit = {options.wal_bytes_max}")
            database.execute("PRAGMA temp_store = memory")
            database.execute("PRAGMA trusted_schema = OFF")
            # Erased data is overwritten, in its page and in pages that become free. An append costs
            # the same with this setting.
            database.execute("PRAGMA secure_delete = ON")
        except BaseException:
            database.close()
            raise
    return database


def connect_reader(path: Path, options: SqliteOptions) -> apsw.Connection:
    """A connection that can only read."""
    database = connect(path, options, cache_kib=options.reader_cache_kib)
    database.execute("PRAGMA query_only = ON")
    return database


# Many rows in few steps. Every step of SQLite releases the interpreter's lock, and its thread has
# to win the lock back from the event loop: under load that costs more than the row. So a statement
# takes up to 64 rows at once, and is prepared for a few sizes only.

ROWS: Final = (64, 16, 4, 1)

Statements = dict[int, str]
"""The same statement, by the number of rows that it takes."""


def for_rows(
    statement: str, *, columns: int, first: str = "", one: str | None = None
) -> Statements:
    """A statement with `{rows}` where its VALUES belong; `first` is put before each row's values.
    `one` does the same for a single row, if there is a plainer way that costs less.

    Make it OR FAIL: the caller undoes everything if a row fails, so SQLite need not copy every page
    to be able to undo the statement alone.
    """
    row = f"({', '.join([first, *'?' * columns] if first else '?' * columns)})"
    statements = {count: statement.format(rows=", ".join([row] * count)) for count in ROWS}
    return statements if one is None else {**statements, 1: one}


def execute_rows(
    database: apsw.Connection, statements: Statements, rows: Sequence[tuple[str | int | None, ...]]
) -> None:
    start = 0
    for count, statement in statements.items():
        while len(rows) - start >= count:
            some = rows[start : start + count]
            database.execute(statement, tuple(chain.from_iterable(some)))
            start += count


def for_questions(statement: str, *, columns: int) -> Statements:
    """A query with `{rows}` where the VALUES of its questions belong, each behind its number.

    Values that are bound cost less than those that SQLite has to find in JSON.
    """
    row = ", ".join("?" * columns)
    return {
        count: statement.format(rows=", ".join(f"({number}, {row})" for number in range(count)))
        for count in reversed(ROWS)
    }


def ask_rows(
    database: apsw.Connection,
    statements: Statements,
    questions: Sequence[tuple[str | int | None, ...]],
) -> list[tuple[int, tuple[Any, ...]]]:
    """The rows that are found, each with the index of its question. A statement is filled up with
    NULLs, which equal nothing."""
    found: list[tuple[int, tuple[Any, ...]]] = []
    for start in range(0, len(questions), ROWS[0]):
        some = questions[start : start + ROWS[0]]
        count = next(size for size in statements if size >= len(some))
        bound = list(chain.from_iterable(some))
        bound += (None,) * ((count - len(some)) * len(some[0]))
        found += [(start + row[0], row[1:]) for row in database.execute(statements[count], bound)]
    return found


# Structs and rows.

Struct = TypeVar("Struct", bound=msgspec.Struct)


class Shape(Generic[Struct]):
    """Maps a struct to a row of a table: each field to the column of its name, times without `_ms`.

    The constraints of the tables are in `migrations`.
    """

    def __init__(
        self, table: str, kind: type[Struct], *, without: Sequence[str] = (), **renamed: str
    ) -> None:
        """`without`: fields that no column keeps. `renamed`: columns of another name."""
        self._table = table
        self._kind = kind
        self._column_of = {
            name: renamed.get(name, name.removesuffix("_ms"))
            for name in kind.__struct_fields__
            if name not in without
        }
        self.columns = ", ".join(self._column_of.values())
        self._select = f"SELECT {self.columns} FROM {table} "  # noqa: S608 - constants

    def value(self, row: Sequence[Any], **others: Any) -> Struct:
        """The struct of a row of `columns`; `others` are the fields that are no columns. Raises
        ValidationError, which is damage, for a value that does not fit its field."""
        fields = dict(zip(self._column_of, row, strict=True))
        return msgspec.convert(fields | others, self._kind)

    def find(self, database: apsw.Connection, rest: str, *bindings: Any) -> list[Struct]:
        """The rows of a SELECT from the table with `rest` behind it."""
        rows = database.execute(self._select + rest, bindings)
        return [self.value(row) for row in rows]

    def first(self, database: apsw.Connection, rest: str, *bindings: Any) -> Struct | None:
        row = database.execute(self._select + rest, bindings).fetchone()
        return None if row is None else self.value(row)

    def insert(self, database: apsw.Connection, value: Struct, **others: Any) -> None:
        """A new row; `others` are columns that are no fields."""
        fields = {column: getattr(value, name) for name, column in self._column_of.items()}
        columns = fields | others
        database.execute(
            f"INSERT INTO {self._table} ({', '.join(columns)})"  # noqa: S608 - constants
            f" VALUES ({', '.join('?' * len(columns))})",
            tuple(columns.values()),
        )

    def update(
        self, database: apsw.Connection, value: Struct, names: Sequence[str], **others: Any
    ) -> None:
        """Write these fields, and `others`, into the row whose key is the first field."""
        key, *_ = self._column_of
        columns = {self._column_of[name]: getattr(value, name) for name in names} | others
        changes = ", ".join(f"{column} = ?" for column in columns)
        database.execute(
            f"UPDATE {self._table} SET {changes} WHERE {key} = ?",  # noqa: S608 - constants
            (*columns.values(), getattr(value, key)),
        )


@contextmanager
def transaction(database: apsw.Connection) -> Iterator[None]:
    """A write transaction: committed at the end, undone if anything is raised."""
    database.execute("BEGIN IMMEDIATE")
    try:
        yield
        database.execute("COMMIT")
    except BaseException:
        if database.in_transaction:
            database.execute("ROLLBACK")
        raise


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
    """Make the data directory if it is not there; returns the path of its database file."""
    missing = [path for path in (data_dir, *data_dir.parents) if not path.exists()]
    try:
        data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        # SQLite syncs the names in this directory; we have to sync the directory's own name.
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
