"""Reads what messages are now, after all changes; and the messages of a person to be erased.

The row of a message says how it was changed (`entries`); the text of its last edit is in one more
row, and the reactions to a whole page are one range of rows. Reactions to a deleted message mean
nothing any more: no reader looks at them, and they are swept when the deletion is stored, or when
the message is read the next time.
"""

from collections.abc import Sequence
from typing import Final

from tidewire.domain.chat_list import LastMessage, last_message_of
from tidewire.domain.fold import MessageNow
from tidewire.domain.ids import ChatId, UserId
from tidewire.domain.limits import PAGE_MESSAGES_MAX, SEQUENCE_MAX
from tidewire.engines.dynamodb import rows, schema, values
from tidewire.engines.dynamodb.acts import act
from tidewire.engines.dynamodb.entries import (
    Mark,
    StoredMessage,
    mark_key,
    mark_of,
    marks_range,
    reactions_of,
    stored_message_of,
)
from tidewire.engines.dynamodb.reading import Reading
from tidewire.engines.dynamodb.rows import Row

MARKS_MAX: Final = 5_000
"""How many reactions are read for a page. For messages beyond them no users are named, and the
reader's own reactions are read one by one; the counts are in the messages' rows."""
MARKS_PER_SWEEP: Final = 250
SWEEPS_MAX: Final = 100
"""How often one sweep reads; the rest is swept when the message is read the next time."""
MESSAGES_PER_LOOK: Final = 1_000
"""How many messages of a chat are read at a time to find those of one author."""


