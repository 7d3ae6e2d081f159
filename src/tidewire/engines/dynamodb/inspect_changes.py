"""Inspects what the store keeps of changed messages: the log, and the rows beside it.

The store changes during an inspection, and a read may see part of a commit. So rows are first read
in pages. Those that do not look sound are read again, together, as of one instant. The reactions to
a message may be too many for one such read. But each amendment of a message changes the message's
own row: that row, read before and after, shows whether a count of reactions is of one instant.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Final, NamedTuple

from tidewire.domain.errors import StoreUnavailable
from tidewire.domain.ids import ChatId
from tidewire.domain.messages import Amendment, EntryKind, Message
from tidewire.engines.dynamodb import schema, values
from tidewire.engines.dynamodb.amending import mark_id
from tidewire.engines.dynamodb.entries import (
    Mark,
    entry_of,
    mark_key,
    mark_of,
    marks_range,
    stored_message_of,
)
from tidewire.engines.dynamodb.looking import Place, Tables
from tidewire.engines.dynamodb.rows import Row
from tidewire.ports.inspection import ChangeRow, KeptRow, TargetRow

TRIES_MAX: Final = 100
"""How often something is read again because it changed meanwhile."""
SOURCES_PER_LOOK: Final = 250
"""How many rows of a page are compared with their entries at a time."""

Found = Mapping[tuple[object, ...], Row]
"""Rows by their table and key."""


class _Tally(NamedTuple):
    """The marks of one message, by emoji."""

    on: Mapping[str, int]
    """How many users have it on."""
    last: Mapping[str, int]
    """The last reaction with it."""


class _End(NamedTuple):
    """The end of a chat, as its head row says."""

    sequence: int
    last_message: int
    says_last_message: bool
    last_mention: int


class ChangeInspection:
    """`changes` and `kept` of an inspector."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    # The log.

    def changes(
        self, chat_id: ChatId, is_sound: Callable[[ChangeRow], bool]
    ) -> Iterator[Sequence[ChangeRow]]:
        head_row = self._tables.get(schema.CHATS, {"chat_id": chat_id})
        if head_row is None:
            return
        end = _End(
            head_row["last_sequence"],
            values.last_message(head_row),
            "last_message" in head_row,
            values.last_mention(head_row),
        )
        last_message = 0
        for page in self._tables.log(chat_id, end.sequence):
            spoken = [row["sequence"] for row in page if "kind" not in row]
            last_message = spoken[-1] if spoken else last_message
            concerning = [row for row in page if _concerns_others(row, end)]
            found = self._tables.get_places(
                [place for row in concerning for place in _places_of_entry(row)]
            )
            tallies: dict[int, _Tally] = {}
            changes = []
            for row in concerning:
                target = _tallied(row, found)
                if target is not None and target not in tallies:
                    tallies[target] = self._tally(chat_id, target)
                change = _change_row(row, found, tallies, end, last_message)
                changes.append(change if is_sound(change) else self._change_again(row, end))
            if changes:
                yield changes

    def _change_again(self, row: Row, end: _End) -> ChangeRow:
        """An entry with all rows that it is compared with, as of one instant."""
        chat_id, sequence = ChatId(row["chat_id"]), row["sequence"]
        own = _entry_place(row)
        for _ in range(TRIES_MAX):
            found = self._tables.get_places_together([own, *_places_of_entry(row, closely=True)])
            now = found.get(_key(own))
            if now is None or now != row:
                # It was deleted meanwhile: it is compared with other rows then.
                row = row if now is None else now
                continue
            tallies = {}
            target = _tallied(row, found)
            if target is not None:
                tallies[target] = self._tally(chat_id, target)
                place = _place(schema.MESSAGES, chat_id, target)
                after = self._tables.get_places_together([place])
                if after.get(_key(place)) != found.get(_key(place)):
                    continue
            last_message = self._last_message(chat_id, end) if sequence == end.sequence else 0
            return _change_row(row, found, tallies, end, last_message)
        raise StoreUnavailable(f"entry {sequence} of {chat_id} changed with each look; try again")

    def _last_message(self, chat_id: ChatId, end: _End) -> int:
        """The last message up to the end, as the messages themselves have it."""
        pages = self._tables.query(
            schema.MESSAGES, chat_id, between=(1, end.sequence), ascending=False, fields="#sequence"
        )
        return next((page[0]["sequence"] for page in pages), 0)

    def _tally(self, chat_id: ChatId, target: int) -> _Tally:
        on: Counter[str] = Counter()
        last: dict[str, int] = {}
        between = marks_range(target, target)
        for page in self._tables.query(schema.REACTIONS, chat_id, between=between):
            for mark in map(mark_of, page):
                on[mark.emoji] += mark.is_on
                last[mark.emoji] = max(last.get(mark.emoji, 0), mark.sequence)
        return _Tally(on, last)

    # What is kept beside it.

    def kept(self, is_sound: Callable[[KeptRow], bool]) -> Iterator[Sequence[KeptRow]]:
        for source in _SOURCES:
            for page in self._tables.scan_pages(source.table, having=source.having):
                rows = iter(page)
                while some := list(islice(rows, SOURCES_PER_LOOK)):
                    yield self._kept_by(source, some, is_sound)

    def _kept_by(
        self, source: "_Source", rows: Sequence[Row], is_sound: Callable[[KeptRow], bool]
    ) -> list[KeptRow]:
        found = self._tables.get_places([place for row in rows for place in source.places(row)])
        kept: list[KeptRow] = []
        for row in rows:
            own = list(source.kept(row, found))
            kept += own if all(map(is_sound, own)) else self._kept_again(source, row)
        return kept

    def _kept_again(self, source: "_Source", row: Row) -> list[KeptRow]:
        """What one row keeps, read with its entries as of one instant; nothing if it is gone."""
        own = (source.table, schema.key_of(source.table, row))
        for _ in range(TRIES_MAX):
            found = self._tables.get_places_together([own, *source.places(row)])
            now = found.get(_key(own))
            if now is None:
                return []
            if now == row:
                return list(source.kept(row, found))
            row = now
        raise StoreUnavailable(f"a row of {source.table} changed with each look; try again later")


