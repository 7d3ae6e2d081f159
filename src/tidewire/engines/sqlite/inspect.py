"""Looking at an SQLite store from outside: on a connection that can only read, in short reads.

Works on a stopped store and beside a running server, which it never holds up: every chunk is a read
transaction of its own, a few milliseconds long, so the write-ahead log is never pinned.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any, Final

import apsw

from tidewire.domain.damage import FoundRow, row_checksum
from tidewire.domain.errors import StoreUnusable
from tidewire.domain.ids import ChatId, place_in
from tidewire.domain.limits import SEQUENCE_MAX
from tidewire.domain.messages import Amendment, EntryKind
from tidewire.domain.rows import entry_of_row
from tidewire.engines.sqlite import inspect_sql
from tidewire.engines.sqlite.database import check_library, check_not_emptied, schema_version
from tidewire.engines.sqlite.errors import DAMAGED, NONSENSE, OUR_BUGS, translate_errors
from tidewire.engines.sqlite.lockfile import look_first
from tidewire.engines.sqlite.log_look import LogDamaged, size_bytes, wal_of
from tidewire.engines.sqlite.migrate import migrations
from tidewire.engines.sqlite.stored import whole
from tidewire.ports import inspection

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
        self._messages_ahead: dict[str, list[inspection.MessageRow]] = {}
        self._keys_ahead: dict[str, list[Any]] = {}
        try:
            self._database = open_for_reading(path)
        except LogDamaged as damage:
            raise inspection.Damaged(
                f"the write-ahead log {wal_of(path).name}", damage.reason
            ) from damage
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

    def chats(self) -> Iterator[inspection.ChatRow]:
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

    def messages(self, chat: inspection.ChatRow) -> Iterator[Sequence[inspection.MessageRow]]:
        ahead = self._messages_ahead.pop(chat.chat_id, None)
        if ahead is not None:
            return iter((ahead,))
        return self._chunks(
            lambda after: f"messages of {chat.chat_id} above sequence {max(after, 0)}",
            partial(self._message_rows, chat.chat_id),
            {"chat": chat.chat_id, "after": -1, "after_position": -1},
            itemgetter(0, 2),
        )

    def keys(self, chat: inspection.ChatRow) -> Iterator[Sequence[inspection.EntryRow]]:
        ahead = self._keys_ahead.pop(chat.chat_id, None)
        if ahead is not None:
            return iter((ahead,))
        bounds = {"chat": chat.chat_id, "after": "", "after_position": -1}
        place = f"idempotency keys of {chat.chat_id}"
        return self._chunks(place, inspect_sql.KEYS, bounds, itemgetter(0, 1))

    def message_ids(self) -> Iterator[Sequence[inspection.EntryRow]]:
        """First the ids of the index; an id that is in none leads to the place that it carries."""
        bounds: dict[str, Any] = {"after": "", "after_position": -1}
        yield from self._chunks(
            "the index of message ids", inspect_sql.IDS, bounds, itemgetter(0, 1)
        )
        # A page of the table that cannot be read was reported with the messages on it.
        with suppress(inspection.Damaged):
            for rows in self._chunks(
                "message ids", inspect_sql.PLACED_IDS, {"after": 0}, itemgetter(slice(1, 2))
            ):
                yield [_placed_row(*row) for row in rows]

    def changes(
        self, chat: inspection.ChatRow, is_sound: Callable[[inspection.ChangeRow], bool]
    ) -> Iterator[Sequence[inspection.ChangeRow]]:
        bounds = {"chat": chat.chat_id, "newest": self._newest, "count": self._chunk_rows}
        border: int | None = -1
        while border is not None:
            after = border
            with _reading(f"entries of {chat.chat_id} above sequence {max(after, 0)}"):
                border = self._border(bounds | {"after": after})
                through = SEQUENCE_MAX if border is None else border
                rows: list[Any] = self._database.execute(
                    inspect_sql.CHANGES, bounds | {"after": after, "through": through}
                ).fetchall()
            if rows:
                yield [one for one in map(_change_row, rows) if one is not None]
            if border is not None:
                _check_order(f"entries of {chat.chat_id}", after, border)

    def _border(self, bounds: dict[str, Any]) -> int | None:
        """Where the next chunk begins: all entries count, not only those that `CHANGES` finds."""
        border: Any = self._database.execute(inspect_sql.BORDER, bounds).get
        return border if isinstance(border, int) else None

    def kept(
        self, is_sound: Callable[[inspection.KeptRow], bool]
    ) -> Iterator[Sequence[inspection.KeptRow]]:
        edits = {"after": "", "after_target": -1, "after_sequence": -1}
        for rows in self._chunks("edits", inspect_sql.KEPT_EDITS, edits, itemgetter(0, 1, 2)):
            yield _kept_rows(EntryKind.EDIT, rows)
        reactions = {"after": "", "after_target": -1, "after_emoji": "", "after_user": ""}
        for rows in self._chunks(
            "reactions", inspect_sql.KEPT_REACTIONS, reactions, itemgetter(0, 1, 4, 3)
        ):
            yield _kept_rows(EntryKind.REACT, rows)
        mentions = {"after": "", "after_chat": "", "after_sequence": -1}
        for rows in self._chunks(
            "mentions", inspect_sql.KEPT_MENTIONS, mentions, itemgetter(3, 0, 2)
        ):
            yield _kept_rows(EntryKind.MESSAGE, rows)

    def positions(self) -> Iterator[Sequence[inspection.PositionRow]]:
        bounds = {"after": "", "after_chat": ""}
        for rows in self._chunks("positions", inspect_sql.POSITIONS, bounds, itemgetter(0, 1)):
            yield list(map(inspection.PositionRow._make, rows))

    def direct_pairs(self) -> Iterator[Sequence[inspection.PairRow]]:
        place = "the index of direct chats"
        return self._chunks(place, inspect_sql.PAIRS, {"after": ""}, lambda row: (row[0],))

    def close(self) -> None:
        self._database.close()

    def _chunks(
        self,
        place: str | Callable[[Any], str],
        query: str | Callable[[dict[str, Any]], list[Any]],
        bounds: dict[str, Any],
        ends_at: Callable[[Any], tuple[Any, ...]],
    ) -> Iterator[list[Any]]:
        """All rows of a query, in chunks, each read by itself.

        The bounds whose names begin with "after" say where a chunk begins: behind the values that
        `ends_at` gives for the last row of the chunk before. `place` names a chunk in an error.
        """
        names = [name for name in bounds if name.startswith("after")]
        bounds |= {"newest": self._newest, "count": self._chunk_rows}
        while True:
            after = tuple(bounds[name] for name in names)
            if callable(place):
                here = place(after[0])
            else:
                here = f"{place} after {after[0]}" if after[0] else place
            with _reading(here):
                if isinstance(query, str):
                    rows: list[Any] = self._database.execute(query, bounds).fetchall()
                else:
                    rows = query(bounds)
            if rows:
                yield rows
            if len(rows) < self._chunk_rows:
                return
            end = ends_at(rows[-1])
            _check_order(here, after, end)
            bounds |= zip(names, end, strict=True)

    def _message_rows(self, chat_id: ChatId, bounds: dict[str, Any]) -> list[inspection.MessageRow]:
        """One chunk. If a row in it is damaged, all its rows are read again the careful way."""
        database = self._database
        with suppress(UnicodeDecodeError):
            rows: list[Any] = database.execute(inspect_sql.MESSAGES, bounds).fetchall()
            found = [_message_row(chat_id, row) for row in rows]
            if not any(map(_DAMAGED, found)):
                return found
        rows = database.execute(inspect_sql.MESSAGES_RAW, bounds).fetchall()
        return [_raw_message_row(chat_id, row) for row in rows]

    def _chat_page(self, after: str) -> list[inspection.ChatRow]:
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
        return [_chat_row(row, members[row[0]]) for row in rows]

    def _read_ahead(self, after: str, page: Sequence[inspection.ChatRow]) -> None:
        """Read messages and keys of a page of chats in two reads: faster for many small chats.

        Only if they fit into about a chunk; chats with more are read one by one.
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
            return  # Chat by chat the damage is met again, and its place is known.
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
        except inspection.Damaged:
            # The damage will be met again where it can be reported. Nothing grows meanwhile: an
            # append needs the same page, and fails.
            return _UNBOUNDED

    def _row(self, sql: str, bindings: Any) -> Any:
        row = self._database.execute(sql, bindings).fetchone()
        assert row is not None, sql
        return row


