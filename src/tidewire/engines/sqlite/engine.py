"""SQLite's entry in the registry of engines: the store of one process."""

from pathlib import Path
from typing import Final

from tidewire.domain.ids import ChatId
from tidewire.engines.sqlite.database import APPLICATION_ID, DATABASE_NAME, SqliteOptions
from tidewire.engines.sqlite.storage import SqliteStorage
from tidewire.ports.engine import Decide, Engine, Progress
from tidewire.ports.event_log import CommitListener
from tidewire.ports.inspection import CounterEvidence, CounterRepair, Inspector
from tidewire.ports.storage import Storage

_METRICS: Final = """
summary durability_commit_duration_seconds count=writer.counters.commits
  sum=writer.counters.seconds_total
  : Transactions, from their begin until they are on the disk.
gauge durability_commit_last_duration_seconds writer.counters.last_seconds : The last of them.
counter durability_commit_writes writer.counters.writes : Writes in all transactions.
gauge durability_commit_batch_size writer.counters.last_writes : Writes in the last transaction.
gauge durability_writes_waiting writer.waiting_count : Writes that wait.
gauge sqlite_memory_bytes memory_bytes : What SQLite holds, mostly page caches.
counter store_messages_damaged damage.messages_damaged
  : Stored messages that were found damaged, each counted once, up to 10000. Any is an alarm.
counter store_requests_damaged damage.requests_failed
  : Requests that failed because stored bytes could not be read. Any is an alarm.
gauge sqlite_wal_size_bytes checkpointer.wal_bytes : The write-ahead log.
counter sqlite_wal_restarts checkpointer.restarts : How often it was restarted.
counter sqlite_wal_restarts_pinned checkpointer.restarts_pinned
  : How often a reader outside kept it from being restarted.
counter sqlite_checkpoints_failed checkpointer.checkpoints_failed
  : Checkpoints that found the disk full or the database busy.
"""


async def _store(options: SqliteOptions, data_dir: Path, listener: CommitListener) -> Storage:
    return await SqliteStorage.open(data_dir, listener=listener, options=options)


async def _live_repair(store: SqliteStorage, chat_id: ChatId, decide: Decide) -> CounterEvidence:
    return await store.repair_counter(chat_id, decide)


def _file(options: SqliteOptions, place: Path) -> Path:
    """The place is a data directory, or a backup."""
    return place if place.is_file() else place / DATABASE_NAME


def _inspect(options: SqliteOptions, place: Path) -> Inspector:
    from tidewire.engines.sqlite.inspect import SqliteInspector

    return SqliteInspector(_file(options, place))


def _repair(options: SqliteOptions, data_dir: Path) -> CounterRepair:
    from tidewire.engines.sqlite.repair import SqliteCounterRepair

    return SqliteCounterRepair(data_dir / DATABASE_NAME)


def _backup(data_dir: Path, file: Path, progress: Progress) -> None:
    from tidewire.engines.sqlite.backup import backup

    backup(data_dir, file, progress)


def _restore(file: Path, data_dir: Path, keep_sessions: bool) -> str:
    from tidewire.engines.sqlite.backup import restore

    return restore(file, data_dir, keep_sessions=keep_sessions)


def _compact(data_dir: Path, progress: Progress) -> tuple[int, int]:
    from tidewire.engines.sqlite.compact import compact

    return compact(data_dir, progress)


def _copies(data_dir: Path) -> list[Path]:
    from tidewire.engines.sqlite.copying import copies_in

    return copies_in(data_dir, APPLICATION_ID)


ENGINE: Final = Engine(
    name="sqlite",
    options=SqliteOptions,
    settings="",
    is_shared=False,
    metrics={"store": _METRICS},
    store=_store,
    live_repair=_live_repair,
    inspect=_inspect,
    repair=_repair,
    named=_file,
    backup=_backup,
    restore=_restore,
    compact=_compact,
    copies=_copies,
)
