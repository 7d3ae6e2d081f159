"""The tables of a client's store: one SQLite file that holds what a device must not lose.

Everything here runs inside a transaction that `store` begins and commits. Only one process has the
file at a time. Entries (`held`, `keeping`) and other events share one series of numbers,
`position`: the order in which they were stored, and in which the application gets them.
"""

import operator
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import apsw
import msgspec

from tidewire.client.held import KEYS, encoded
from tidewire.client.keeping import KeptEntries, insert
from tidewire.client.model import NAMES_MAX, ChangeRow, MessageRow
from tidewire.client.outbox import OutboxEntry, name_target
from tidewire.client.replica import ReplicaRecord
from tidewire.client.schema import single
from tidewire.domain.messages import Amendment, EntryKind, MessageBody, body_of

_NAME: Final = "name:"
_AFTER_NAMES: Final = "name;"
"""The semicolon is the character after the colon: every key between the two is that of a name."""
HAPPENINGS_MAX: Final = 10_000
"""How many events other than entries are kept for an application that does not ask for them."""

_CHAT_COLUMNS: Final = ReplicaRecord.__struct_fields__
_SEND_COLUMNS: Final = tuple(
    name
    for name in OutboxEntry.__struct_fields__
    if name not in ("body", "is_doubtful", "is_first", "tries")
)
_ENTRY_COLUMNS: Final = (*_SEND_COLUMNS, *MessageBody.__struct_fields__)
_UNMOVED: Final = frozenset({"chat_id", "chat_type", "start", "cursor"})
"""Columns written only for a new chat; start and cursor move with entries, or `restart`."""
_RISING: Final = frozenset({"delivered", "read", "others_delivered", "others_read"})
_SET_CHAT: Final = ", ".join(
    f"{name} = max({name}, value->>{at})" if name in _RISING else f"{name} = value->>{at}"
    for at, name in enumerate(_CHAT_COLUMNS, start=1)
    if name not in _UNMOVED
)
_INSERT_SENDS: Final = insert("outbox", _ENTRY_COLUMNS, "REPLACE")
_send_values: Final = operator.attrgetter(*_SEND_COLUMNS)
_DROP_POINTLESS: Final = f"""
DELETE FROM outbox WHERE client_message_id IN {KEYS} AND EXISTS (
    SELECT 1 FROM nows JOIN chats ON number = in_chat
    WHERE chats.chat_id = outbox.chat_id AND of_sequence = amends->>'target'
        AND deleted_sequence > 0
)"""  # noqa: S608 - constants
"""Edits of messages that are deleted."""


class EventRow(msgspec.Struct, frozen=True):
    """An event that is no entry: a failed send, a change of a chat."""

    position: int
    kind: str
    body: str


def _position(event: MessageRow | ChangeRow | EventRow) -> int:
    return event.position