# Entries.


def _concerns_others(row: Row, end: _End) -> bool:
    if any(name in row for name in ("kind", "reply_to", "mentions", "deleted_by")):
        return True
    # If the last entry is a message, the head row need not name it as the last message.
    return end.says_last_message and bool(row["sequence"] == end.sequence)


def _entry_place(row: Row) -> Place:
    table = schema.AMENDMENTS if "kind" in row else schema.MESSAGES
    return _place(table, row["chat_id"], row["sequence"])


def _places_of_entry(row: Row, *, closely: bool = False) -> Iterator[Place]:
    """The rows that an entry is compared with. `closely`: also an amendment, if it names one."""
    entry = entry_of(row)
    chat_id = entry.chat_id
    named = _named(entry)
    if named is not None:
        yield _place(schema.MESSAGES, chat_id, named)
        if closely:
            yield _place(schema.AMENDMENTS, chat_id, named)
    if entry.deleted_by is not None:
        yield _place(schema.AMENDMENTS, chat_id, entry.deleted_by)
        yield _place_of_key(entry)
    if entry.kind is EntryKind.REACT:
        yield schema.REACTIONS, mark_key(chat_id, Mark(*mark_id(entry)))


def _named(entry: Message) -> int | None:
    """The message that an entry amends or replies to."""
    return entry.reply_to if entry.amends is None else entry.amends.target


def _tallied(row: Row, found: Found) -> int | None:
    """The target of a reaction that may be the last one with its emoji, so its users must be
    counted. The message's row names the last one, unless all users have taken the emoji back."""
    entry = entry_of(row)
    if entry.kind is not EntryKind.REACT:
        return None
    target, emoji, _ = mark_id(entry)
    target_row = _row_at(found, schema.MESSAGES, entry.chat_id, target)
    if target_row is None or "deleted_by" in target_row:
        return None
    _, last = stored_message_of(target_row).counts.get(emoji, (0, 0))
    return target if entry.sequence >= last else None


