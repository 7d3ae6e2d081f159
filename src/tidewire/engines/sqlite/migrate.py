"""Migrations: numbered SQL files, forward only, all in one transaction, after a backup.

A migration that SQL alone cannot do has a function in `STEPS`, which runs its SQL file, too. The
number of the last migration is in the database's `user_version`.
"""

import re
import secrets
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

import apsw

from tidewire.domain.errors import StoreUnusable
from tidewire.engines.sqlite.checksums import add_checksums
from tidewire.engines.sqlite.columns import add_columns
from tidewire.engines.sqlite.copying import copy_database, sync_file
from tidewire.engines.sqlite.database import APPLICATION_ID, schema_version, single, transaction
from tidewire.engines.sqlite.errors import OUR_BUGS, translate_errors
from tidewire.engines.sqlite.pairs import free_pairs

BACKUPS_NAME: Final = "backups"
_NAME: Final = re.compile(r"(\d{4})_[a-z0-9_]+\.sql")


Step = Callable[[apsw.Connection, str], None]
"""Does a migration with the text of its file, inside the transaction."""

STEPS: Final[dict[str, Step]] = {
    "0004_checksums.sql": add_checksums,
    "0008_entries.sql": add_columns,
    "0010_pairs.sql": free_pairs,
    "0011_placed_ids.sql": add_columns,
}


@dataclass(frozen=True, slots=True)
class Migration:
    number: int
    name: str
    sql: str


def migrations() -> list[Migration]:
    """The migrations that this program knows, in order, without a gap."""
    found = []
    for entry in files("tidewire.engines.sqlite").joinpath("migrations").iterdir():
        match = _NAME.fullmatch(entry.name)
        if match:
            found.append(Migration(int(match[1]), entry.name, entry.read_text("utf-8")))
    found.sort(key=lambda migration: migration.number)
    assert [migration.number for migration in found] == list(range(1, len(found) + 1))
    return found


def migrate(
    database: apsw.Connection, data_dir: Path, known: list[Migration] | None = None
) -> list[Migration]:
    """Bring a database up to date; returns what was done. A file with data is copied first."""
    known = migrations() if known is None else known
    version = schema_version(database)
    if version > len(known):
        raise StoreUnusable(
            f"the database has schema {version}, this program knows {len(known)}: it was written "
            "by a newer Tidewire; start that one, or restore a backup from before the upgrade"
        )
    wanted = known[version:]
    if wanted and version > 0:
        _keep_copy(database, data_dir, version)
    _use_wal(database)
    if wanted:
        with translate_errors():
            _apply(database, wanted, version)
    return wanted


def _use_wal(database: apsw.Connection) -> None:
    """Turn the write-ahead log on: new and restored files have none. The file keeps the setting."""
    with translate_errors():
        mode = single(database, "PRAGMA journal_mode = WAL")
    if mode != "wal":
        raise StoreUnusable(
            f"SQLite cannot keep a write-ahead log beside {database.filename}; "
            "put the data directory on a local disk"
        )


def _apply(database: apsw.Connection, wanted: list[Migration], version: int) -> None:
    with transaction(database):
        for migration in wanted:
            _run(database, migration)
        if version == 0:
            database.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            set_epoch(database)
        database.execute(f"PRAGMA user_version = {version + len(wanted)}")


def _run(database: apsw.Connection, migration: Migration) -> None:
    try:
        STEPS.get(migration.name, _execute)(database, migration.sql)
    except OUR_BUGS as error:
        raise StoreUnusable(
            f"migration {migration.name} failed ({error}); the database is as it was before: "
            "go on with the version of Tidewire that wrote it, and report this"
        ) from error


def _execute(database: apsw.Connection, sql: str) -> None:
    # To the end: execute() alone would stop at the first row that a statement gives.
    database.execute(sql).fetchall()


def check_tables(database: apsw.Connection) -> None:
    """Refuse a database whose tables are not as the migrations make them: with one flipped bit in a
    definition, statements mean something else."""
    with translate_errors():
        rows: list[Any] = database.execute(_DEFINITIONS).fetchall()
    found = {name: (sql, rootpage) for name, sql, rootpage in rows}
    wrong = [name for name, sql in _definitions().items() if found.get(name, ("",))[0] != sql]
    pages = [rootpage for _, rootpage in found.values() if rootpage]
    if wrong or len(set(pages)) != len(pages):
        raise StoreUnusable(
            f"{database.filename} is damaged: the definition of "
            f"{wrong[0] if wrong else 'its tables'} is not what it was; keep a copy of the files, "
            "and restore the last backup"
        )


_DEFINITIONS: Final = """
SELECT name, sql, rootpage FROM sqlite_schema
WHERE name NOT LIKE 'sqlite_%'
"""


@lru_cache(maxsize=1)
def _definitions() -> dict[str, str]:
    """How the tables of an up-to-date database are defined."""
    with closing(apsw.Connection(":memory:")) as database:
        for migration in migrations():
            _run(database, migration)
        rows: list[Any] = database.execute(_DEFINITIONS).fetchall()
    return {name: sql for name, sql, _ in rows}


def set_epoch(database: apsw.Connection) -> str:
    """Begin a new life of the store, inside the caller's transaction."""
    epoch = secrets.token_hex(8)
    database.execute("INSERT OR REPLACE INTO store_meta VALUES ('epoch', ?)", (epoch,))
    return epoch


def read_epoch(database: apsw.Connection) -> str:
    with translate_errors():
        return str(single(database, "SELECT value FROM store_meta WHERE key = 'epoch'"))


def _keep_copy(database: apsw.Connection, data_dir: Path, version: int) -> None:
    """An online backup of the file as it was, named by the schema it has; never overwritten."""
    target = data_dir / BACKUPS_NAME / f"before-schema-{version + 1:04d}-{secrets.token_hex(4)}.db"
    try:
        target.parent.mkdir(mode=0o700, exist_ok=True)
        sync_file(data_dir)
    except OSError as error:
        raise StoreUnusable(f"cannot make {target.parent}: {error.strerror}") from error
    copy_database(database, target)
