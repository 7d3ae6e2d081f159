"""Looking at the write-ahead log before SQLite does: a log that is damaged is left as it is.

SQLite takes damage for the end of the log, and the next commit or checkpoint overwrites what lies
behind it. So each program looks first; `lockfile` makes sure that every one does.
"""

import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

from tidewire.domain.errors import StoreUnusable
from tidewire.engines.sqlite.wal import Judgement, Read, Verdict, judge

DATABASE_NAME: Final = "tidewire.db"
RECOVERED_ENDING: Final = ".recovered"
"""A database that `recover-log` has made and not yet put in its place."""

_logger: Final = logging.getLogger(__name__)

Look = Callable[[Path], None]
"""Raises StoreUnusable if SQLite must not open the database of this path."""


class LogDamaged(StoreUnusable):
    """The log lacks something that was stored for good. `reason` says what."""

    def __init__(self, path: Path, judgement: Judgement) -> None:
        self.judgement = judgement
        self.reason = damage_sentence(judgement)
        super().__init__(
            f"the write-ahead log {wal_of(path)} is damaged: {self.reason}. Nothing was changed. "
            f"'tidewire recover-log {path.parent}' saves what can be saved, on a copy, and lists "
            "what is missing; or restore the last backup"
        )


def damage_sentence(judgement: Judgement) -> str:
    """What is wrong with a damaged log, and what it would cost to start all the same."""
    lost = _counted(judgement.beyond_transactions, "transaction")
    if judgement.verdict is Verdict.HEADERLESS:
        return (
            f"its header is not what was written, so SQLite would ignore {lost} in it, and "
            f"{_counted(judgement.differing_pages, 'page')} of them did not reach the database"
        )
    return (
        f"frame {judgement.first_bad:,} of {judgement.frames:,} is not what was written, and "
        f"SQLite would drop {lost} behind it that had been stored for good"
    )


def _counted(number: int, thing: str) -> str:
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


def wal_of(path: Path) -> Path:
    return path.with_name(path.name + "-wal")


def size_bytes(path: Path) -> int:
    """0 for a file that is not there."""
    return path.stat().st_size if path.exists() else 0


def file_reader(file: int) -> Read:
    """A reader of an open file that does not depend on the file's position."""

    def read(offset: int, size: int) -> bytes:
        return os.pread(file, size, offset)

    return read


def needs_look(path: Path) -> bool:
    """Whether there is anything to look at: after an orderly end there is not."""
    return size_bytes(wal_of(path)) > 0 or path.with_name(path.name + RECOVERED_ENDING).exists()


def judge_log(path: Path) -> Judgement:
    """Judge the log of a database. No process may write it meanwhile."""
    # `check_not_emptied` refuses a log without its database.
    if size_bytes(wal_of(path)) == 0 or size_bytes(path) == 0:
        return Judgement(Verdict.WHOLE)
    files: list[int] = []
    try:
        files += [os.open(wal_of(path), os.O_RDONLY | os.O_CLOEXEC)]
        files += [os.open(path, os.O_RDONLY | os.O_CLOEXEC)]
        return judge(*map(file_reader, files))
    except OSError as error:
        raise StoreUnusable(f"cannot read {wal_of(path)}: {error.strerror}") from error
    finally:
        for file in files:
            os.close(file)


def check_log(path: Path) -> None:
    """Refuse a database whose log is damaged, or whose recovery was interrupted."""
    recovered = path.with_name(path.name + RECOVERED_ENDING)
    if recovered.exists():
        raise StoreUnusable(
            f"a recovery of the log was interrupted ({recovered.name} is there): run "
            f"'tidewire recover-log {path.parent}' again, it goes on where it was"
        )
    judgement = judge_log(path)
    if judgement.verdict.is_damage:
        raise LogDamaged(path, judgement)


def check_unsynced_log(path: Path) -> None:
    """For a store whose commits do not wait for the disk: there a power cut leaves such a log, and
    the setting accepts the loss of its end. The damage is logged, and the server starts."""
    try:
        check_log(path)
    except LogDamaged as damage:
        _logger.warning("%s; going on without it, as synchronous is not FULL", damage)


def no_look(path: Path) -> None:
    """For a program that does not let SQLite open the log."""