def _change_row(
    row: Row, found: Found, tallies: Mapping[int, _Tally], end: _End, last_message: int
) -> ChangeRow:
    entry = entry_of(row)
    change = _said(entry)
    named = _named(entry)
    target_row = _row_at(found, schema.MESSAGES, entry.chat_id, named)
    if target_row is not None:
        target = TargetRow(True, "content" in target_row, target_row.get("deleted_by"))
        change = change._replace(target=target)
        if entry.kind is EntryKind.EDIT:
            is_kept = target.deleted_by is None and entry.sequence in target_row.get("edits", ())
            change = change._replace(kept=entry.sequence if is_kept else None)
        elif entry.kind is EntryKind.REACT:
            change = _with_reactions(change, entry, target_row, found, tallies)
    elif _row_at(found, schema.AMENDMENTS, entry.chat_id, named) is not None:
        change = change._replace(target=TargetRow(False, False, None))
    if entry.deleted_by is not None:
        change = _with_deletion(change, entry, found)
    # There is no index of mentions: readers look for unread ones up to the last mention.
    is_found = entry.sequence <= end.last_mention
    change = change._replace(found_mentions=entry.mentions if is_found else ())
    if entry.sequence == end.sequence:
        change = change._replace(message_before=end.last_message, chained_before=last_message)
    return change


def _with_reactions(
    change: ChangeRow,
    entry: Message,
    target_row: Row,
    found: Found,
    tallies: Mapping[int, _Tally],
) -> ChangeRow:
    target, emoji, user_id = mark_id(entry)
    key = mark_key(entry.chat_id, Mark(target, emoji, user_id))
    mark = found.get((schema.REACTIONS, *key.values()))
    kept = None if mark is None else mark["sequence"]
    reacted_by = target_row.get("reacted_by")
    if "deleted_by" in target_row:
        # The message keeps `reacted_by` until its reactions are swept.
        return change._replace(kept=kept if reacted_by is None else None)
    if reacted_by is None or reacted_by < entry.sequence:
        # Readers look for reactions only up to `reacted_by`.
        kept = reacted_by
    tally = tallies.get(target)
    if tally is None or entry.sequence < tally.last.get(emoji, 0):
        return change._replace(kept=kept)
    told = stored_message_of(target_row).counts.get(emoji, (0, 0))
    return change._replace(kept=kept, on_count=tally.on.get(emoji, 0), told=told)


def _with_deletion(change: ChangeRow, entry: Message, found: Found) -> ChangeRow:
    deletion = _row_at(found, schema.AMENDMENTS, entry.chat_id, entry.deleted_by)
    is_deletion = deletion is not None and deletion["kind"] == EntryKind.DELETE
    key_row = found.get(_key(_place_of_key(entry)))
    # A short text can be guessed from its hash.
    has_hash = key_row is not None and "content_hash" in key_row
    is_own = key_row is not None and key_row["sequence"] == entry.sequence
    return change._replace(
        deletes=deletion["target"] if deletion is not None and is_deletion else None,
        has_text=change.has_text or (has_hash and is_own),
    )


def _said(entry: Message) -> ChangeRow:
    """The fields of an entry itself."""
    return ChangeRow(
        entry.sequence,
        entry.sender_id,
        entry.amends,
        entry.reply_to,
        entry.mentions,
        entry.count,
        bool(entry.content),
        entry.deleted_by,
    )


# Rows that keep something of entries.


class _Source(NamedTuple):
    table: str
    having: Sequence[str]
    """Only rows with one of these attributes."""
    places: Callable[[Row], Iterable[Place]]
    kept: Callable[[Row, Found], Iterator[KeptRow]]


def _places_by_message(row: Row) -> Iterator[Place]:
    stored = stored_message_of(row)
    counted = [sequence for _, sequence in stored.counts.values()]
    for sequence in {*stored.edits, *counted, stored.reacted_by} - {0}:
        yield _place(schema.AMENDMENTS, row["chat_id"], sequence)


