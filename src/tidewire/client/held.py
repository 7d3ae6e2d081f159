"""Reads the entries that a client's store holds, and the state that they have given to the messages
that they name. `keeping` writes them.

Everything here runs inside a transaction that `store` begins and commits.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Final

import apsw
import msgspec
from msgspec.structs import replace

from tidewire.client.model import ChangeRow, MessageRow, entry_of
from tidewire.domain.fold import AS_WRITTEN, MessageNow, Reaction, fold
from tidewire.domain.ids import UserId
from tidewire.domain.limits import UNREAD_MAX, UNREAD_SCAN_MAX
from tidewire.domain.rows import PLAIN_FIELDS

Place = tuple[int, int]
"""A chat's number and a sequence in it."""

PLAIN_COLUMNS: Final = tuple(name.removesuffix("_ms") for name in PLAIN_FIELDS[1:])
NOW_COLUMNS: Final = ("new_content", "edited_sequence", "deleted_sequence", "reactions")
_ROW_COLUMNS: Final = MessageRow.__struct_fields__[:-2]
"""The last two fields of a row are computed from other rows."""
KEYS: Final = "(SELECT value FROM json_each(?))"
PLACES: Final = "(SELECT value->>0 AS c, value->>1 AS s FROM json_each(?))"
_OTHERS_ABOVE: Final = f"""
SELECT count(*) FROM (
    SELECT 1 FROM (
        SELECT is_own, is_deleted FROM entries INDEXED BY messages_alone
        WHERE chat = ?1 AND kind IS NULL AND is_gone = 0 AND sequence > ?2
        ORDER BY sequence DESC LIMIT {UNREAD_SCAN_MAX}
    ) WHERE is_own = 0 AND is_deleted = 0 LIMIT {UNREAD_MAX}
)"""  # noqa: S608 - constants
_MENTIONS_ABOVE: Final = f"""
SELECT count(*) FROM (
    SELECT 1 FROM entries INDEXED BY mentions
    WHERE chat = ?1 AND is_mention = 1 AND is_gone = 0 AND sequence > ?2 LIMIT {UNREAD_MAX}
)"""  # noqa: S608 - constants


_encode: Final = msgspec.json.Encoder().encode
_decode_reactions: Final = msgspec.json.Decoder(tuple[Reaction, ...]).decode


def encoded(rows: object) -> str:
    """Rows as the array of JSON that a statement takes."""
    return _encode(rows).decode()


