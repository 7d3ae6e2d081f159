"""Brings the rows of an older store to this version, while it is in use (`cluster upgrade`).

Every gateway must have this version first: from then on each change of a membership writes its mark
(`marks`). This then marks the members who joined before, and clears the marks of those whom an
older gateway has removed meanwhile. Each row is written on condition that the membership is as it
was read, so a change at the same time wins. The progress is stored: if the upgrade is interrupted,
it goes on from there.
"""

from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Final

import msgspec

from tidewire.domain.ids import ChatId, UserId
from tidewire.engines.dynamodb import marks, rows, schema, schema_version, values
from tidewire.engines.dynamodb.looking import Tables
from tidewire.engines.dynamodb.options import DynamoOptions
from tidewire.engines.dynamodb.rows import Row

Progress = Callable[[int, int], None]
PROGRESS: Final = "upgrade"
"""The row in the table `store` that keeps the progress."""


class Marked:
    """Counts of what was done."""

    marked = cleared = 0


class _Place(msgspec.Struct):
    """Where a scan goes on: which table, and after which key."""

    table: str
    after: Row | None = None


def mark_members(options: DynamoOptions, progress: Progress = lambda done, total: None) -> Marked:
    """Raise the version only when this is done."""
    with closing(Tables(options)) as tables:
        return _Marking(tables, progress).carry_out()


class _Marking:
    def __init__(self, tables: Tables, progress: Progress) -> None:
        self._tables = tables
        self._progress = progress
        self._done = Marked()

    def carry_out(self) -> Marked:
        version = self._tables.get(schema.STORE, schema_version.KEY)
        if schema_version.version_of(version) >= schema_version.MARKS:
            return self._done
        place = self._place()
        if place.table == schema.MEMBERSHIPS:
            for page in self._pages(place):
                self._mark(page)
            place = _Place(schema.POSITIONS)
        for page in self._pages(place):
            self._clear(page)
        self._tables.write(rows.delete(schema.STORE, {"name": PROGRESS}))
        return self._done

    # How far it has come.

    def _place(self) -> _Place:
        row = self._tables.get(schema.STORE, {"name": PROGRESS})
        if row is None:
            return _Place(schema.MEMBERSHIPS)
        return msgspec.json.decode(row["value"], type=_Place)

    def _pages(self, place: _Place) -> Iterator[list[Row]]:
        total, seen = self._tables.count(place.table), 0
        for page, after in self._tables.scan_from(place.table, place.after):
            yield page
            seen += len(page)
            self._progress(seen, max(seen, total))
            if after is not None:
                noted = msgspec.json.encode(_Place(place.table, after)).decode()
                self._tables.write(rows.put(schema.STORE, {"name": PROGRESS, "value": noted}))

    # Rows.

    def _mark(self, memberships: list[Row]) -> None:
        keys = [{"user_id": row["user_id"], "chat_id": row["chat_id"]} for row in memberships]
        found = self._tables.get_many(schema.POSITIONS, keys)
        for row in memberships:
            position = found.get((row["user_id"], row["chat_id"]), {})
            if position.get(marks.MARK) == row["joined_sequence"]:
                continue
            member, chat_id = values.MEMBER.value(row), ChatId(row["chat_id"])
            is_still_in = rows.check(
                schema.MEMBERSHIPS,
                {"chat_id": chat_id, "user_id": member.user_id},
                "#joined_sequence = :joined",
                joined=member.joined_sequence,
            )
            self._done.marked += self._tables.commit(is_still_in, marks.mark(chat_id, member))

    def _clear(self, positions: list[Row]) -> None:
        marked = [row for row in positions if marks.is_marked(row)]
        keys = [{"chat_id": row["chat_id"], "user_id": row["user_id"]} for row in marked]
        found = self._tables.get_many(schema.MEMBERSHIPS, keys)
        for key in keys:
            chat_id, user_id = ChatId(key["chat_id"]), UserId(key["user_id"])
            if (chat_id, user_id) in found:
                continue
            is_out = rows.check(schema.MEMBERSHIPS, key, "attribute_not_exists(#user_id)")
            unmark = marks.unmark(chat_id, user_id, now_ms=0)
            self._done.cleared += self._tables.commit(is_out, unmark)
