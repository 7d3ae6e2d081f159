"""Putting a chat's missing counter row back, in one transaction, on a store that nobody else uses.

What to put is not decided here; see `ops/recover.py`.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Final

import apsw

from tidewire.domain.ids import ChatId
from tidewire.engines.sqlite.database import SqliteOptions, check_library, connect
from tidewire.engines.sqlite.errors import translate_errors
from tidewire.engines.sqlite.inspect import check_is_there, check_schema, open_for_reading
from tidewire.engines.sqlite.lockfile import DataDirectoryLock
from tidewire.ports.inspection import CounterEvidence, CounterRepair, Damaged, NewCounter

# The rows of those who left have no index by chat: this looks at all positions of the store, once.
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
VALUES (:chat, :counter, :now, :now, :now, :from_sequence)
ON CONFLICT DO NOTHING
"""


class SqliteCounterRepair:
    """Satisfies `ports.inspection.CounterRepair` for the database of a data directory."""

    def __init__(self, path: Path) -> None:
        """The path is that of the database file."""
        check_library(apsw.sqlitelibversion())
        check_is_there(path)
        self._path = path

    def evidence(self, chat_id: ChatId) -> CounterEvidence:
        try:
            database = open_for_reading(self._path)
        except Damaged as damage:
            raise damage.as_unusable() from damage
        try:
            check_schema(database, self._path)
            with translate_errors():
                return _read_evidence(database, chat_id)
        finally:
            database.close()

    def repair_counter(
        self, chat_id: ChatId, decide: Callable[[CounterEvidence], NewCounter | None]
    ) -> CounterEvidence:
        with DataDirectoryLock(self._path.parent):
            options = SqliteOptions()
            database = connect(self._path, options, cache_kib=options.reader_cache_kib)
            try:
                check_schema(database, self._path)
                with translate_errors():
                    return _repair(database, chat_id, decide)
            finally:
                database.close()


def _repair(
    database: apsw.Connection,
    chat_id: ChatId,
    decide: Callable[[CounterEvidence], NewCounter | None],
) -> CounterEvidence:
    database.execute("BEGIN IMMEDIATE")
    try:
        evidence = repair_counter(database, chat_id, decide)
        database.execute("COMMIT")
    except BaseException:
        if database.in_transaction:
            database.execute("ROLLBACK")
        raise
    return evidence


def repair_counter(
    database: apsw.Connection,
    chat_id: ChatId,
    decide: Callable[[CounterEvidence], NewCounter | None],
) -> CounterEvidence:
    """Inside a transaction: read the evidence, and put what `decide` says."""
    evidence = _read_evidence(database, chat_id)
    new = decide(evidence)
    if new is not None:
        bindings = {
            "chat": chat_id,
            "counter": new.sequence_counter,
            "now": new.now_ms,
            "from_sequence": new.recovered_from_sequence,
        }
        database.execute(_PUT, bindings)
        assert database.changes() == 1, "the counter was seen to be missing"
    return evidence


def _read_evidence(database: apsw.Connection, chat_id: ChatId) -> CounterEvidence:
    row = database.execute(_EVIDENCE, {"chat": chat_id}).fetchone()
    assert row is not None
    chat_exists, counter, highest_message, highest_position = row
    assert counter is None or isinstance(counter, int)
    assert isinstance(highest_message, int)
    assert isinstance(highest_position, int)
    return CounterEvidence(bool(chat_exists), counter, highest_message, highest_position)


_CONFORMS: type[CounterRepair] = SqliteCounterRepair
