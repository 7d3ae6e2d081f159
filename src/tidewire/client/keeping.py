"""Writes entries into a client's store, and carries out what they do there.

One transaction stores entries, folds them into the messages that they name (`domain.fold`), and
erases what a deletion erases: the texts of the message and of its edits, edits that wait in the
outbox, refused ones of which the application has not been told. A deletion is final: no entry puts
the text back, in whatever order entries come.
"""

import operator
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import apsw

from tidewire.client.effects import Erased, Keep
from tidewire.client.entries import Item, amendment_of, entry_as, kind_of, mentions_user
from tidewire.client.held import (
    KEYS,
    NOW_COLUMNS,
    PLACES,
    PLAIN_COLUMNS,
    HeldEntries,
    Place,
    encoded,
)
from tidewire.domain.fold import AS_WRITTEN, MessageNow, fold, join
from tidewire.domain.ids import ChatId, UserId
from tidewire.domain.messages import BESIDE_TEXT, EntryKind, Message
from tidewire.domain.rows import extra_of

_ENTRY_COLUMNS: Final = (
    "position",
    "chat",
    *PLAIN_COLUMNS,
    "is_own",
    "kind",
    "target",
    "extra",
    "is_deleted",
    "is_mention",
)
_CONTENT_AT: Final = _ENTRY_COLUMNS.index("content")
_plain_values: Final = operator.attrgetter(*PLAIN_COLUMNS)


def insert(table: str, columns: Sequence[str], conflict: str) -> str:
    """A statement for many rows, given as one JSON array: each step of SQLite releases the GIL, and
    getting it back from a busy event loop takes longer than the step."""
    values = ", ".join(f"value->>{at}" for at in range(len(columns)))
    return (
        f"INSERT OR {conflict} INTO {table} ({', '.join(columns)}) "  # noqa: S608
        f"SELECT {values} FROM json_each(?)"
    )


_INSERT_ENTRIES: Final = insert("entries", _ENTRY_COLUMNS, "IGNORE")
_INSERT_NOWS: Final = insert("nows", ("in_chat", "of_sequence", *NOW_COLUMNS), "REPLACE")
_ERASE: Final = (
    "UPDATE entries SET content = '', is_deleted = 1, is_mention = 0, "
    "extra = CASE WHEN kind IS NULL THEN json_remove(extra, '$.mentions') ELSE extra END "
)


class _Batch:
    """Rows that are written together."""

    def __init__(self) -> None:
        self.rows: list[tuple[object, ...]] = []
        self.own: list[str] = []
        self.cursors: dict[int, int] = {}
        self.amendments: list[tuple[int, Message]] = []
        self.erased: list[Place] = []
        """Entries that the server has erased already."""
        self.suspects: list[Place] = []
        """Messages whose deletion may have been stored before the messages themselves."""


