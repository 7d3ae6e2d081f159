"""The tables of a client's store: one SQLite file that holds what a device must not lose.

Everything here runs inside a transaction that `store` begins and commits. One process has the file
at a time. Messages and what else happened share one row of numbers, `position`: the order in which
they were stored, which is the order in which the application gets them.
"""

import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import apsw
import msgspec

from tidewire.client.errors import StoreUnusable
from tidewire.client.model import NAMES_MAX, Kept
from tidewire.client.outbox import Entry, EntryState
from tidewire.client.places import Item, PlaceRecord
from tidewire.domain.chats import ChatType
from tidewire.domain.ids import ChatId, ClientMessageId

MEMORY: Final = ":memory:"
APPLICATION_ID: Final = 0x54574343
"""The letters TWCC: a Tidewire client's."""
SCHEMA_VERSION: Final = 1
_NAME: Final = "name:"
_AFTER_NAMES: Final = "name;"
"""The letter after the colon: everything between is a name."""
HAPPENINGS_MAX: Final = 10_000
"""How many events other than messages are kept for an application that does not ask for them."""

_SCHEMA: Final = """
CREATE TABLE meta (name TEXT PRIMARY KEY, value) WITHOUT ROWID;
CREATE TABLE chats (
    number INTEGER PRIMARY KEY, chat_id TEXT NOT NULL UNIQUE, chat_type TEXT NOT NULL, name TEXT,
    membership_version INTEGER NOT NULL, is_member INTEGER NOT NULL, start INTEGER NOT NULL,
    cursor INTEGER NOT NULL, head INTEGER NOT NULL, delivered INTEGER NOT NULL,
    read INTEGER NOT NULL, others_delivered INTEGER NOT NULL, others_read INTEGER NOT NULL,
    unread INTEGER NOT NULL,
    doubted_through INTEGER NOT NULL DEFAULT 0
);
CREATE TABLE messages (
    position INTEGER PRIMARY KEY, chat INTEGER NOT NULL, sequence INTEGER NOT NULL,
    prev_sequence INTEGER NOT NULL, message_id TEXT NOT NULL, sender_id TEXT NOT NULL,
    client_message_id TEXT NOT NULL, content TEXT NOT NULL, content_type TEXT NOT NULL,
    created_at TEXT NOT NULL, is_own INTEGER NOT NULL, is_gone INTEGER NOT NULL DEFAULT 0
);
CREATE UNIQUE INDEX messages_by_sequence ON messages (chat, sequence) WHERE is_gone = 0;
CREATE INDEX messages_by_own_id ON messages (client_message_id) WHERE is_own = 1;
CREATE TABLE happenings (position INTEGER PRIMARY KEY, kind TEXT NOT NULL, body TEXT NOT NULL);
CREATE TABLE outbox (
    client_message_id TEXT PRIMARY KEY, number INTEGER NOT NULL, chat_id TEXT NOT NULL,
    content TEXT NOT NULL, content_type TEXT NOT NULL, seen_sequence INTEGER NOT NULL,
    created_at_ms INTEGER NOT NULL, left_at_ms INTEGER, state TEXT NOT NULL, code TEXT, reason TEXT
) WITHOUT ROWID;
"""

_CHAT_COLUMNS: Final = (
    "chat_id, chat_type, name, membership_version, is_member, start, cursor, head, delivered, "
    "read, others_delivered, others_read, unread"
)
_MESSAGE_COLUMNS: Final = (
    "position, chat_id, sequence, prev_sequence, message_id, sender_id, client_message_id, "
    "content, content_type, created_at, is_own, is_gone"
)
_ENTRY_COLUMNS: Final = (
    "client_message_id, number, chat_id, content, content_type, seen_sequence, created_at_ms, "
    "left_at_ms, state, code, reason"
)
_ELEVEN: Final = ", ".join(f"value->>{column}" for column in range(11))
# Many rows go in by one statement: each step of SQLite gives the interpreter's lock away, and
# getting it back from a busy event loop takes longer than the step.
_INSERT_MESSAGES: Final = (
    "INSERT OR IGNORE INTO messages (position, chat, sequence, prev_sequence, message_id, "  # noqa: S608
    "sender_id, client_message_id, content, content_type, created_at, is_own) "
    f"SELECT {_ELEVEN} FROM json_each(?)"
)
_INSERT_ENTRIES: Final = (
    f"INSERT OR REPLACE INTO outbox ({_ENTRY_COLUMNS}) "  # noqa: S608
    f"SELECT {_ELEVEN} FROM json_each(?)"
)
_KEYS: Final = "(SELECT value FROM json_each(?))"


