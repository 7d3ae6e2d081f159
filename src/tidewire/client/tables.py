"""The tables of a client's store: one SQLite file that holds what a device must not lose.

Everything here runs inside a transaction that `store` begins and commits. One process has the file
at a time. Messages and what else happened share one row of numbers, `position`: the order in which
they were stored, which is the order in which the application gets them.
"""

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

import apsw
import msgspec

from tidewire.client.errors import StoreUnusable
from tidewire.client.model import Kept
from tidewire.client.outbox import Entry, EntryState
from tidewire.client.places import Item, PlaceRecord
from tidewire.domain.chats import ChatType
from tidewire.domain.ids import ChatId, ClientMessageId

MEMORY: Final = ":memory:"
APPLICATION_ID: Final = 0x54574343
"""The letters TWCC: a Tidewire client's."""
SCHEMA_VERSION: Final = 1
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
_INSERT_MESSAGE: Final = (
    "INSERT OR IGNORE INTO messages (position, chat, sequence, prev_sequence, message_id, "
    "sender_id, client_message_id, content, content_type, created_at, is_own) "
    "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)


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
            # The tokens are in here: nobody else may read it, from its first instant on.
            os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
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


def _folded(*texts: object) -> str:
    return str(texts[0]).casefold()


class Tables:
    """Reads and writes inside the transaction of the moment."""

    def __init__(self, database: apsw.Connection) -> None:
        self._database = database
        self._numbers: dict[str, int] = {
            chat_id: number
            for chat_id, number in database.execute("SELECT chat_id, number FROM chats")
        }
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
        for record in records:
            number = self._numbers.get(record.chat_id)
            if number is None:
                self._insert_place(record)
                continue
            self._database.execute(
                "UPDATE chats SET name = ?, membership_version = ?, is_member = ?, head = ?, "
                "delivered = max(delivered, ?), read = max(read, ?), "
                "others_delivered = max(others_delivered, ?), others_read = max(others_read, ?), "
                "unread = ? WHERE number = ?",
                (
                    record.name,
                    record.membership_version,
                    record.is_member,
                    record.head,
                    record.delivered,
                    record.read,
                    record.others_delivered,
                    record.others_read,
                    record.unread,
                    number,
                ),
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
        for job in jobs:
            number = self._numbers[job.chat_id]
            items = job.items
            if number in self._doubted:
                items = self._compared(number, job)
            if items:
                self._insert(number, items, own_id)
            self._database.execute(
                "UPDATE chats SET cursor = max(cursor, ?), head = max(head, ?) WHERE number = ?",
                (job.through, job.through, number),
            )

    def _insert(self, number: int, items: Sequence[Item], own_id: str) -> None:
        first = self.position + 1
        self.position += len(items)
        self._database.executemany(
            _INSERT_MESSAGE,
            [
                (
                    position,
                    number,
                    item.sequence,
                    item.prev_sequence,
                    item.message_id,
                    item.sender_id,
                    item.client_message_id,
                    item.content,
                    item.content_type,
                    item.created_at,
                    item.sender_id == own_id,
                )
                for position, item in enumerate(items, first)
            ],
        )
        own = [(item.client_message_id,) for item in items if item.sender_id == own_id]
        if own:
            self._database.executemany("DELETE FROM outbox WHERE client_message_id = ?", own)

    def _compared(self, number: int, job: KeepJob) -> list[Item]:
        """After a restore: what is really new, while what the server has lost is marked as gone."""
        database = self._database
        row = database.execute(
            "SELECT cursor, doubted_through FROM chats WHERE number = ?", (number,)
        ).fetchone()
        assert row is not None
        cursor, doubted_through = row
        upto = max(doubted_through, job.through) if job.is_complete else job.through
        held = {
            sequence: message_id
            for sequence, message_id in database.execute(
                "SELECT sequence, message_id FROM messages "
                "WHERE chat = ? AND is_gone = 0 AND sequence > ? AND sequence <= ?",
                (number, cursor, upto),
            )
        }
        new: list[Item] = []
        for item in job.items:
            if held.get(item.sequence) == item.message_id:
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

    def messages(
        self, chat_id: str, *, before: int | None, after: int, limit: int, newest_first: bool
    ) -> list[Kept]:
        """Stored messages of a chat between two sequences, ascending."""
        rows = self._database.execute(
            f"SELECT {_MESSAGE_COLUMNS} FROM messages JOIN chats ON number = chat "  # noqa: S608
            "WHERE chat = ? AND is_gone = 0 AND sequence < ? AND sequence > ? "
            f"ORDER BY sequence {'DESC' if newest_first else 'ASC'} LIMIT ?",
            (self._numbers.get(chat_id, -1), before or (1 << 62), after, limit),
        )
        kept = [Kept(*row) for row in rows]
        return kept[::-1] if newest_first else kept

    def gone(self, chat_id: str, limit: int) -> list[Kept]:
        """Messages that the server lost in a restore; this device still has them."""
        rows = self._database.execute(
            f"SELECT {_MESSAGE_COLUMNS} FROM messages JOIN chats ON number = chat "  # noqa: S608
            "WHERE chat = ? AND is_gone = 1 ORDER BY sequence DESC LIMIT ?",
            (self._numbers.get(chat_id, -1), limit),
        )
        return [Kept(*row) for row in rows][::-1]

    def search(self, text: str, chat_id: str | None, limit: int) -> list[Kept]:
        """Stored messages that contain a text, upper and lower case being the same; newest first."""
        rows = self._database.execute(
            f"SELECT {_MESSAGE_COLUMNS} FROM messages JOIN chats ON number = chat "  # noqa: S608
            "WHERE is_gone = 0 AND (?1 IS NULL OR chat_id = ?1) "
            "AND instr(folded(content), ?2) > 0 ORDER BY position DESC LIMIT ?3",
            (chat_id, text.casefold(), limit),
        )
        return [Kept(*row) for row in rows]

    def own_message(self, client_message_id: str) -> Kept | None:
        row = self._database.execute(
            f"SELECT {_MESSAGE_COLUMNS} FROM messages JOIN chats ON number = chat "  # noqa: S608
            "WHERE client_message_id = ? AND is_own = 1 AND is_gone = 0",
            (client_message_id,),
        ).fetchone()
        return None if row is None else Kept(*row)

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
            Kept(*row)
            for row in self._database.execute(
                f"SELECT {_MESSAGE_COLUMNS} FROM messages JOIN chats ON number = chat "  # noqa: S608
                "WHERE position > ? ORDER BY position LIMIT ?",
                (after, limit),
            )
        ]
        events += [
            Happening(*row)
            for row in self._database.execute(
                "SELECT position, kind, body FROM happenings WHERE position > ? "
                "ORDER BY position LIMIT ?",
                (after, limit),
            )
        ]
        events.sort(key=lambda event: event.position)
        del events[limit:]
        offered = int(self.meta("offered") or 0)
        if events and events[-1].position > offered:
            self.set_meta(offered=events[-1].position)
        return events, offered

    def confirm(self, position: int) -> None:
        """The application is done with everything up to here."""
        self.set_meta(confirmed=position)
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

    def put_entry(self, entry: Entry) -> Kept | None:
        """Take a message in. If it is stored already, that is returned and nothing is taken in."""
        stored = self.own_message(entry.client_message_id)
        if stored is None:
            self.save_entry(entry)
        return stored

    def save_entry(self, entry: Entry) -> None:
        self._database.execute(
            f"INSERT OR REPLACE INTO outbox ({_ENTRY_COLUMNS}) "  # noqa: S608
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                entry.client_message_id,
                entry.number,
                entry.chat_id,
                entry.content,
                entry.content_type,
                entry.seen_sequence,
                entry.created_at_ms,
                entry.left_at_ms,
                str(entry.state),
                entry.code,
                entry.reason,
            ),
        )

    def mark_left(self, client_message_ids: Iterable[str], left_at_ms: int) -> None:
        self._database.executemany(
            "UPDATE outbox SET left_at_ms = ? WHERE client_message_id = ? AND left_at_ms IS NULL",
            [(left_at_ms, key) for key in client_message_ids],
        )

    def drop_entry(self, client_message_id: str) -> None:
        self._database.execute(
            "DELETE FROM outbox WHERE client_message_id = ?", (client_message_id,)
        )