class KeptEntries(HeldEntries):
    """Writes inside the current transaction."""

    def __init__(self, database: apsw.Connection) -> None:
        super().__init__(database)
        self._doubted = {
            number
            for (number,) in database.execute("SELECT number FROM chats WHERE doubted_through > 0")
        }
        # The last message of each chat that is known to be deleted.
        self._deleted: dict[int, int] = dict(
            database.execute(
                "SELECT in_chat, max(of_sequence) FROM nows WHERE deleted_sequence > 0 "
                "GROUP BY in_chat"
            )
        )
        self.position = 0
        """The last one given out."""
        self.has_erased = False
        """Texts were erased that may still be in the write-ahead log."""

    def keep(self, jobs: Iterable[Keep], own_id: str) -> dict[ChatId, list[Erased]]:
        """Store entries and fold them. Returns, by chat, the messages of others that were shown
        until now and are erased."""
        erased: dict[ChatId, list[Erased]] = {}
        batch = _Batch()
        for job in jobs:
            chat_id = job.replica.chat_id
            number = self._numbers[chat_id]
            items = job.items
            if number in self._doubted:
                # The earlier entries of this chat have to be written before the comparison.
                self._write(batch, own_id, erased)
                batch = _Batch()
                items = self._compared(number, job)
            batch.cursors[number] = max(batch.cursors.get(number, 0), job.through)
            for item in items:
                self._add(batch, number, chat_id, item, own_id)
        self._write(batch, own_id, erased)
        return erased

    def _add(self, batch: _Batch, number: int, chat_id: ChatId, item: Item, own_id: str) -> None:
        self.position += 1
        sequence = item.sequence
        is_own = item.sender_id == own_id
        if is_own:
            batch.own.append(item.client_message_id)
        if sequence <= self._deleted.get(number, 0):
            batch.suspects.append((number, sequence))
        begin = (self.position, number, *_plain_values(item), is_own)
        if item.kind is None and item.is_bare:
            if item.is_deleted:
                batch.erased.append((number, sequence))
            batch.rows.append((*begin, None, None, None, item.is_deleted, False))
            return
        amendment = amendment_of(chat_id, item)
        if amendment is not None:
            assert amendment.amends is not None
            batch.amendments.append((number, amendment))
            amends = (amendment.kind, amendment.amends.target, extra_of(amendment))
            batch.rows.append((*begin, *amends, item.is_deleted, False))
        elif kind_of(item) is None:
            # Its content is not kept: this client would not know which deletion erases it.
            begin = (*begin[:_CONTENT_AT], "", *begin[_CONTENT_AT + 1 :])
            batch.rows.append((*begin, item.kind, None, None, item.is_deleted, False))
        else:
            extra = extra_of(_said(chat_id, item))
            is_mention = not is_own and mentions_user(item.mentions, own_id)
            batch.rows.append((*begin, None, None, extra, item.is_deleted, is_mention))
        if item.is_deleted:
            batch.erased.append((number, sequence))

    def _write(self, batch: _Batch, own_id: str, erased: dict[ChatId, list[Erased]]) -> None:
        database = self._database
        if batch.rows:
            database.execute(_INSERT_ENTRIES, (encoded(batch.rows),))
        if batch.own:
            database.execute(
                f"DELETE FROM outbox WHERE client_message_id IN {KEYS}",  # noqa: S608
                (encoded(batch.own),),
            )
        if batch.cursors:
            database.execute(
                "UPDATE chats SET cursor = max(cursor, through), head = max(head, through) "
                "FROM (SELECT value->>0 AS n, value->>1 AS through FROM json_each(?)) "
                "WHERE number = n",
                (encoded(list(batch.cursors.items())),),
            )
        if batch.erased:
            self._erase_rows(batch.erased)
        if batch.suspects:
            known = self._nows(batch.suspects)
            self._erase_rows([place for place, now in known.items() if now.is_deleted])
        if batch.amendments:
            self._amend(batch.amendments, own_id, erased)

    def _amend(
        self,
        amendments: Sequence[tuple[int, Message]],
        own_id: str,
        erased: dict[ChatId, list[Erased]],
    ) -> None:
        """Fold entries into the messages that they name."""
        places = {(number, _target(entry)): None for number, entry in amendments}
        nows = self._nows(places)
        changed: dict[Place, MessageNow] = {}
        deletions: list[tuple[int, Message]] = []
        late: list[Place] = []
        for number, entry in amendments:
            place = number, _target(entry)
            before = nows.get(place, AS_WRITTEN)
            after = fold(before, entry, UserId(own_id))
            if after != before:
                nows[place] = changed[place] = after
            if entry.kind is EntryKind.DELETE:
                deletions.append((number, entry))
            elif entry.kind is EntryKind.EDIT and after.is_deleted:
                # An edit that the server took after it had lost the deletion in a restore.
                late.append((number, entry.sequence))
        self._save_nows(changed)
        self._erase_rows(late)
        for number, entry in deletions:
            gone = self._erase(number, entry.chat_id, _target(entry), by=entry.sequence)
            if gone is not None:
                erased.setdefault(entry.chat_id, []).append(gone)

    def _erase(self, number: int, chat_id: str, target: int, *, by: int) -> Erased | None:
        """Erase everything that a deletion erases. Returns the message if it is of another user and
        was shown until now."""
        database = self._database
        edits = "chat = ?1 AND target = ?2 AND kind = 'edit'"
        shown = database.execute(
            "SELECT is_own, is_deleted, is_mention FROM entries "
            "WHERE chat = ? AND sequence = ? AND kind IS NULL AND is_gone = 0",
            (number, target),
        ).fetchone()
        keys = [
            key
            for (key,) in database.execute(
                "SELECT client_message_id FROM entries "  # noqa: S608
                "WHERE chat = ?1 AND sequence = ?2 AND is_gone = 0 AND is_own = 1 "
                f"UNION SELECT client_message_id FROM entries WHERE {edits} AND is_own = 1",
                (number, target),
            )
        ]
        self._erase_rows([(number, target)])
        database.execute(f"{_ERASE} WHERE {edits}", (number, target))
        database.execute(
            "DELETE FROM outbox WHERE chat_id = ?1 AND amends IS NOT NULL "  # noqa: S608
            "AND amends->>'kind' = 'edit' AND (amends->>'target' = ?2 "
            f"OR target_key IN {KEYS.replace('?', '?3')})",
            (chat_id, target, encoded(keys)),
        )
        database.execute(
            "UPDATE happenings SET body = json_set(body, '$.text', '') "  # noqa: S608
            "WHERE kind = 'refused' AND body->>'chat_id' = ?1 AND (body->>'target' = ?2 "
            f"OR body->>'client_message_id' IN {KEYS.replace('?', '?3')})",
            (chat_id, target, encoded(keys)),
        )
        self._deleted[number] = max(self._deleted.get(number, 0), target)
        self.has_erased = True
        if shown is None or shown[0] or shown[1]:
            return None
        return Erased(target, by, bool(shown[2]))

    def _erase_rows(self, places: Sequence[Place]) -> None:
        for is_gone in (0, 1):
            if places:
                self._database.execute(
                    f"{_ERASE} FROM {PLACES} "
                    f"WHERE chat = c AND sequence = s AND is_gone = {is_gone}",
                    (encoded(places),),
                )

    def _compared(self, number: int, job: Keep) -> list[Item]:
        """After a restore: returns entries that are really new, and marks lost entries as gone."""
        database = self._database
        row = database.execute(
            "SELECT cursor, doubted_through FROM chats WHERE number = ?", (number,)
        ).fetchone()
        assert row is not None
        cursor, doubted_through = row
        upto = max(doubted_through, job.through) if job.is_complete else job.through
        held = dict(
            database.execute(
                "SELECT sequence, message_id FROM entries "
                "WHERE chat = ? AND is_gone = 0 AND sequence > ? AND sequence <= ?",
                (number, cursor, upto),
            )
        )
        new: list[Item] = []
        erased: list[Place] = []
        for item in job.items:
            if held.get(item.sequence) == item.message_id or (
                # The server's copy is damaged, the one that is held is not.
                item.is_damaged and item.sequence in held
            ):
                del held[item.sequence]
                if item.is_deleted:
                    erased.append((number, item.sequence))
            else:
                new.append(item)
        self._erase_rows(erased)
        database.executemany(
            "UPDATE entries SET is_gone = 1 WHERE chat = ? AND sequence = ? AND is_gone = 0",
            [(number, sequence) for sequence in held],
        )
        self._refold(number, job.replica.chat_id, list(held))
        if job.is_complete or job.through >= doubted_through:
            self._doubted.discard(number)
            database.execute("UPDATE chats SET doubted_through = 0 WHERE number = ?", (number,))
        return new

    def _refold(self, number: int, chat_id: str, gone: Sequence[int]) -> None:
        """The server has lost these entries: compute the messages that they changed again, from the
        other entries. A deleted message stays deleted."""
        targets = [
            target
            for (target,) in self._database.execute(
                "SELECT DISTINCT target FROM entries WHERE chat = ? AND target IS NOT NULL "  # noqa: S608
                f"AND is_gone = 1 AND sequence IN {KEYS}",
                (number, encoded(gone)),
            )
        ]
        known = self._nows([(number, target) for target in targets])
        own_id = UserId(str(self.meta("user_id") or ""))
        self._save_nows(
            {
                place: self._now_at(number, place[1], None, own_id)
                for place, now in known.items()
                if not now.is_deleted
            }
        )

    def _save_nows(self, nows: Mapping[Place, MessageNow]) -> None:
        if nows:
            rows = [
                (
                    *place,
                    now.content,
                    now.edited_sequence,
                    now.deleted_sequence,
                    encoded(now.reactions) if now.reactions else None,
                )
                for place, now in nows.items()
            ]
            self._database.execute(_INSERT_NOWS, (encoded(rows),))

    def join_page(
        self, chat_id: str, told: Mapping[int, MessageNow]
    ) -> tuple[dict[int, MessageNow], list[Erased]]:
        """The current state of messages on a page of the server's history: of each part the later
        one of page and store. A deletion that the store did not know is carried out."""
        number = self._numbers.get(chat_id)
        if number is None:
            return dict(told), []
        held = self._nows([(number, sequence) for sequence in told])
        joined: dict[int, MessageNow] = {}
        erased: list[Erased] = []
        for sequence, now in told.items():
            known = held.get((number, sequence), AS_WRITTEN)
            joined[sequence] = after = join(now, known)
            if after.is_deleted and not known.is_deleted:
                self._save_nows({(number, sequence): after})
                gone = self._erase(number, chat_id, sequence, by=after.deleted_sequence)
                erased += [] if gone is None else [gone]
        return joined, erased


def _target(entry: Message) -> int:
    assert entry.amends is not None
    return entry.amends.target


def _said(chat_id: ChatId, item: Item) -> Message:
    """A message as a value of the domain."""
    said = {name: getattr(item, name) for name in BESIDE_TEXT}
    if item.is_deleted:
        said["mentions"] = ()
    return entry_as(chat_id, item, item.content, **said)
