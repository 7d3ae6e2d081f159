"""Recovers a database whose log is damaged: finds states to choose from, and builds copies.

The damaged files are only read here, until `put_in_place` moves them aside as they are. Which state
is kept is decided in `ops/recover_log.py`.
"""

import os
import shutil
from collections import defaultdict
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import apsw

from tidewire.domain.errors import StoreUnusable
from tidewire.engines.sqlite import log_look, wal
from tidewire.engines.sqlite.copying import discard_database, make_private, sync_file
from tidewire.engines.sqlite.database import DATABASE_NAME
from tidewire.engines.sqlite.inspect import open_for_reading
from tidewire.engines.sqlite.migrate import read_epoch
from tidewire.engines.sqlite.wal_mend import mended
from tidewire.ports.inspection import Damaged

_HIGHEST: Final = (
    "SELECT chat_id, sequence_counter FROM chat_counters",
    "SELECT chat_id, max(sequence) FROM messages GROUP BY chat_id",
    "SELECT chat_id, max(last_acked_sequence) FROM delivery_state GROUP BY chat_id",
    "SELECT chat_id, max(joined_sequence) FROM chat_memberships GROUP BY chat_id",
)
"""Where a sequence that was given out leaves a trace; each table has pages of its own."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A state that may be whole: the database file with the pages of some frames laid over it."""

    name: str
    overlay: wal.Overlay
    log: wal.Read
    """The log to take the frames from: as it is, or with some words repaired."""


class DamagedStore:
    """The files of a data directory whose log is damaged. The caller holds the lock."""

    def __init__(self, data_dir: Path) -> None:
        self.data_dir = data_dir
        self.path = data_dir / DATABASE_NAME
        if log_look.size_bytes(self.path) == 0:
            raise StoreUnusable(f"there is no database in {data_dir}; nothing to recover")
        self.judgement = log_look.judge_log(self.path)
        self._files: list[int] = []
        self._header: wal.LogHeader | None = None

    def close(self) -> None:
        for file in self._files:
            os.close(file)
        self._files.clear()

    def candidates(self) -> list[Candidate]:
        """The possible states, the most complete first, without duplicates."""
        log, database = self._reader(log_look.wal_of(self.path)), self._reader(self.path)
        self._header = wal.read_header(log(0, wal.HEADER_BYTES)) or wal.guess_header(log, database)
        header = self._header
        assert header is not None, "a log without a frame is not damaged"
        patched, count = mended(log, header, self.judgement.frames)
        found = wal.overlays(wal.walk(log, header))
        candidates = [
            Candidate("everything that is legible", found.fitting, log),
            Candidate("what is legible, the rest as it was copied before", found.copied, log),
            Candidate("all whole transactions", found.whole, log),
            Candidate("the transactions before the damage", found.prefix, log),
            Candidate("the database without its log", wal.Overlay({}, 0, 0), log),
        ]
        if count:
            name = f"the log with {count} damaged frame{'s' if count > 1 else ''} put right"
            fitting = wal.overlays(wal.walk(patched, header)).fitting
            candidates.insert(0, Candidate(name, fitting, patched))
        return [
            one
            for place, one in enumerate(candidates)
            if one.overlay not in [earlier.overlay for earlier in candidates[:place]]
        ]

    def build(self, candidate: Candidate, target: Path) -> None:
        """Write a state into a new file."""
        discard_database(target)
        make_private(target)
        shutil.copyfile(self.path, target)
        overlay, header = candidate.overlay, self._header
        assert header is not None
        with target.open("r+b") as copy:
            for page, frame in overlay.pages.items():
                copy.seek((page - 1) * header.page_bytes)
                copy.write(wal.page_of(candidate.log, header, frame))
            if overlay.size_pages:
                copy.truncate(overlay.size_pages * header.page_bytes)

    def _reader(self, path: Path) -> wal.Read:
        self._files.append(os.open(path, os.O_RDONLY | os.O_CLOEXEC))
        return log_look.file_reader(self._files[-1])


def highest_sequences(path: Path) -> dict[str, int]:
    """The highest sequence that a state knows of in each chat, as far as it can be read."""
    highest: defaultdict[str, int] = defaultdict(int)
    try:
        opened = open_for_reading(path)
    except (Damaged, StoreUnusable):
        return {}
    with closing(opened) as database:
        for query in _HIGHEST:
            _note_highest(database, query, highest)
    return dict(highest)


def _note_highest(database: apsw.Connection, query: str, highest: dict[str, int]) -> None:
    try:
        for chat_id, sequence in database.execute(query):
            if isinstance(chat_id, str) and isinstance(sequence, int):
                highest[chat_id] = max(highest[chat_id], sequence)
    except (apsw.Error, UnicodeDecodeError):
        # What could be read up to here counts.
        return


def keep(built: Path, data_dir: Path) -> None:
    """Rename a complete state to the name that `put_in_place` looks for."""
    sync_file(built)
    built.replace(recovered_in(data_dir))
    sync_file(data_dir)


def put_in_place(data_dir: Path) -> tuple[str, Path]:
    """Put the recovered database where the server looks for it; returns its epoch, and where the
    damaged files are.

    May be killed at any point and called again: no program opens a database here while a recovered
    one has its own name, and the last step takes that name away.
    """
    recovered = recovered_in(data_dir)
    path = data_dir / DATABASE_NAME
    with closing(open_for_reading(recovered)) as database:
        epoch = read_epoch(database)
    aside = data_dir / f"damaged-{epoch}"
    aside.mkdir(mode=0o700, exist_ok=True)
    for damaged in (log_look.wal_of(path), path):
        if damaged.exists():
            damaged.replace(aside / damaged.name)
    path.with_name(path.name + "-shm").unlink(missing_ok=True)
    sync_file(aside)
    sync_file(data_dir)
    recovered.replace(path)
    sync_file(data_dir)
    return epoch, aside


def recovered_in(data_dir: Path) -> Path:
    return data_dir / f"{DATABASE_NAME}{log_look.RECOVERED_ENDING}"
