"""Mends the log of a chat after a restore, and makes everything beside it agree with the log.

Messages, amendments, reactions and keys are tables of their own, each restored as of its own
instant, and even rows of one table may be of instants a little apart. The log counts: entries are
linked across those that are gone, and what a message's row says of its amendments is built anew
from those that are there. A text whose deletion is there is erased, wherever it has come back.
"""

from collections.abc import Iterator
from typing import Any

import msgspec

from tidewire.domain.ids import ChatId
from tidewire.domain.messages import EntryKind
from tidewire.engines.dynamodb import rows, schema
from tidewire.engines.dynamodb.entries import Mark, counts_text, entry_of, mark_of, mark_row
from tidewire.engines.dynamodb.looking import Tables
from tidewire.engines.dynamodb.rows import Row

MarkId = tuple[int, str, str]
"""Target, emoji and user."""


class LogEnd(msgspec.Struct):
    """Where the log of a chat ends, and how many rows had to be mended."""

    head: int = 0
    last_message: int = 0
    last_message_at: int = 0
    last_mention: int = 0
    rows_mended: int = 0


class LogMending:
    """Mends one chat. Keeps the numbers of its entries in memory, not their texts."""

    def __init__(self, tables: Tables, chat_id: ChatId) -> None:
        self._tables = tables
        self._chat_id = chat_id
        self._highest = tables.highest_entry(chat_id)
        self._edits: dict[int, list[int]] = {}
        self._deletions: dict[int, int] = {}
        self._marks: dict[int, dict[MarkId, Mark]] = {}
        """By target."""
        self._reacted_by: dict[int, int] = {}
        self._links: dict[int, int] = {}
        """By sequence of each entry that is there: the entry before it."""
        self._erased: set[int] = set()
        self._end = LogEnd()

    def carry_out(self) -> LogEnd:
        self._learn()
        messages: set[int] = set()
        for row in self._entries():
            if "kind" not in row:
                self._mend_message(row)
                messages.add(row["sequence"])
            elif row["target"] not in messages:
                # The message that it amends is gone.
                self._write(rows.delete(schema.AMENDMENTS, schema.key_of(schema.AMENDMENTS, row)))
                self._forget(row["target"])
                continue
            else:
                self._mend_amendment(row)
            self._links[row["sequence"]] = self._end.head
            self._end.head = row["sequence"]
        self._mend_keys()
        self._mend_reactions()
        return self._end

    def _entries(self) -> Iterator[Row]:
        for chunk in self._tables.log(self._chat_id, self._highest):
            yield from chunk

    def _learn(self) -> None:
        """Collect which amendments each message has, as far as they are in the log."""
        for page in self._tables.query(schema.AMENDMENTS, self._chat_id):
            for entry in map(entry_of, page):
                amends = entry.amends
                assert amends is not None
                target, sequence = amends.target, entry.sequence
                if amends.kind is EntryKind.EDIT:
                    self._edits.setdefault(target, []).append(sequence)
                elif amends.kind is EntryKind.DELETE:
                    self._deletions[target] = sequence
                elif amends.emoji is not None:
                    key = (target, amends.emoji, entry.sender_id)
                    mark = Mark(target, amends.emoji, entry.sender_id, sequence, amends.is_on)
                    self._marks.setdefault(target, {})[key] = mark
                    self._reacted_by[target] = sequence

    def _forget(self, target: int) -> None:
        for known in (self._edits, self._deletions, self._marks, self._reacted_by):
            known.pop(target, None)

    def _mend_message(self, row: Row) -> None:
        sequence = row["sequence"]
        deleted_by = row.get("deleted_by", self._deletions.get(sequence))
        mended = self._linked(row) | {
            "edits": self._edits.get(sequence),
            "reacted_by": self._reacted_by.get(sequence),
            "reactions": self._counted(sequence),
            "deleted_by": deleted_by,
        }
        if deleted_by is not None:
            # Also if the deletion itself is gone: the texts of the edits must not come back.
            self._deletions[sequence] = deleted_by
            # Keep `reacted_by` as it is: absent, if the reactions are swept already.
            mended |= dict.fromkeys(("content", "mentions", "reactions"))
            mended["reacted_by"] = row.get("reacted_by")
        self._put(schema.MESSAGES, row, mended)
        self._end.last_message, self._end.last_message_at = sequence, row["created_at"]
        if row.get("mentions"):
            self._end.last_mention = sequence

    def _mend_amendment(self, row: Row) -> None:
        deleted_by = self._deletions.get(row["target"])
        mended: dict[str, Any] = self._linked(row)
        if row["kind"] == EntryKind.EDIT and deleted_by is not None:
            mended |= {"content": None, "deleted_by": deleted_by}
        self._put(schema.AMENDMENTS, row, mended)

    def _linked(self, row: Row) -> Row:
        return row | {"prev_sequence": self._end.head}

    def _counted(self, target: int) -> str | None:
        counts: dict[str, tuple[int, int]] = {}
        for mark in sorted(self._marks.get(target, {}).values(), key=lambda one: one.sequence):
            count, _ = counts.get(mark.emoji, (0, 0))
            counts[mark.emoji] = (count + mark.is_on, mark.sequence)
        return counts_text(counts)

    def _put(self, table: str, row: Row, mended: dict[str, Any]) -> None:
        """Write a row if it has changed; fields that are None are left out."""
        kept = {name: value for name, value in mended.items() if value is not None}
        if kept != row:
            self._write(rows.put(table, kept))
        if "deleted_by" in kept:
            self._erased.add(row["sequence"])

    def _mend_keys(self) -> None:
        """Delete keys whose entry is gone: they would answer a retry as if it were stored. The key
        of an erased entry has no hash of the content."""
        for page in self._tables.query(schema.KEYS, self._chat_id):
            for row in page:
                sequence = row["sequence"]
                if sequence not in self._links:
                    self._write(rows.delete(schema.KEYS, schema.key_of(schema.KEYS, row)))
                    continue
                mended = row | {"prev_sequence": self._links[sequence]}
                if sequence in self._erased:
                    mended.pop("content_hash", None)
                if mended != row:
                    self._write(rows.put(schema.KEYS, mended))

    def _mend_reactions(self) -> None:
        """Reactions to deleted messages are left to be swept."""
        wanted: dict[MarkId, Mark] = {}
        for target, marks in self._marks.items():
            if target not in self._deletions:
                wanted |= marks
        for page in self._tables.query(schema.REACTIONS, self._chat_id):
            for row in page:
                mark = mark_of(row)
                if mark.target in self._deletions:
                    continue
                expected = wanted.pop((mark.target, mark.emoji, mark.user_id), None)
                if expected is None:
                    key = schema.key_of(schema.REACTIONS, row)
                    self._write(rows.delete(schema.REACTIONS, key))
                elif expected != mark:
                    wanted[mark.target, mark.emoji, mark.user_id] = expected
        for mark in wanted.values():
            self._write(rows.put(schema.REACTIONS, mark_row(self._chat_id, mark)))

    def _write(self, write: rows.Write) -> None:
        self._tables.write(write)
        self._end.rows_mended += 1