class HeldEntries:
    """Reads inside the current transaction."""

    def __init__(self, database: apsw.Connection) -> None:
        self._database = database
        self._numbers: dict[str, int] = dict(database.execute("SELECT chat_id, number FROM chats"))

    def meta(self, name: str) -> Any:
        row = self._database.execute("SELECT value FROM meta WHERE name = ?", (name,)).fetchone()
        return None if row is None else row[0]

    # What has become of messages.

    def _nows(self, places: Iterable[Place]) -> dict[Place, MessageNow]:
        rows = self._database.execute(
            f"SELECT c, s, {', '.join(NOW_COLUMNS)} FROM {PLACES} "  # noqa: S608
            "JOIN nows ON in_chat = c AND of_sequence = s",
            (encoded(list(places)),),
        )
        return {(number, sequence): _now(*values) for number, sequence, *values in rows}

    def _now_at(self, number: int, target: int, before: int | None, own_id: UserId) -> MessageNow:
        """The state of a message before an entry (None: now), computed from the entries held."""
        now = AS_WRITTEN
        rows = self._kept(
            "chat = ? AND target = ? AND sequence < ? AND is_gone = 0 ORDER BY sequence",
            (number, target, before or (1 << 62)),
        )
        for row in rows:
            now = fold(now, entry_of(row), own_id)
        return now

    # Messages.

    def _kept(self, condition: str, values: tuple[object, ...]) -> list[MessageRow]:
        """Entries; a message comes with its current state."""
        rows = self._database.execute(
            f"SELECT {', '.join((*_ROW_COLUMNS, *NOW_COLUMNS))} "  # noqa: S608
            "FROM entries JOIN chats ON number = chat "
            f"LEFT JOIN nows ON in_chat = chat AND of_sequence = sequence WHERE {condition}",
            values,
        )
        return [
            MessageRow(*values)
            if edited is None
            else replace(MessageRow(*values), now=_now(content, edited, deleted, reactions))
            for *values, content, edited, deleted, reactions in rows
        ]

    def _with_quotes(self, rows: list[MessageRow]) -> list[MessageRow]:
        """Add to each reply the message that it replies to, if that is held."""
        wanted = {
            (row.chat_id, reply_to)
            for row in rows
            if row.extra is not None and (reply_to := entry_of(row).reply_to) is not None
        }
        if not wanted:
            return rows
        places = [(self._numbers[chat_id], sequence) for chat_id, sequence in sorted(wanted)]
        found = {
            (row.chat_id, row.sequence): row
            for row in self._kept(
                f"(chat, sequence) IN {PLACES} AND kind IS NULL AND is_gone = 0",
                (encoded(places),),
            )
        }
        return [
            row
            if row.extra is None
            else replace(row, quoted=found.get((row.chat_id, entry_of(row).reply_to or 0)))
            for row in rows
        ]

    def messages(
        self, chat_id: str, *, before: int | None, after: int, limit: int, newest_first: bool
    ) -> list[MessageRow]:
        """Stored messages of a chat between two sequences, ascending."""
        kept = self._kept(
            "chat = ? AND kind IS NULL AND is_gone = 0 AND sequence < ? AND sequence > ? "
            f"ORDER BY sequence {'DESC' if newest_first else 'ASC'} LIMIT ?",
            (self._numbers.get(chat_id, -1), before or (1 << 62), after, limit),
        )
        return self._with_quotes(kept[::-1] if newest_first else kept)

    def at(self, chat_id: str, sequences: Iterable[int]) -> dict[int, MessageRow]:
        """Those of these messages that are stored."""
        number = self._numbers.get(chat_id, -1)
        kept = self._kept(
            f"chat = ? AND kind IS NULL AND is_gone = 0 AND sequence IN {KEYS}",
            (number, encoded(list(sequences))),
        )
        return {row.sequence: row for row in self._with_quotes(kept)}

    def gone(self, chat_id: str, limit: int) -> list[MessageRow]:
        """Messages that the server lost in a restore; this device still has them."""
        number = self._numbers.get(chat_id, -1)
        kept = self._kept(
            "chat = ? AND kind IS NULL AND is_gone = 1 ORDER BY sequence DESC LIMIT ?",
            (number, limit),
        )
        return kept[::-1]

    def search(self, text: str, chat_id: str | None, limit: int) -> list[MessageRow]:
        """Stored messages whose current text contains this one, ignoring case; newest first."""
        return self._with_quotes(
            self._kept(
                "kind IS NULL AND is_gone = 0 AND is_deleted = 0 AND (?1 IS NULL OR chat_id = ?1) "
                "AND instr(folded(coalesce(new_content, content)), ?2) > 0 "
                "ORDER BY position DESC LIMIT ?3",
                (chat_id, text.casefold(), limit),
            )
        )

    def changes(self, chat_id: str, *, after: int, limit: int) -> list[MessageRow]:
        """Stored entries of a chat that amend messages, above a sequence, ascending."""
        return self._kept(
            "chat = ? AND target IS NOT NULL AND is_gone = 0 AND sequence > ? "
            "ORDER BY sequence LIMIT ?",
            (self._numbers.get(chat_id, -1), after, limit),
        )

    def count_unread(self, chat_id: str, above: int) -> tuple[int, int]:
        """Messages of others above a sequence that are not erased, and how many of them mention the
        user, as the server counts."""
        where = (self._numbers.get(chat_id, -1), above)
        [(others,)] = self._database.execute(_OTHERS_ABOVE, where)
        [(mentions,)] = self._database.execute(_MENTIONS_ABOVE, where)
        return int(others), int(mentions)

    def entries_after(self, position: int, limit: int) -> list[MessageRow | ChangeRow]:
        """Messages and amendments that were stored after a position, in stored order."""
        rows = self._with_quotes(
            self._kept(
                "position > ? AND (kind IS NULL OR target IS NOT NULL) ORDER BY position LIMIT ?",
                (position, limit),
            )
        )
        changes = self._changes([row for row in rows if row.target is not None])
        return [changes.get(row.position, row) for row in rows]

    def _changes(self, amendments: Sequence[MessageRow]) -> dict[int, ChangeRow]:
        """By position: amendments with their messages, and the states of these before and after."""
        own_id = UserId(str(self.meta("user_id") or ""))
        places = {(self._numbers[row.chat_id], row.target or 0): None for row in amendments}
        messages = self._targets(list(places)) if places else {}
        nows: dict[Place, MessageNow] = {}
        changes: dict[int, ChangeRow] = {}
        for row in amendments:
            place = self._numbers[row.chat_id], row.target or 0
            message = messages.get(place)
            before = nows.get(place)
            if before is None:
                before = self._now_at(*place, row.sequence, own_id)
            after = nows[place] = fold(before, entry_of(row), own_id)
            if message is not None and message.is_erased:
                before = after = message.now
            changes[row.position] = ChangeRow(row, message, before, after)
        return changes

    def _targets(self, places: Sequence[Place]) -> dict[Place, MessageRow]:
        kept = self._kept(
            f"(chat, sequence) IN {PLACES} AND kind IS NULL AND is_gone = 0", (encoded(places),)
        )
        return {(self._numbers[row.chat_id], row.sequence): row for row in self._with_quotes(kept)}


def _now(
    content: str | None, edited_sequence: int, deleted_sequence: int, reactions: str | None
) -> MessageNow:
    return MessageNow(
        content=content,
        edited_sequence=edited_sequence,
        deleted_sequence=deleted_sequence,
        reactions=() if reactions is None else _decode_reactions(reactions),
    )