def check_is_there(path: Path) -> None:
    check_not_emptied(path)
    if not path.is_file():
        raise StoreUnusable(f"there is no database {path}; name a data directory that has one")


def _chat_row(row: Any, members: list[Any]) -> inspection.ChatRow:
    """What `inspect_sql.CHAT` gives, in the order of the fields of `ChatRow`."""
    found = inspection.ChatRow._make((*row[:3], members, *row[3:]))
    return found._replace(
        marked=_ids(row[8]),
        blocked=_ids(row[9]),
        is_closed=bool(found.is_closed),
        refusing=_ids(row[13]),
    )


def _message_row(chat_id: ChatId, row: Any) -> inspection.MessageRow:
    position, *fields = row
    sequence, prev_sequence, message_id, _, key = fields[:5]
    is_damaged = whole((chat_id, *fields)) is None
    return sequence, prev_sequence, position, message_id, key, position, is_damaged


def _placed_row(message_id: bytes, position: int, sequence: int) -> inspection.EntryRow:
    name = message_id.decode(errors="replace")
    return name, position if place_in(name) == sequence else None


def _raw_message_row(chat_id: ChatId, row: Any) -> inspection.MessageRow:
    found = FoundRow(row[0], None, *row[1:])
    is_damaged = found.checksum is None or row_checksum(chat_id, found) != found.checksum
    sequence, prev, message_id, _, key = row[2:7]
    ids = [(one or b"").decode(errors="replace") for one in (message_id, key)]
    return sequence or 0, prev or 0, row[0], *ids, row[0], is_damaged