class KeepJob(msgspec.Struct, frozen=True):
    """A `Keep` effect, as the store needs it."""

    chat_id: ChatId
    items: Sequence[Item]
    through: int
    is_complete: bool


class Happening(msgspec.Struct, frozen=True):
    """Something that is no message: a failed send, a change of a chat."""

    position: int
    kind: str
    body: str


def connect(path: str) -> apsw.Connection:
    """The file, new or old, held by us alone. Raises StoreUnusable."""
    is_file = path != MEMORY
    try:
        if is_file:
            # The tokens are in here: nobody else may read it, from its first instant on. A file
            # that is there is not opened: closing it would give away the locks on it.
            with suppress(FileExistsError):
                os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
            Path(path).chmod(0o600)
        database = apsw.Connection(path)
    except (OSError, apsw.Error) as error:
        raise StoreUnusable(f"cannot open the store {path}: {error}") from error
    try:
        database.execute("PRAGMA locking_mode = EXCLUSIVE")
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("PRAGMA synchronous = FULL")
        database.execute("PRAGMA wal_autocheckpoint = 4000")
        database.execute("PRAGMA temp_store = memory")
        database.execute("PRAGMA trusted_schema = OFF")
        database.execute("BEGIN EXCLUSIVE")
        _make_schema(database, path)
        database.execute("COMMIT")
    except (apsw.BusyError, apsw.LockedError) as error:
        database.close()
        raise StoreUnusable(
            f"the store {path} is in use by another process; "
            "end that one first, or give this one a store of its own"
        ) from error
    except apsw.Error as error:
        database.close()
        raise StoreUnusable(f"the store {path} cannot be used: {error}") from error
    except StoreUnusable:
        database.close()
        raise
    database.create_scalar_function("folded", _folded, 1, deterministic=True)
    return database


def _make_schema(database: apsw.Connection, path: str) -> None:
    version, application_id = (
        _single(database, "PRAGMA user_version"),
        _single(database, "PRAGMA application_id"),
    )
    if version == 0 and application_id == 0:
        if _single(database, "SELECT count(*) FROM sqlite_schema"):
            raise StoreUnusable(f"{path} is a database of some other program; name another file")
        database.execute(_SCHEMA)
        database.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        database.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
    elif application_id != APPLICATION_ID:
        raise StoreUnusable(f"{path} is a database of some other program; name another file")
    elif version != SCHEMA_VERSION:
        raise StoreUnusable(
            f"{path} was written by a newer Tidewire (its form is {version}, this one knows "
            f"{SCHEMA_VERSION}); install that one"
        )


def _single(database: apsw.Connection, query: str) -> Any:
    row = database.execute(query).fetchone()
    assert row is not None
    return row[0]


def _json(rows: object) -> str:
    return msgspec.json.encode(rows).decode()


def _position(event: Kept | Happening) -> int:
    return event.position


def _folded(*texts: object) -> str:
    return str(texts[0]).casefold()


