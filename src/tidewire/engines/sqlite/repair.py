"""Puts a chat's missing counter row back, in one transaction: `SqliteCounterRepair` on a store that
is not in use, `repair_counter` also in a running server.

The new counter is not decided here; see `ops/recover.py`.
"""

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Final

import apsw
import msgspec

from tidewire.domain.ids import ChatId
from tidewire.engines.sqlite.database import SqliteOptions, check_library, connect, transaction
from tidewire.engines.sqlite.errors import translate_errors
from tidewire.engines.sqlite.inspect import check_is_there, check_schema, open_for_reading
from tidewire.engines.sqlite.lockfile import DataDirectoryLock
from tidewire.ports.inspection import CounterEvidence, CounterRepair, Damaged, NewCounter

# The rows of former members have no index by chat: this reads all positions of the store, once.
_EVIDENCE: Final = """
SELECT
    EXISTS (SELECT 1 FROM chats WHERE chat_id = :chat),
    (SELECT sequence_counter FROM chat_counters WHERE chat_id = :chat),
    coalesce((SELECT max(sequence) FROM messages WHERE chat_id = :chat), 0),
    max(
        coalesce((SELECT max(joined_sequence) FROM chat_memberships WHERE chat_id = :chat), 0),
        coalesce((SELECT max(last_acked_sequence) FROM delivery_state WHERE chat_id = :chat), 0),
        coalesce((SELECT max(last_read_sequence) FROM delivery_state WHERE chat_id = :chat), 0)
    )
"""

_PUT: Final = """
INSERT INTO chat_counters (
    chat_id, sequence_counter, created_at, updated_at, recovered_at, recovered_from_sequence
)
VALUES (?1, ?2, ?3, ?3, ?3, ?4)
ON CONFLICT DO NOTHING
"""


class SqliteCounterRepair:
    """Satisfies `ports.inspection.CounterRepair` for the database of a data directory."""

    def __init__(self, path: Path) -> None:
        """The path is that of the database file."""
        check_library(apsw.sqlitelibversion())
        check_is_there(path)
        self._path = path

    def close(self) -> None:
        """Nothing stays open between two calls."""

    def evidence(self, chat_id: ChatId) -> CounterEvidence:
        try:
            opened = open_for_reading(self._path)
        except Damaged as damage:
            raise damage.as_unusable() from damage
        with closing(opened) as database:
            check_schema(database, self._path)
            with translate_errors():
                return _read_evidence(database, chat_id)

    def repair_counter(
        self, chat_id: ChatId, decide: Callable[[CounterEvidence], NewCounter | None]
    ) -> CounterEvidence:
        with DataDirectoryLock(self._path.parent):
            options = SqliteOptions()
            opened = connect(self._path, options, cache_kib=options.reader_cache_kib)
            with closing(opened) as database:
                check_schema(database, self._path)
                with translate_errors(), transaction(database):
                    return repair_counter(database, chat_id, decide)


def repair_counter(
    database: apsw.Connection,
    chat_id: ChatId,
    decide: Callable[[CounterEvidence], NewCounter | None],
) -> CounterEvidence:
    """Inside a transaction: read the evidence, and write the counter that `decide` returns."""
    evidence = _read_evidence(database, chat_id)
    new = decide(evidence)
    if new is not None:
        database.execute(
            _PUT, (chat_id, new.sequence_counter, new.now_ms, new.recovered_from_sequence)
        )
        assert database.changes() == 1, "the counter was seen to be missing"
    return evidence


def _read_evidence(database: apsw.Connection, chat_id: ChatId) -> CounterEvidence:
    row = database.execute(_EVIDENCE, {"chat": chat_id}).fetchone()
    assert row is not None
    return msgspec.convert((bool(row[0]), *row[1:]), CounterEvidence)


_CONFORMS: type[CounterRepair] = SqliteCounterRepair