def _kept_by_message(row: Row, found: Found) -> Iterator[KeptRow]:
    """A deleted message keeps the sequences of its edits, and its last reaction until all reactions
    are swept."""
    stored = stored_message_of(row)
    chat_id, target = stored.message.chat_id, stored.message.sequence
    is_deleted = stored.message.is_deleted

    def kept(amends: Amendment, sequence: int, counted: int | None = None) -> KeptRow:
        """Only the entry has the user, and whether the reaction was taken back."""
        entry = _row_at(found, schema.AMENDMENTS, chat_id, sequence)
        said = None if entry is None else _said(entry_of(entry))
        if said is not None and said.amends is not None and amends.kind is EntryKind.REACT:
            emoji = said.amends.emoji if amends.emoji is None else amends.emoji
            amends = Amendment(
                kind=amends.kind, target=target, emoji=emoji, is_on=said.amends.is_on
            )
        user_id = "" if said is None else said.sender_id
        return KeptRow(chat_id, amends.kind, sequence, user_id, amends, said, is_deleted, counted)

    if not is_deleted:
        edit = Amendment(kind=EntryKind.EDIT, target=target)
        yield from (kept(edit, sequence) for sequence in stored.edits)
        if stored.reacted_by:
            yield kept(Amendment(kind=EntryKind.REACT, target=target), stored.reacted_by)
    for emoji, (count, sequence) in stored.counts.items():
        reaction = Amendment(kind=EntryKind.REACT, target=target, emoji=emoji)
        yield kept(reaction, sequence, count)


def _places_by_mark(row: Row) -> Iterator[Place]:
    mark = mark_of(row)
    yield _place(schema.AMENDMENTS, row["chat_id"], mark.sequence)
    yield _place(schema.MESSAGES, row["chat_id"], mark.target)


def _kept_by_mark(row: Row, found: Found) -> Iterator[KeptRow]:
    mark, chat_id = mark_of(row), ChatId(row["chat_id"])
    entry = _row_at(found, schema.AMENDMENTS, chat_id, mark.sequence)
    target = _row_at(found, schema.MESSAGES, chat_id, mark.target)
    yield KeptRow(
        chat_id,
        EntryKind.REACT,
        mark.sequence,
        mark.user_id,
        Amendment(kind=EntryKind.REACT, target=mark.target, emoji=mark.emoji, is_on=mark.is_on),
        None if entry is None else _said(entry_of(entry)),
        target is not None and "deleted_by" in target and "reacted_by" not in target,
    )


def _places_by_chat(row: Row) -> Iterator[Place]:
    yield _place(schema.MESSAGES, row["chat_id"], values.last_mention(row))


def _kept_by_chat(row: Row, found: Found) -> Iterator[KeptRow]:
    """The last message that mentions members; the head row still names it after its deletion."""
    chat_id, sequence = ChatId(row["chat_id"]), values.last_mention(row)
    entry = _row_at(found, schema.MESSAGES, chat_id, sequence)
    said = None if entry is None else _said(entry_of(entry))
    if said is None or said.deleted_by is None:
        user_id = next(iter(said.mentions), "") if said is not None else ""
        yield KeptRow(chat_id, EntryKind.MESSAGE, sequence, user_id, None, said, False)


_SOURCES: Final = (
    _Source(
        schema.MESSAGES, ("edits", "reactions", "reacted_by"), _places_by_message, _kept_by_message
    ),
    _Source(schema.REACTIONS, (), _places_by_mark, _kept_by_mark),
    _Source(schema.CHATS, ("last_mention",), _places_by_chat, _kept_by_chat),
)


# Places.


def _place(table: str, chat_id: str, sequence: int) -> Place:
    return table, {"chat_id": chat_id, "sequence": sequence}


def _place_of_key(entry: Message) -> Place:
    key = {"chat_id": entry.chat_id, "client_message_id": entry.client_message_id}
    return schema.KEYS, key


def _key(place: Place) -> tuple[object, ...]:
    table, key = place
    return (table, *key.values())


def _row_at(found: Found, table: str, chat_id: str, sequence: int | None) -> Row | None:
    return found.get((table, chat_id, sequence))
