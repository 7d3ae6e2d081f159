"""Reads a database file as a crash has left it, without the engine and without changing it."""

from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import apsw
import msgspec

from tests.support.history import FinalState
from tidewire.domain.delivery import Positions
from tidewire.domain.ids import ChatId, UserId
from tidewire.domain.messages import Message
from tidewire.domain.rows import NOT_PLAIN, entry_of_row
from tidewire.engines.sqlite.database import DATABASE_NAME
from tidewire.engines.sqlite.inspect import SqliteInspector
from tidewire.ops.verify import verify

_MESSAGES: Final = """
SELECT chat_id, sequence, prev_sequence, message_id, sender_id, client_message_id,
    content, content_type, created_at, target, extra, deleted_by
FROM messages NOT INDEXED ORDER BY position
"""
_POSITIONS: Final = """
SELECT user_id, chat_id, last_acked_sequence, last_read_sequence FROM delivery_state NOT INDEXED
"""


class Snapshot(msgspec.Struct, frozen=True):
    """What is in a database file."""

    messages: list[Message]
    """In the order of commits."""
    counters: dict[ChatId, int]
    positions: dict[tuple[str, str], Positions]
    """By user and chat."""
    members: set[tuple[str, str]]
    """User and chat."""

    def final_state(self) -> FinalState:
        by_chat: defaultdict[ChatId, list[Message]] = defaultdict(list)
        for message in self.messages:
            by_chat[message.chat_id].append(message)
        positions = {
            (UserId(user_id), ChatId(chat_id)): found
            for (user_id, chat_id), found in self.positions.items()
        }
        return FinalState(messages=by_chat, counters=self.counters, positions=positions)


def read_snapshot(directory: Path) -> Snapshot:
    with _reading(directory) as database:
        messages = [_entry(row) for row in _whole(database, _MESSAGES, columns=NOT_PLAIN)]
        counters = dict(_whole(database, "SELECT chat_id, sequence_counter FROM chat_counters"))
        positions = {
            (user_id, chat_id): Positions(delivered, read)
            for user_id, chat_id, delivered, read in _whole(database, _POSITIONS)
        }
        members = set(_whole(database, "SELECT user_id, chat_id FROM chat_memberships NOT INDEXED"))
    return Snapshot(messages, counters, positions, members)


def _entry(row: Any) -> Message:
    try:
        return entry_of_row(row)
    except ValueError as error:
        raise apsw.CorruptError(f"a row is torn: {row[:3]}") from error


def _whole(database: apsw.Connection, query: str, *, columns: int | None = None) -> Iterator[Any]:
    """Rows of which the first `columns`, or all, are NOT NULL. SQLite reads a torn page as it is: a
    missing part of a row comes out as NULL, and counts here as damage, as if SQLite had noticed it.
    """
    for row in database.execute(query):
        if None in row[:columns]:
            raise apsw.CorruptError(f"a row is torn: {row[:3]}")
        yield row


def page_faults(directory: Path) -> list[str]:
    """What SQLite finds when it checks every page of the file."""
    with _reading(directory) as database:
        rows = database.execute("PRAGMA integrity_check(10)").fetchall()
    return [] if rows == [("ok",)] else [f"damaged: {row[0]}" for row in rows]


def state_faults(directory: Path) -> list[str]:
    """What `tidewire verify` reports about the file."""
    report = verify(lambda: SqliteInspector(directory / DATABASE_NAME))
    return [
        f"{check.name}: {offender.chat_id}: {offender.found}"
        for check in report.checks
        for offender in check.offenders
    ]


@contextmanager
def _reading(directory: Path) -> Iterator[apsw.Connection]:
    """A connection that cannot write, not even checkpoint the write-ahead log."""
    flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_NOMUTEX
    database = apsw.Connection(str(directory / DATABASE_NAME), flags=flags)
    try:
        yield database
    finally:
        database.close()