class Tables(KeptEntries):
    """Reads and writes inside the current transaction."""

    def __init__(self, database: apsw.Connection) -> None:
        super().__init__(database)
        last = single(
            database,
            "SELECT max(coalesce((SELECT max(position) FROM entries), 0), "
            "coalesce((SELECT max(position) FROM happenings), 0), "
            "coalesce((SELECT value FROM meta WHERE name = 'confirmed'), 0))",
        )
        self.position = int(last)
        self._offered = int(self.meta("offered") or 0)
        self._last_happening = self.position
        self._happenings_confirmed = 0

    # Facts about the store.

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
        """The known display names, by user id."""
        rows = self._database.execute(
            "SELECT substr(name, ?), value FROM meta WHERE name > ? AND name < ? LIMIT ?",
            (len(_NAME) + 1, _NAME, _AFTER_NAMES, NAMES_MAX),
        )
        return dict(rows)

    def save_names(self, names: Mapping[str, str]) -> None:
        self.set_meta(**{_NAME + user_id: name for user_id, name in names.items()})

    # Replicas.

    def _rows(self, columns: Sequence[str], source: str) -> list[dict[str, Any]]:
        rows = self._database.execute(f"SELECT {', '.join(columns)} FROM {source}")  # noqa: S608
        return [dict(zip(columns, row, strict=True)) for row in rows]

    def replicas(self) -> list[ReplicaRecord]:
        return [
            msgspec.convert({**row, "is_member": bool(row["is_member"])}, ReplicaRecord)
            for row in self._rows(_CHAT_COLUMNS, "chats ORDER BY number")
        ]

    def save_replicas(self, records: Iterable[ReplicaRecord]) -> None:
        """Save everything except start and cursor: those move with entries, or with `restart`."""
        rows: list[tuple[object, ...]] = []
        for record in records:
            number = self._numbers.get(record.chat_id)
            if number is None:
                self._insert_replica(record)
            else:
                rows.append((number, *msgspec.structs.astuple(record)))
        if rows:
            self._database.execute(
                f"UPDATE chats SET {_SET_CHAT} FROM json_each(?) WHERE number = value->>0",  # noqa: S608
                (encoded(rows),),
            )

    def _insert_replica(self, record: ReplicaRecord) -> None:
        values = msgspec.structs.astuple(record)
        marks = ", ".join("?" * len(values))
        self._database.execute(
            f"INSERT INTO chats ({', '.join(_CHAT_COLUMNS)}) VALUES ({marks})",  # noqa: S608
            (record.chat_id, str(record.chat_type), *values[2:]),
        )
        self._numbers[record.chat_id] = self._database.last_insert_rowid()

    def restart(self, records: Iterable[ReplicaRecord], epoch: str | None) -> None:
        """Begin these again at their start. Entries that are held stay, until the server has shown
        whether it still has them."""
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

    def next_events(
        self, after: int, limit: int
    ) -> tuple[list[MessageRow | ChangeRow | EventRow], int]:
        """Events that were stored after a position, in stored order, and the last position that may
        have been handed out before. The events count as handed out from here on."""
        events: list[MessageRow | ChangeRow | EventRow] = [*self.entries_after(after, limit)]
        if self._last_happening > after:
            events += [
                EventRow(*row)
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

    def entries(self) -> list[OutboxEntry]:
        """The outbox, in its order. An amendment of a message that was stored since gets its
        sequence."""
        entries = [_entry(row) for row in self._rows(_ENTRY_COLUMNS, "outbox ORDER BY number")]
        waiting = {entry.client_message_id for entry in entries}
        keys = [e.target_key for e in entries if e.target_key and e.target_key not in waiting]
        stored = self._own(keys) if keys else {}
        for entry in entries:
            if entry.target_key in stored:
                name_target(entry, stored[entry.target_key].sequence)
        return entries

    def _own(self, keys: Sequence[str]) -> dict[str, MessageRow]:
        """Own entries that are stored, by their keys."""
        return {
            kept.client_message_id: kept
            for kept in self._kept(
                f"is_own = 1 AND is_gone = 0 AND client_message_id IN {KEYS}", (encoded(keys),)
            )
        }

    def put_entries(self, entries: Sequence[OutboxEntry]) -> dict[str, MessageRow]:
        """Add entries. Those that the server has stored already are returned and not added."""
        stored = self._own([entry.client_message_id for entry in entries])
        self.save_entries([e for e in entries if e.client_message_id not in stored])
        return stored

    def save_entries(self, entries: Sequence[OutboxEntry]) -> None:
        rows = [(*_send_values(entry), *body_of(entry.body)) for entry in entries]
        if rows:
            self._database.execute(_INSERT_SENDS, (encoded(rows),))
        edits = [entry.client_message_id for entry in entries if entry.kind is EntryKind.EDIT]
        if edits:
            self._database.execute(_DROP_POINTLESS, (encoded(edits),))

    def mark_left(self, client_message_ids: Iterable[str], left_at_ms: int) -> None:
        self._database.execute(
            "UPDATE outbox SET left_at_ms = ? WHERE left_at_ms IS NULL "  # noqa: S608
            f"AND client_message_id IN {KEYS}",
            (left_at_ms, encoded(list(client_message_ids))),
        )

    def drop_entries(self, client_message_ids: Iterable[str]) -> None:
        """Delete entries, and their texts for good: the server may never send a deletion for it."""
        self._database.execute(
            f"DELETE FROM outbox WHERE client_message_id IN {KEYS}",  # noqa: S608
            (encoded(list(client_message_ids)),),
        )
        self.has_erased = True


def _entry(row: dict[str, Any]) -> OutboxEntry:
    amends = row.pop("amends")
    row["mentions"] = msgspec.json.decode(row["mentions"])
    entry = msgspec.convert({**row, "body": row}, OutboxEntry)
    if amends is not None:
        entry.amends = msgspec.json.decode(amends, type=Amendment)
    return entry
