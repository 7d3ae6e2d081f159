"""Looking at an SQLite store from outside: on a connection that can only read, in short reads.

Works on a stopped store and beside a running server, which it never holds up: every chunk is a read
transaction of its own, a few milliseconds long, so the write-ahead log is never pinned.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any, Final

import apsw

from tidewire.domain.damage import message_checksum, row_checksum
from tidewire.domain.errors import StoreUnusable
from tidewire.domain.ids import ChatId
from tidewire.engines.sqlite import inspect_sql
from tidewire.engines.sqlite.database import check_library, check_not_emptied, schema_version
from tidewire.engines.sqlite.errors import DAMAGED, NONSENSE, OUR_BUGS, translate_errors
from tidewire.engines.sqlite.lockfile import look_first
from tidewire.engines.sqlite.log_look import LogDamaged, size_bytes, wal_of
from tidewire.engines.sqlite.migrate import migrations
from tidewire.engines.sqlite.stored import found_row
from tidewire.ports.inspection import (
    ChatRow,
    Damaged,
    EntryRow,
    Inspector,
    MessageRow,
    PairRow,
    PositionRow,
)

CHUNK_ROWS: Final = 5_000
CHUNK_CHATS: Final = 64
"""Few, because a chat comes with all its members."""
BUSY_MS_MAX: Final = 5_000
CACHE_KIB: Final = 16 * 1024

_FIRST: Final = itemgetter(0)
_DAMAGED: Final = itemgetter(6)
_UNBOUNDED: Final = (1 << 63) - 1


class SqliteInspector:
    """Reads a database file. `chunk_rows` is for tests, which want many chunks of few rows."""

    def __init__(self, path: Path, *, chunk_rows: int = CHUNK_ROWS) -> None:
        """Raises StoreUnusable if there is no store to inspect, Damaged if it cannot be read."""
        check_library(apsw.sqlitelibversion())
        check_is_there(path)
        self._chunk_rows = chunk_rows
        self._messages_ahead: dict[str, list[MessageRow]] = {}
        self._keys_ahead: dict[str, list[Any]] = {}
        try:
            self._database = open_for_reading(path)
        except LogDamaged as damage:
            raise Damaged(f"the write-ahead log {wal_of(path).name}", damage.reason) from damage
        try:
            with _reading(f"the head of {path.name}"):
                check_schema(self._database, path)
                (self._epoch,) = self._row("SELECT value FROM store_meta WHERE key = 'epoch'", ())
            self._newest = self._read_newest()
        except BaseException:
            self._database.close()
            raise

    @property
    def epoch(self) -> str:
        return str(self._epoch)

    def messages_estimate(self) -> int:
        return 0 if self._newest == _UNBOUNDED else self._newest

    def chats(self) -> Iterator[ChatRow]:
        after = ""
        while True:
            with _reading(f"chats after {after}" if after else "chats"):
                page = self._chat_page(after)
            if not page:
                return
            self._read_ahead(after, page)
            yield from page
            _check_order("chats", after, page[-1].chat_id)
            after = page[-1].chat_id

    def messages(self, chat: ChatRow) -> Iterator[Sequence[MessageRow]]:
        ahead = self._messages_ahead.pop(chat.chat_id, None)
        if ahead is not None:
            yield ahead
            return
        bounds = {"chat": chat.chat_id, "newest": self._newest, "count": self._chunk_rows}
        after, after_position = -1, -1
        while True:
            bounds |= {"after": after, "after_position": after_position}
            place = f"messages of {chat.chat_id} above sequence {max(after, 0)}"
            with _reading(place):
                rows = self._message_rows(chat.chat_id, bounds)
            if rows:
                yield rows
            if len(rows) < self._chunk_rows:
                return
            last = rows[-1]
            _check_order(place, (after, after_position), (last[0], last[2]))
            after, after_position = last[0], last[2]  # type: ignore[assignment]

    def keys(self, chat: ChatRow) -> Iterator[Sequence[EntryRow]]:
        ahead = self._keys_ahead.pop(chat.chat_id, None)
        if ahead is not None:
            return iter((ahead,))
        place = f"idempotency keys of {chat.chat_id}"
        return self._entries(place, inspect_sql.KEYS, {"chat": chat.chat_id})

    def message_ids(self) -> Iterator[Sequence[EntryRow]]:
        return self._entries("the index of message ids", inspect_sql.IDS, {})

    def positions(self) -> Iterator[Sequence[PositionRow]]:
        bounds = {"user": "", "chat": "", "count": self._chunk_rows}
        while True:
            with _reading(
                f"positions after those of {bounds['user']}" if bounds["user"] else "positions"
            ):
                rows = self._database.execute(inspect_sql.POSITIONS, bounds).fetchall()
            if rows:
                yield list(map(PositionRow._make, rows))
            if len(rows) < self._chunk_rows:
                return
            last = rows[-1][:2]
            _check_order("positions", (bounds["user"], bounds["chat"]), last)
            bounds["user"], bounds["chat"] = last

    def direct_pairs(self) -> Iterator[Sequence[PairRow]]:
        after = ""
        while True:
            with _reading(f"the index of direct chats{' after ' + after if after else ''}"):
                rows: list[Any] = self._database.execute(
                    inspect_sql.PAIRS, {"after": after, "count": self._chunk_rows}
                ).fetchall()
            if rows:
                yield rows
            if len(rows) < self._chunk_rows:
                return
            _check_order("the index of direct chats", after, rows[-1][0])
            after = rows[-1][0]

    def close(self) -> None:
        self._database.close()

    def _entries(
        self, place: str, sql: str, bindings: dict[str, object]
    ) -> Iterator[Sequence[EntryRow]]:
        bounds = bindings | {"newest": self._newest, "count": self._chunk_rows}
        after, after_position = "", -1
        while True:
            bounds |= {"after": after, "after_position": after_position}
            with _reading(f"{place} after {after}" if after else place):
                rows: list[Any] = self._database.execute(sql, bounds).fetchall()
            if rows:
                yield rows
            if len(rows) < self._chunk_rows:
                return
            _check_order(place, (after, after_position), rows[-1])
            after, after_position = rows[-1]

    def _message_rows(self, chat_id: ChatId, bounds: dict[str, Any]) -> list[MessageRow]:
        """One chunk. If a row in it is not what was stored, all are read the careful way."""
        database = self._database
        with suppress(UnicodeDecodeError):
            rows: list[Any] = database.execute(inspect_sql.MESSAGES, bounds).fetchall()
            found = [_message_row(chat_id, row) for row in rows]
            if not any(map(_DAMAGED, found)):
                return found
        rows = database.execute(inspect_sql.MESSAGES_RAW, bounds).fetchall()
        return [_raw_message_row(chat_id, row) for row in rows]

    def _chat_page(self, after: str) -> list[ChatRow]:
        """Some chats with everything that can change about them: one read transaction."""
        database = self._database
        members: defaultdict[str, list[Any]] = defaultdict(list)
        with database:
            bounds = {"after": after, "count": min(CHUNK_CHATS, self._chunk_rows)}
            chat_ids = [row[0] for row in database.execute(inspect_sql.CHAT_IDS, bounds).fetchall()]
            if not chat_ids:
                return []
            rows = [self._row(inspect_sql.CHAT, (chat_id,)) for chat_id in chat_ids]
            borders = {"after": after, "last": chat_ids[-1]}
            member_rows: list[Any] = database.execute(inspect_sql.MEMBERS, borders).fetchall()
        for chat_id, *member in member_rows:
            members[chat_id].append(tuple(member))
        return [
            ChatRow(
                chat_id=ChatId(chat_id),
                chat_type=chat_type,
                member_count=member_count,
                members=members[chat_id],
                counter=counter,
                head=head,
                pair_key=pair_key,
                floor_delivered=floor_delivered,
                floor_read=floor_read,
                marked=_ids(marked),
                blocked=_ids(blocked),
                is_closed=bool(is_closed),
                membership_version=version,
                block_changes=block_changes,
                refusing=_ids(refusing),
            )
            for (
                chat_id,
                chat_type,
                member_count,
                counter,
                head,
                pair_key,
                floor_delivered,
                floor_read,
                marked,
                blocked,
                is_closed,
                version,
                block_changes,
                refusing,
            ) in rows
        ]

    def _read_ahead(self, after: str, page: Sequence[ChatRow]) -> None:
        """Messages and keys of a whole page in two reads: what a store of many small chats needs.

        Only if they are about a chunk; chats with more are read one by one.
        """
        self._messages_ahead = {}
        self._keys_ahead = {}
        bounds = {
            "after": after,
            "last": page[-1].chat_id,
            "newest": self._newest,
            "count": self._chunk_rows + 1,
        }
        try:
            (count,) = self._row(inspect_sql.COUNT_AHEAD, bounds)
            if count > self._chunk_rows:
                return
            messages = self._database.execute(inspect_sql.MESSAGES_AHEAD, bounds).fetchall()
            keys = self._database.execute(inspect_sql.KEYS_AHEAD, bounds).fetchall()
        except (*DAMAGED, *OUR_BUGS, apsw.IOError, UnicodeDecodeError):
            return  # Chat by chat the damage will be met again, and its place be known.
        for chat_id, rows in groupby(messages, _FIRST):
            found = [_message_row(chat_id, row[1:]) for row in rows]
            if not any(map(_DAMAGED, found)):
                self._messages_ahead[chat_id] = found
        for chat_id, rows in groupby(keys, _FIRST):
            self._keys_ahead[chat_id] = [row[1:] for row in rows]

    def _read_newest(self) -> int:
        """The position of the last message. What comes later is not looked at: the inspection would
        chase a busy chat for ever."""
        try:
            with _reading("the last message"):
                (newest,) = self._row("SELECT coalesce(max(position), 0) FROM messages", ())
                return int(newest)
        except Damaged:
            # The damage will be met again where it can be reported. Nothing grows meanwhile: a
            # server that comes across it ends.
            return _UNBOUNDED

    def _row(self, sql: str, bindings: Any) -> Any:
        row = self._database.execute(sql, bindings).fetchone()
        assert row is not None, sql
        return row


def check_is_there(path: Path) -> None:
    check_not_emptied(path)
    if not path.is_file():
        raise StoreUnusable(f"there is no database {path}; name a data directory that has one")


def _message_row(chat_id: ChatId, row: Any) -> MessageRow:
    position, sequence, prev, message_id, sender_id, key, content, content_type, *ends = row
    created_at, checksum = ends
    is_damaged = type(content) is not str or checksum != message_checksum(
        chat_id, sequence, prev, message_id, sender_id, key, content, content_type, created_at
    )
    return sequence, prev, position, message_id, key, position, is_damaged


def _raw_message_row(chat_id: ChatId, row: Any) -> MessageRow:
    found = found_row(row[0], None, row[1:])
    is_damaged = found.checksum is None or row_checksum(chat_id, found) != found.checksum
    sequence, prev, message_id, _, key = row[1:6]
    ids = [(one or b"").decode(errors="replace") for one in (message_id, key)]
    return sequence or 0, prev or 0, row[0], *ids, row[0], is_damaged


def _check_order(place: str, before: Any, after: Any) -> None:
    """Each chunk begins where the one before ended: if that is no step ahead, there is no end."""
    try:
        is_ahead = before < after
    except TypeError:
        is_ahead = False
    if not is_ahead:
        raise Damaged(place, "the rows are not in order")


def _ids(joined: str | None) -> list[str]:
    return sorted(joined.split(",")) if joined else []


def check_schema(database: apsw.Connection, path: Path) -> None:
    """Refuse a store that this program cannot read as it is; nothing is migrated on the way."""
    version, known = schema_version(database), len(migrations())
    if version == 0:
        raise StoreUnusable(f"{path} is empty: no server has ever used it")
    if version > known:
        raise StoreUnusable(
            f"{path} has schema {version}, this program knows {known}: it was written by a "
            "newer Tidewire; use that one"
        )
    if version < known:
        raise StoreUnusable(
            f"{path} has schema {version}, this program expects {known}: start the server "
            "once to bring it up to date, or use the Tidewire that wrote it"
        )


def open_for_reading(path: Path) -> apsw.Connection:
    """A connection that can only read.

    Beside a WAL even a reader writes into the shared memory file. Where the directory does not
    allow that, and no WAL is left to be read, the file is opened as one that nobody changes.
    Raises LogDamaged before SQLite has touched the file if its log lacks what was stored for good.
    """
    look_first(path)
    flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_NOMUTEX
    uri = path.absolute().as_uri() + "?immutable=1"
    with _reading(f"the head of {path.name}"):
        try:
            database = _set_up(apsw.Connection(str(path), flags=flags))
        except (apsw.ReadOnlyError, apsw.CantOpenError) as error:
            if size_bytes(wal_of(path)) > 0:
                raise StoreUnusable(
                    f"{path} has a write-ahead log and its directory is read-only; copy "
                    "the directory to a place where this user may write, and verify the copy"
                ) from error
            database = _set_up(apsw.Connection(uri, flags=flags | apsw.SQLITE_OPEN_URI))
    return database


def _set_up(database: apsw.Connection) -> apsw.Connection:
    try:
        database.set_busy_timeout(BUSY_MS_MAX)
        database.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
        database.execute("PRAGMA trusted_schema = OFF")
        # The first look at the file: from here on it can be read.
        database.execute("PRAGMA user_version").fetchall()
    except BaseException:
        database.close()
        raise
    return database


@contextmanager
def _reading(place: str) -> Iterator[None]:
    """Tell damage from everything else that can go wrong, and say where it is.

    A statement that fails means that a table or an index is not there, or not as it was made: the
    program has created them all, and `check_schema` has found the version right.
    """
    try:
        with translate_errors():
            try:
                yield
            except (*DAMAGED, *OUR_BUGS, *NONSENSE, apsw.IOError) as error:
                raise Damaged(place, str(error)) from error
    except StoreUnusable as error:
        # `schema_version` has translated the damage already.
        if isinstance(error.__cause__, DAMAGED):
            raise Damaged(place, str(error.__cause__)) from error
        raise


_CONFORMS: type[Inspector] = SqliteInspector
