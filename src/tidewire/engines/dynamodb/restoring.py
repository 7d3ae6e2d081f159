"""After a restore from backup: make the tables agree again, and begin another life of the store.

Tables are restored one by one, each as of its own second. The messages are what is true: heads are
built from them, positions above them are lies now, and every counter jumps so far ahead that no
number of the life before is given out again (P-02). Nobody may use the store meanwhile. Doing it
again is safe.
"""

import secrets
from collections.abc import Callable
from dataclasses import dataclass

from tidewire.domain.ids import ChatId
from tidewire.domain.limits import RESTORE_SEQUENCE_JUMP, SEQUENCE_MAX
from tidewire.engines.dynamodb import rows, schema, values
from tidewire.engines.dynamodb.looking import Tables
from tidewire.engines.dynamodb.options import DynamoOptions
from tidewire.engines.dynamodb.rows import Row
from tidewire.engines.dynamodb.tables import EPOCH_BYTES

Progress = Callable[[int, int], None]


@dataclass(slots=True)
class Restored:
    """What was done."""

    epoch: str = ""
    chats: int = 0
    heads_moved: int = 0
    positions_lowered: int = 0
    memberships_listed: int = 0
    """Rows of users' lists that were written or deleted."""
    events_forgotten: int = 0
    """Rows of the outbox: what was to be pushed in the life before."""
    sessions_ended: int = 0


def after_restore(
    options: DynamoOptions, *, now_ms: int, keep_sessions: bool, progress: Progress
) -> Restored:
    tables = Tables(options)
    try:
        return _Restore(tables, now_ms).carry_out(keep_sessions=keep_sessions, progress=progress)
    finally:
        tables.close()


class _Restore:
    def __init__(self, tables: Tables, now_ms: int) -> None:
        self._tables = tables
        self._now_ms = now_ms
        self._done = Restored()
        self._heads: dict[str, int] = {}
        self._highest: dict[str, int] = {}
        """Per chat the highest number that any row has seen."""
        self._members: dict[str, int] = {}
        """Per chat how many there are."""

    def carry_out(self, *, keep_sessions: bool, progress: Progress) -> Restored:
        chats = [row for page in self._tables.scan(schema.CHATS) for row in page]
        for index, chat in enumerate(chats):
            newest = self._tables.newest_message(ChatId(chat["chat_id"]))
            head = 0 if newest is None else newest["sequence"]
            self._heads[chat["chat_id"]] = head
            self._see(chat["chat_id"], max(head, chat["last_sequence"]))
            progress(index + 1, 2 * len(chats))
        self._bound_positions()
        self._list_memberships()
        for index, chat in enumerate(chats):
            self._mend(chat)
            progress(len(chats) + index + 1, 2 * len(chats))
        # It may name messages that are gone, and every client syncs anew anyway.
        self._done.events_forgotten = self._empty(schema.OUTBOX)
        if not keep_sessions:
            self._end_sessions()
        self._done.epoch = secrets.token_hex(EPOCH_BYTES)
        self._tables.write(rows.put(schema.STORE, {"name": "epoch", "value": self._done.epoch}))
        return self._done

    def _see(self, chat_id: str, sequence: int) -> None:
        self._highest[chat_id] = max(self._highest.get(chat_id, 0), sequence)

    def _bound_positions(self) -> None:
        """Nobody has received or read what is not there any more."""
        for page in self._tables.scan(schema.POSITIONS):
            for row in page:
                head = self._heads.get(row["chat_id"], 0)
                found = values.positions_of(row)
                self._see(row["chat_id"], max(found.delivered, found.read))
                hidden = row.get("hidden_through", 0)
                if max(found.delivered, found.read, hidden) <= head:
                    continue
                lowered = {
                    "last_acked_sequence": min(found.delivered, head),
                    "last_read_sequence": min(found.read, head),
                }
                if "hidden_through" in row:
                    lowered["hidden_through"] = min(hidden, head)
                self._tables.write(rows.put(schema.POSITIONS, row | lowered))
                self._done.positions_lowered += 1

    def _list_memberships(self) -> None:
        """The memberships are what is true of who is in; users' lists of chats follow."""
        listed: set[tuple[str, str]] = set()
        kinds = {
            row["chat_id"]: row["chat_type"]
            for page in self._tables.scan(schema.CHATS)
            for row in page
        }
        for page in self._tables.scan(schema.MEMBERSHIPS):
            keys = [{"user_id": row["user_id"], "chat_id": row["chat_id"]} for row in page]
            found = self._tables.get_many(schema.USER_CHATS, keys)
            for row in page:
                chat_id, user_id = row["chat_id"], row["user_id"]
                listed.add((user_id, chat_id))
                self._members[chat_id] = self._members.get(chat_id, 0) + 1
                self._bound_joining(row)
                if (user_id, chat_id) not in found and chat_id in kinds:
                    entry = {
                        "user_id": user_id,
                        "chat_id": chat_id,
                        "chat_type": kinds[chat_id],
                        "joined_at": row["joined_at"],
                    }
                    self._tables.write(rows.put(schema.USER_CHATS, entry))
                    self._done.memberships_listed += 1
        for page in self._tables.scan(schema.USER_CHATS):
            for row in page:
                if (row["user_id"], row["chat_id"]) not in listed:
                    key = {"user_id": row["user_id"], "chat_id": row["chat_id"]}
                    self._tables.write(rows.delete(schema.USER_CHATS, key))
                    self._done.memberships_listed += 1

    def _bound_joining(self, row: Row) -> None:
        head = self._heads.get(row["chat_id"], 0)
        self._see(row["chat_id"], row["joined_sequence"])
        if row["joined_sequence"] > head:
            self._tables.write(rows.put(schema.MEMBERSHIPS, row | {"joined_sequence": head}))

    def _mend(self, chat: Row) -> None:
        """One chat: its head, its counter, and a version above all that was known of it."""
        chat_id = chat["chat_id"]
        head = self._heads[chat_id]
        newest = self._tables.newest_message(ChatId(chat_id))
        self._done.chats += 1
        self._done.heads_moved += head != chat["last_sequence"]
        mended = chat | {
            "last_sequence": head,
            "last_message_at": 0 if newest is None else newest["created_at"],
            "membership_version": chat["membership_version"] + RESTORE_SEQUENCE_JUMP,
            "member_count": 0 if chat["status"] == values.CLOSED else self._members.get(chat_id, 0),
        }
        self._tables.write(rows.put(schema.CHATS, mended))
        counter = self._tables.get(schema.COUNTERS, {"chat_id": chat_id})
        if counter is None:
            # Write-blocked, as ever: an operator recovers it, and `tidewire verify` names it.
            return
        highest = max(counter["sequence_counter"], self._highest.get(chat_id, 0))
        jumped = min(highest + RESTORE_SEQUENCE_JUMP, SEQUENCE_MAX)
        moved = {"sequence_counter": jumped, "updated_at": self._now_ms}
        self._tables.write(rows.put(schema.COUNTERS, counter | moved))

    def _end_sessions(self) -> None:
        """A login that was ended after the backup was made must not come back to life."""
        self._empty(schema.USER_SESSIONS)
        self._done.sessions_ended = self._empty(schema.SESSIONS)

    def _empty(self, table: str) -> int:
        """Delete all rows; how many there were."""
        count = 0
        for page in self._tables.scan(table):
            for row in page:
                key = {name: row[name] for name in schema.BY_NAME[table].keys}
                self._tables.write(rows.delete(table, key))
                count += 1
        return count