def _entry_row(row: Any) -> inspection.ChangeRow | None:
    """What `inspect_sql._entry` gives; None if it is damaged, and so no entry."""
    sequence, target, extra, sender_id, has_text, deleted_by = row
    sender = (sender_id or b"").decode(errors="replace")
    plain = ("", sequence, 0, "", sender, "", "", "", 0)
    try:
        message = entry_of_row((*plain, target, extra, deleted_by))
    except (ValueError, TypeError):
        return None
    return inspection.ChangeRow(
        sequence,
        sender,
        message.amends,
        message.reply_to,
        message.mentions,
        message.count,
        bool(has_text),
        deleted_by,
    )


def _change_row(row: Any) -> inspection.ChangeRow | None:
    """What `inspect_sql.CHANGES` gives."""
    entry = _entry_row(row[:6])
    if entry is None:
        return None
    named, is_message, has_text, deleted_by, deletes, kept, on_count, mentions, *before = row[6:]
    target = None
    if named is not None:
        target = inspection.TargetRow(bool(is_message), bool(has_text), deleted_by)
    return entry._replace(
        target=target,
        deletes=deletes,
        kept=kept,
        on_count=on_count,
        found_mentions=(mentions or b"").decode(errors="replace").split(),
        message_before=before[0],
        chained_before=before[1],
    )


def _kept_rows(kind: EntryKind, rows: Sequence[Any]) -> list[inspection.KeptRow]:
    """What the queries for kept rows give."""
    found = []
    for chat_id, target, sequence, user_id, emoji, is_on, *rest in rows:
        *entry, is_target_deleted = rest
        amends = None
        if kind is not EntryKind.MESSAGE:
            is_set = kind is EntryKind.EDIT or bool(is_on)
            amends = Amendment(kind=kind, target=target, emoji=emoji, is_on=is_set)
        found.append(
            inspection.KeptRow(
                chat_id,
                kind,
                sequence,
                user_id or "",
                amends,
                None if entry[0] is None else _entry_row(entry),
                bool(is_target_deleted),
            )
        )
    return found


def _check_order(place: str, before: Any, after: Any) -> None:
    """Each chunk must end ahead of where it began: else the reading would never end."""
    try:
        is_ahead = before < after
    except TypeError:
        is_ahead = False
    if not is_ahead:
        raise inspection.Damaged(place, "the rows are not in order")


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
    allow that, and there is no WAL to read, the file is opened as immutable.
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
    """Raise Damaged, with the place, for damage; translate all other errors.

    A statement that fails means that a table or an index is missing, or is not as it was made: the
    program has created them all, and `check_schema` has found the right version.
    """
    try:
        with translate_errors():
            try:
                yield
            except (*DAMAGED, *OUR_BUGS, *NONSENSE, apsw.IOError) as error:
                raise inspection.Damaged(place, str(error)) from error
    except StoreUnusable as error:
        # `schema_version` has translated the damage already.
        if isinstance(error.__cause__, DAMAGED):
            raise inspection.Damaged(place, str(error.__cause__)) from error
        raise


_CONFORMS: type[inspection.Inspector] = SqliteInspector