class Tables:
    """Reads and writes inside the transaction of the moment."""

    def __init__(self, database: apsw.Connection) -> None:
        self._database = database
        self._numbers: dict[str, int] = dict(database.execute("SELECT chat_id, number FROM chats"))
        self._doubted = {
            number
            for (number,) in database.execute("SELECT number FROM chats WHERE doubted_through > 0")
        }
        last = _single(
            database,
            "SELECT max(coalesce((SELECT max(position) FROM messages), 0), "
            "coalesce((SELECT max(position) FROM happenings), 0), "
            "coalesce((SELECT value FROM meta WHERE name = 'confirmed'), 0))",
        )
        self.position = int(last)
        """The last one given out."""
        self._offered = int(self.meta("offered") or 0)
        self._last_happening = self.position
        self._happenings_confirmed = 0

    # Facts about the store.

    def meta(self, name: str) -> Any:
        row = self._database.execute("SELECT value FROM meta WHERE name = ?", (name,)).fetchone()
        return None if row is None else row[0]

    def set_meta(self, **values: object) -> None:
        for name, value in values.items():
            if value is None:
                self._database.execute("DELETE FROM meta WHERE name = ?", (name,))
            else:
                self._database.execute(
                    "INSERT INTO meta (name, value) VALUES (?, ?) "
                    "ON CONFLICT (name) DO UPDATE SET value = excluded.value",
                    (name, value),
                )

    def names(self) -> dict[str, str]:
        """What people are called, by their ids, as far as that was learned."""
        rows = self._database.execute(
            "SELECT substr(name, ?), value FROM meta WHERE name > ? AND name < ? LIMIT ?",
            (len(_NAME) + 1, _NAME, _AFTER_NAMES, NAMES_MAX),
        )
        return dict(rows)

    def save_names(self, names: Mapping[str, str]) -> None:
        self.set_meta(**{_NAME + user_id: name for user_id, name in names.items()})

    # Places.

    def places(self) -> list[PlaceRecord]:
        rows = self._database.execute(f"SELECT {_CHAT_COLUMNS} FROM chats ORDER BY number")  # noqa: S608
        return [
            PlaceRecord(
                chat_id=ChatId(row[0]),
                chat_type=ChatType(row[1]),
                name=row[2],
                membership_version=row[3],
                is_member=bool(row[4]),
                start=row[5],
                cursor=row[6],
                head=row[7],
                delivered=row[8],
                read=row[9],
                others_delivered=row[10],
                others_read=row[11],
                unread=row[12],
            )
            for row in rows
        ]

    def save_places(self, records: Iterable[PlaceRecord]) -> None:
        """Everything but start and cursor: those move with messages, or with `restart`."""
        rows: list[tuple[object, ...]] = []
        for record in records:
            number = self._numbers.get(record.chat_id)
            if number is None:
                self._insert_place(record)
            else:
                rows.append(
                    (
                        number,
                        record.name,
                        record.membership_version,
                        record.is_member,
                        record.head,
                        record.delivered,
                        record.read,
                        record.others_delivered,
                        record.others_read,
                        record.unread,
                    )
                )
        if rows:
            self._database.execute(
                "UPDATE chats SET name = value->>1, membership_version = value->>2, "
                "is_member = value->>3, head = value->>4, delivered = max(delivered, value->>5), "
                "read = max(read, value->>6), "
                "others_delivered = max(others_delivered, value->>7), "
                "others_read = max(others_read, value->>8), unread = value->>9 "
                "FROM json_each(?) WHERE number = value->>0",
                (_json(rows),),
            )

    def _insert_place(self, record: PlaceRecord) -> None:
        values = msgspec.structs.astuple(record)
        marks = ", ".join("?" * len(values))
        self._database.execute(
            f"INSERT INTO chats ({_CHAT_COLUMNS}) VALUES ({marks})",  # noqa: S608
            (record.chat_id, str(record.chat_type), *values[2:]),
        )
        self._numbers[record.chat_id] = self._database.last_insert_rowid()

    def restart(self, records: Iterable[PlaceRecord], epoch: str | None) -> None:
        """Begin these again at their start. What is held stays, until the server has shown whether
        it still has it."""
        if epoch is not None:
            self.set_meta(epoch=epoch)
        for record in records:
            number = self._numbers[record.chat_id]
            self._database.execute(
                "UPDATE chats SET start = ?, cursor = ?, head = ?, "
                "doubted_through = max(doubted_through, cursor) WHERE number = ?",
                (record.start, record.start, record.head, number),
            )
            self._doubted.add(number)

    # Messages.

    def keep(self, jobs: Iterable[KeepJob], own_id: str) -> None:
        rows: list[tuple[object, ...]] = []
        own: list[str] = []
        cursors: dict[int, int] = {}
        for job in jobs:
            number = self._numbers[job.chat_id]
            items = job.items
            if number in self._doubted:
                # What this chat got before has to be in place.
                self._keep_rows(rows, own, cursors)
                rows, own, cursors = [], [], {}
                items = self._compared(number, job)
            cursors[number] = max(cursors.get(number, 0), job.through)
            for item in items:
                self.position += 1
                is_own = item.sender_id == own_id
                if is_own:
                    own.append(item.client_message_id)
                rows.append(
                    (
                        self.position,
                        number,
                        item.sequence,
                        item.prev_sequence,
                        item.message_id,
                        item.sender_id,
                        item.client_message_id,
                        item.content,
                        item.content_type,
                        item.created_at,
                        is_own,
                    )
                )
        self._keep_rows(rows, own, cursors)

    def _keep_rows(
        self, rows: list[tuple[object, ...]], own: list[str], cursors: dict[int, int]
    ) -> None:
        if rows:
            self._database.execute(_INSERT_MESSAGES, (_json(rows),))
        if own:
            self._database.execute(
                f"DELETE FROM outbox WHERE client_message_id IN {_KEYS}",  # noqa: S608
                (_json(own),),
            )
        if cursors:
            self._database.execute(
                "UPDATE chats SET cursor = max(cursor, through), head = max(head, through) "
                "FROM (SELECT value->>0 AS n, value->>1 AS through FROM json_each(?)) "
                "WHERE number = n",
                (_json(list(cursors.items())),),
            )

    def _compared(self, number: int, job: KeepJob) -> list[Item]:
        """After a restore: what is really new, while what the server has lost is marked as gone."""
        database = self._database
        row = database.execute(
            "SELECT cursor, doubted_through FROM chats WHERE number = ?", (number,)
        ).fetchone()
        assert row is not None
        cursor, doubted_through = row
        upto = max(doubted_through, job.through) if job.is_complete else job.through
        held = dict(
            database.execute(
                "SELECT sequence, message_id FROM messages "
                "WHERE chat = ? AND is_gone = 0 AND sequence > ? AND sequence <= ?",
                (number, cursor, upto),
            )
        )
        new: list[Item] = []
        for item in job.items:
            if held.get(item.sequence) == item.message_id or (
                # What is held is more than the server has.
                item.is_damaged and item.sequence in held
            ):
                del held[item.sequence]
            else:
                new.append(item)
        database.executemany(
            "UPDATE messages SET is_gone = 1 WHERE chat = ? AND sequence = ? AND is_gone = 0",
            [(number, sequence) for sequence in held],
        )
        if job.is_complete or job.through >= doubted_through:
            self._doubted.discard(number)
            database.execute("UPDATE chats SET doubted_through = 0 WHERE number = ?", (number,))
        return new

    def _kept(self, condition: str, values: tuple[object, ...]) -> list[Kept]:
        rows = self._database.execute(
            f"SELECT {_MESSAGE_COLUMNS} FROM messages JOIN chats ON number = chat "  # noqa: S608
            f"WHERE {condition}",
            values,
        )
        return [Kept(*row) for row in rows]

    def messages(
        self, chat_id: str, *, before: int | None, after: int, limit: int, newest_first: bool
    ) -> list[Kept]:
        """Stored messages of a chat between two sequences, ascending."""
        kept = self._kept(
            "chat = ? AND is_gone = 0 AND sequence < ? AND sequence > ? "
            f"ORDER BY sequence {'DESC' if newest_first else 'ASC'} LIMIT ?",
            (self._numbers.get(chat_id, -1), before or (1 << 62), after, limit),
        )
        return kept[::-1] if newest_first else kept

    def gone(self, chat_id: str, limit: int) -> list[Kept]:
        """Messages that the server lost in a restore; this device still has them."""
        number = self._numbers.get(chat_id, -1)
        kept = self._kept(
            "chat = ? AND is_gone = 1 ORDER BY sequence DESC LIMIT ?", (number, limit)
        )
        return kept[::-1]

    def search(self, text: str, chat_id: str | None, limit: int) -> list[Kept]:
        """Stored messages that contain a text, case apart; newest first."""
        return self._kept(
            "is_gone = 0 AND (?1 IS NULL OR chat_id = ?1) AND instr(folded(content), ?2) > 0 "
            "ORDER BY position DESC LIMIT ?3",
            (chat_id, text.casefold(), limit),
        )

    def count_unread(self, chat_id: str, above: int, limit: int) -> int:
        row = self._database.execute(
            "SELECT count(*) FROM (SELECT 1 FROM messages WHERE chat = ? AND is_gone = 0 "
            "AND sequence > ? AND is_own = 0 LIMIT ?)",
            (self._numbers.get(chat_id, -1), above, limit),
        ).fetchone()
        assert row is not None
        return int(row[0])

    # Events.

    def happened(self, kind: str, body: str) -> None:
        self.position += 1
        self._last_happening = self.position
        self._database.execute(
            "INSERT INTO happenings (position, kind, body) VALUES (?, ?, ?)",
            (self.position, kind, body),
        )
        self._database.execute(
            "DELETE FROM happenings WHERE position <= "
            "(SELECT position FROM happenings ORDER BY position DESC LIMIT 1 OFFSET ?)",
            (HAPPENINGS_MAX,),
        )

    def next_events(self, after: int, limit: int) -> tuple[list[Kept | Happening], int]:
        """What was stored after a position, in stored order, and up to where an earlier life may
        have handed it out. It counts as handed out from here on."""
        events: list[Kept | Happening] = [
            *self._kept("position > ? ORDER BY position LIMIT ?", (after, limit))
        ]
        if self._last_happening > after:
            events += [
                Happening(*row)
                for row in self._database.execute(
                    "SELECT position, kind, body FROM happenings WHERE position > ? "
                    "ORDER BY position LIMIT ?",
                    (after, limit),
                )
            ]
            events.sort(key=_position)
            del events[limit:]
        offered = self._offered
        if events and events[-1].position > offered:
            self._offered = events[-1].position
            self.set_meta(offered=self._offered)
        return events, offered

    def confirm(self, position: int) -> None:
        """The application is done with everything up to here."""
        self.set_meta(confirmed=position)
        if self._happenings_confirmed < self._last_happening:
            self._happenings_confirmed = position
            self._database.execute("DELETE FROM happenings WHERE position <= ?", (position,))

    # The outbox.

    def entries(self) -> list[Entry]:
        rows = self._database.execute(f"SELECT {_ENTRY_COLUMNS} FROM outbox ORDER BY number")  # noqa: S608
        return [
            Entry(
                client_message_id=ClientMessageId(row[0]),
                number=row[1],
                chat_id=ChatId(row[2]),
                content=row[3],
                content_type=row[4],
                seen_sequence=row[5],
                created_at_ms=row[6],
                left_at_ms=row[7],
                state=EntryState(row[8]),
                code=row[9],
                reason=row[10],
            )
            for row in rows
        ]

    def put_entries(self, entries: Sequence[Entry]) -> dict[str, Kept]:
        """Take messages in. Those that are stored already are returned and not taken in."""
        keys = _json([entry.client_message_id for entry in entries])
        stored = {
            kept.client_message_id: kept
            for kept in self._kept(
                f"is_own = 1 AND is_gone = 0 AND client_message_id IN {_KEYS}", (keys,)
            )
        }
        self.save_entries([e for e in entries if e.client_message_id not in stored])
        return stored

    def save_entries(self, entries: Sequence[Entry]) -> None:
        rows = [
            (
                entry.client_message_id,
                entry.number,
                entry.chat_id,
                entry.content,
                entry.content_type,
                entry.seen_sequence,
                entry.created_at_ms,
                entry.left_at_ms,
                entry.state,
                entry.code,
                entry.reason,
            )
            for entry in entries
        ]
        if rows:
            self._database.execute(_INSERT_ENTRIES, (_json(rows),))

    def mark_left(self, client_message_ids: Iterable[str], left_at_ms: int) -> None:
        self._database.execute(
            "UPDATE outbox SET left_at_ms = ? WHERE left_at_ms IS NULL "  # noqa: S608
            f"AND client_message_id IN {_KEYS}",
            (left_at_ms, _json(list(client_message_ids))),
        )

    def drop_entry(self, client_message_id: str) -> None:
        self._database.execute(
            "DELETE FROM outbox WHERE client_message_id = ?", (client_message_id,)
        )
