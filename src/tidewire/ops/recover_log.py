"""Saves as much as possible when the write-ahead log of a store is damaged.

It builds states as copies: with the log repaired, if possible; with all its readable pages, also
with the rest as copied before; with its complete transactions; with those before the damage; and
without the log, because a checkpoint may have copied pages from behind the damage into the
database. It keeps the fullest state in which SQLite and `verify` find nothing wrong but `CONTAINED`
damage. That state begins a new life, as after a restore: clients may know what is missing now.
"""

import shutil
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import apsw

from tidewire.domain.errors import StoreUnusable
from tidewire.engines.sqlite.backup import begin_new_life
from tidewire.engines.sqlite.copying import discard_database
from tidewire.engines.sqlite.inspect import SqliteInspector
from tidewire.engines.sqlite.lockfile import DataDirectoryLock
from tidewire.engines.sqlite.log_look import damage_sentence, no_look
from tidewire.engines.sqlite.log_recovery import (
    Candidate,
    DamagedStore,
    highest_sequences,
    keep,
    put_in_place,
    recovered_in,
)
from tidewire.ops.verify import Report, verify

CONTAINED: Final = ("message_checksum_holds",)
"""Damage that a store may keep: the messages are marked, and stay where they are."""


@dataclass(frozen=True, slots=True)
class Tried:
    """A state that was tried: how much it holds, or why it cannot be used."""

    name: str
    transactions: int
    """How many transactions of the log it has."""
    messages: int
    damaged: int
    """How many of these messages fail their checksum: they are handed out with a mark."""
    fault: str | None

    @property
    def readable(self) -> int:
        return self.messages - self.damaged


@dataclass(frozen=True, slots=True)
class Missing:
    """Sequences of a chat that were given out, and whose messages are not in the kept state."""

    chat_id: str
    first: int
    last: int


@dataclass(slots=True)
class LogRecovery:
    """What was done. Without `damage` there was nothing to do, or an earlier run was finished."""

    damage: str | None = None
    is_resumed: bool = False
    """An earlier run was interrupted after its choice: only the last steps were missing."""
    tried: list[Tried] = field(default_factory=list)
    kept: Tried | None = None
    missing: list[Missing] = field(default_factory=list)
    epoch: str | None = None
    aside: Path | None = None
    """Where the damaged files are."""


Told = Callable[[str], None]


def recover_log(
    data_dir: Path,
    *,
    keep_sessions: bool = False,
    dry_run: bool = False,
    told: Told = lambda sentence: None,
) -> LogRecovery:
    """Recover a store from the damage of its log. Raises StoreUnusable if nothing can be saved.

    The store's own files are only read until a state is complete; then they are moved aside.
    """
    if not data_dir.is_dir():
        raise StoreUnusable(f"there is no directory {data_dir}")
    with DataDirectoryLock(data_dir, look=no_look):
        if recovered_in(data_dir).exists():
            recovery = LogRecovery(is_resumed=True)
        else:
            with closing(DamagedStore(data_dir)) as store:
                if not store.judgement.verdict.is_damage:
                    return LogRecovery()
                recovery = _choose(store, keep_sessions=keep_sessions, dry_run=dry_run, told=told)
        if not dry_run:
            recovery.epoch, recovery.aside = put_in_place(data_dir)
    return recovery


def _choose(store: DamagedStore, *, keep_sessions: bool, dry_run: bool, told: Told) -> LogRecovery:
    """Try every state; keep the best one under the name from which it is put in place."""
    recovery = LogRecovery(damage=damage_sentence(store.judgement))
    seen: list[dict[str, int]] = []
    built = store.path.with_name(f"{store.path.name}.recovering")
    best, best_seen = store.path.with_name(f"{store.path.name}.recovering-best"), {}
    scratch = store.data_dir / f"{store.path.name}.recovering-copies"
    try:
        scratch.mkdir(mode=0o700, exist_ok=True)
        for candidate in store.candidates():
            told(f"trying {candidate.name}")
            store.build(candidate, built)
            seen.append(highest_sequences(built))
            tried = _try(candidate, built, scratch, keep_sessions=keep_sessions)
            recovery.tried.append(tried)
            if tried.fault is None and (
                recovery.kept is None or tried.readable > recovery.kept.readable
            ):
                built.replace(best)
                recovery.kept, best_seen = tried, seen[-1]
        if recovery.kept is None:
            faults = "; ".join(f"{one.name}: {one.fault}" for one in recovery.tried)
            raise StoreUnusable(
                f"no state of {store.path} that could be built is whole ({faults}). Nothing was "
                "changed: keep a copy of the directory, and restore the last backup"
            )
        recovery.missing = missing_sequences(best_seen, seen)
        if not dry_run:
            keep(best, store.data_dir)
    except OSError as error:
        raise StoreUnusable(f"cannot recover {store.path}: {error.strerror}") from error
    finally:
        discard_database(built)
        discard_database(best)
        shutil.rmtree(scratch, ignore_errors=True)
    return recovery


def _try(candidate: Candidate, path: Path, scratch: Path, *, keep_sessions: bool) -> Tried:
    """Begin the new life of a state, and verify it. Copies that a migration makes go to `scratch`:
    the damaged files are kept anyway."""
    transactions = candidate.overlay.transactions
    messages = damaged = 0
    fault: str | None
    try:
        begin_new_life(path, scratch, keep_sessions=keep_sessions, what="this state")
        report = verify(lambda: SqliteInspector(path))
        messages, fault = report.counts.messages, _first_fault(report)
        damaged = sum(check.violations for check in report.checks if check.name in CONTAINED)
    except (StoreUnusable, apsw.Error, UnicodeDecodeError) as error:
        # The rest of the sentence is advice for an operator who has no other state to try.
        fault = " ".join(str(error).partition("; ")[0].split())
    return Tried(candidate.name, transactions, messages, damaged, fault)


def _first_fault(report: Report) -> str | None:
    for check in report.checks:
        for offender in check.offenders if check.name not in CONTAINED else ():
            place = f"{offender.chat_id}: " if offender.chat_id else ""
            return f"{check.name}: {place}{offender.found}"
    return None


def missing_sequences(kept: dict[str, int], seen: Sequence[dict[str, int]]) -> list[Missing]:
    """The sequences that other states know and the kept one does not. PURE."""
    highest: dict[str, int] = {}
    for state in seen:
        for chat_id, sequence in state.items():
            highest[chat_id] = max(sequence, highest.get(chat_id, 0))
    return [
        Missing(chat_id, kept.get(chat_id, 0) + 1, sequence)
        for chat_id, sequence in sorted(highest.items())
        if sequence > kept.get(chat_id, 0)
    ]