class Amended(Reading):
    _sweeping: set[tuple[ChatId, int]]
    """Messages whose reactions are being swept."""

    @act
    async def messages_now(
        self, reader: UserId, chat_id: ChatId, sequences: Sequence[int]
    ) -> dict[int, MessageNow]:
        assert len(sequences) <= PAGE_MESSAGES_MAX
        head = await self._head(chat_id)
        wanted = sorted({one for one in sequences if 1 <= one <= head})
        found = await self._stored_messages(chat_id, wanted)
        texts = await self._last_edits(chat_id, found)
        marks = await self._page_marks(chat_id, found, reader)
        await self._check_member(chat_id, reader)
        now: dict[int, MessageNow] = {}
        unswept = []
        for stored in found:
            sequence, deleted_by = stored.message.sequence, stored.message.deleted_by
            if deleted_by is not None:
                now[sequence] = MessageNow(deleted_sequence=deleted_by)
                if stored.reacted_by:
                    unswept.append(sequence)
            elif stored.edits or stored.reacted_by:
                now[sequence] = MessageNow(
                    content=texts.get(stored.edited_by),
                    edited_sequence=stored.edited_by,
                    reactions=reactions_of(stored, marks.get(sequence, ()), reader),
                )
        self._sweep_soon(chat_id, unswept)
        return now

    async def _stored_messages(
        self, chat_id: ChatId, sequences: Sequence[int]
    ) -> list[StoredMessage]:
        """The messages among the sequences. A page of history has all messages between its first
        and its last, so they are one range; those that lie further apart are read one by one."""
        if not sequences:
            return []
        found = await self._database.query(
            schema.MESSAGES,
            chat_id,
            between=(sequences[0], sequences[-1]),
            limit=len(sequences),
        )
        through = found[-1]["sequence"] if len(found) == len(sequences) else sequences[-1]
        further = await self._database.get_many(
            [
                (schema.MESSAGES, {"chat_id": chat_id, "sequence": one})
                for one in sequences
                if one > through
            ]
        )
        wanted = set(sequences)
        return [
            stored_message_of(row)
            for row in (*found, *further)
            if row is not None and row["sequence"] in wanted
        ]

    async def _last_edits(
        self, chat_id: ChatId, messages: Sequence[StoredMessage]
    ) -> dict[int, str]:
        """The texts of the messages' last edits, by the sequence of the edit."""
        edits = [one.edited_by for one in messages if one.edits and not one.message.is_deleted]

        async def look() -> list[Row] | None:
            found = await self._database.get_many(
                [(schema.AMENDMENTS, {"chat_id": chat_id, "sequence": edit}) for edit in edits]
            )
            there = [row for row in found if row is not None]
            return there if len(there) == len(edits) else None

        # An edit that was erased meanwhile has no content.
        found = await self._database.until_shown(look) if edits else []
        return {row["sequence"]: row["content"] for row in found if "content" in row}

    async def _page_marks(
        self, chat_id: ChatId, messages: Sequence[StoredMessage], reader: UserId
    ) -> dict[int, list[Mark]]:
        """The reactions to these messages, by message; if there are too many, some of them."""
        reacted = [one for one in messages if one.reacted_by and not one.message.is_deleted]
        if not reacted:
            return {}
        first, last = reacted[0].message.sequence, reacted[-1].message.sequence
        found = await self._database.query(
            schema.REACTIONS, chat_id, between=marks_range(first, last), limit=MARKS_MAX
        )
        marks = [mark_of(row) for row in found]
        if len(marks) == MARKS_MAX:
            beyond = [one for one in reacted if one.message.sequence >= marks[-1].target]
            marks = [mark for mark in marks if mark.target < marks[-1].target]
            marks += await self._own_marks(chat_id, beyond, reader)
        by_target: dict[int, list[Mark]] = {}
        for mark in marks:
            by_target.setdefault(mark.target, []).append(mark)
        return by_target

    async def _own_marks(
        self, chat_id: ChatId, messages: Sequence[StoredMessage], reader: UserId
    ) -> list[Mark]:
        wanted = [
            (schema.REACTIONS, mark_key(chat_id, Mark(one.message.sequence, emoji, reader)))
            for one in messages
            for emoji in one.counts
        ]
        found = await self._database.get_many(wanted)
        return [mark_of(row) for row in found if row is not None]

    # The chat list.

    async def _last_message(self, chat_id: ChatId, head_row: Row) -> LastMessage | None:
        """The last message of a chat, as it is now; None if there is none."""
        sequence = values.last_message(head_row)
        if not sequence:
            return None
        row = await self._database.until_shown(
            lambda: self._database.get(schema.MESSAGES, {"chat_id": chat_id, "sequence": sequence})
        )
        stored = stored_message_of(row)
        texts = await self._last_edits(chat_id, [stored])
        return last_message_of(stored.message, texts.get(stored.edited_by))

    # Sweeping.

    def _sweep_soon(self, chat_id: ChatId, targets: Sequence[int]) -> None:
        """Delete the reactions to deleted messages in the background."""
        for target in targets:
            if (chat_id, target) not in self._sweeping and not self._is_closed:
                self._sweeping.add((chat_id, target))
                _ = self._begin(self._sweep_reactions(chat_id, target))

    async def _sweep_reactions(self, chat_id: ChatId, target: int) -> None:
        """If this stops early, the message's row still says that there is something to sweep."""
        try:
            if await self._sweep_marks(chat_id, target):
                key: dict[str, rows.Value] = {"chat_id": chat_id, "sequence": target}
                swept = rows.change(
                    schema.MESSAGES, key, {"reacted_by": None}, where={"deleted_by": rows.PRESENT}
                )
                with self._database.within_budget():
                    await self._database.try_write(swept)
        finally:
            self._sweeping.discard((chat_id, target))

    async def _sweep_marks(self, chat_id: ChatId, target: int) -> bool:
        """True if no reaction is left."""
        for _ in range(SWEEPS_MAX):
            with self._database.within_budget():
                found = await self._database.query(
                    schema.REACTIONS,
                    chat_id,
                    between=marks_range(target, target),
                    limit=MARKS_PER_SWEEP,
                    fields="#chat_id, #reaction",
                )
                await self._database.delete_many(schema.REACTIONS, found)
            if len(found) < MARKS_PER_SWEEP:
                return True
        return False

    # A person who is to be forgotten.

    @act
    async def chats_of_author(
        self, user_id: UserId, *, after: ChatId | None, count_max: int
    ) -> list[ChatId]:
        """USER_CHATS has the chats of a member; rows of positions stay when a member leaves."""
        found = set()
        for table in (schema.USER_CHATS, schema.POSITIONS):
            own = await self._database.query(
                table, user_id, above=after, limit=count_max, fields="#chat_id"
            )
            found |= {ChatId(row["chat_id"]) for row in own}
        return sorted(found)[:count_max]

    @act
    async def messages_by(
        self, user_id: UserId, chat_id: ChatId, *, after: int, count_max: int
    ) -> list[int]:
        """Reads all messages of the chat, each read with its own budget."""
        own: list[int] = []
        while len(own) < count_max:
            with self._database.within_budget():
                found = await self._database.query(
                    schema.MESSAGES,
                    chat_id,
                    between=(after + 1, SEQUENCE_MAX),
                    limit=MESSAGES_PER_LOOK,
                    fields="#sequence, #sender_id, #deleted_by",
                )
            own += [
                row["sequence"]
                for row in found
                if row["sender_id"] == user_id and "deleted_by" not in row
            ]
            if len(found) < MESSAGES_PER_LOOK:
                break
            after = found[-1]["sequence"]
        return own[:count_max]
