"""After a restore from backup: makes the tables agree again, and begins a new epoch of the store.

Tables are restored one by one, each as of its own second. The log is what is true: it is mended
(`mending`), heads are built from it, positions above it are lowered, and every counter jumps so far
ahead that no number of the epoch before is given out again (P-02). Reads every message once, every
amendment twice. No process may use the store meanwhile. Doing it again is safe.
"""

import secrets
from collections.abc import Callable
from contextlib import closing

from tidewire.domain.ids import ChatId, UserId
from tidewire.domain.limits import RESTORE_SEQUENCE_JUMP, SEQUENCE_MAX
from tidewire.engines.dynamodb import marks, rows, schema, schema_version, values
from tidewire.engines.dynamodb.looking import Tables
from tidewire.engines.dynamodb.mending import LogEnd, LogMending
from tidewire.engines.dynamodb.options import DynamoOptions
from tidewire.engines.dynamodb.rows import Row
from tidewire.engines.dynamodb.tables import EPOCH_BYTES

Progress = Callable[[int, int], None]


class Restored:
    """Counts of what was done. Entries are rows of the log and of the tables beside it; memberships
    are rows of users' chat lists that were written or deleted; events are rows of the outbox, which
    were still to be pushed in the epoch before."""

    epoch = ""
    chats = heads_moved = entries_mended = positions_lowered = memberships_listed = 0
    events_forgotten = sessions_ended = 0


def after_restore(
    options: DynamoOptions, *, now_ms: int, keep_sessions: bool, progress: Progress
) -> Restored:
    with closing(Tables(options)) as tables:
        return _Restore(tables, now_ms).carry_out(keep_sessions=keep_sessions, progress=progress)


class _Restore:
    def __init__(self, tables: Tables, now_ms: int) -> None:
        self._tables = tables
        self._now_ms = now_ms
        self._done = Restored()
        self._ends: dict[str, LogEnd] = {}
        self._highest: dict[str, int] = {}
        """By chat: the highest sequence in any row."""
        self._members: dict[str, int] = {}
        """By chat: the number of members."""

    def carry_out(self, *, keep_sessions: bool, progress: Progress) -> Restored:
        chats = list(self._tables.scan(schema.CHATS))
        for index, chat in enumerate(chats):
            chat_id = ChatId(chat["chat_id"])
            highest = self._tables.highest_entry(chat_id)
            end = self._ends[chat_id] = LogMending(self._tables, chat_id).carry_out()
            self._done.entries_mended += end.rows_mended
            self._see(chat_id, max(highest, chat["last_sequence"]))
            progress(index + 1, 2 * len(chats))
        self._bound_positions()
        self._list_memberships()
        self._mark_members()
        for index, chat in enumerate(chats):
            self._mend(chat)
            progress(len(chats) + index + 1, 2 * len(chats))
        # The outbox may name messages that are gone, and every client syncs anew anyway.
        self._done.events_forgotten = self._empty(schema.OUTBOX)
        if not keep_sessions:
            self._end_sessions()
        self._done.epoch = secrets.token_hex(EPOCH_BYTES)
        self._tables.write(rows.put(schema.STORE, {"name": "epoch", "value": self._done.epoch}))
        return self._done

    def _head(self, chat_id: str) -> int:
        return self._ends[chat_id].head if chat_id in self._ends else 0

    def _see(self, chat_id: str, sequence: int) -> None:
        self._highest[chat_id] = max(self._highest.get(chat_id, 0), sequence)

    def _bound_positions(self) -> None:
        """Lower positions to the head: messages that are gone count as not received, not read."""
        for row in self._tables.scan(schema.POSITIONS):
            head = self._head(row["chat_id"])
            found = values.positions_of(row)
            self._see(row["chat_id"], max(found.delivered, found.read))
            hidden = row.get("hidden_through", 0)
            if max(found.delivered, found.read, hidden) <= head:
                continue
            names = ("last_acked_sequence", "last_read_sequence", "hidden_through")
            lowered = {name: min(row[name], head) for name in names if name in row}
            self._tables.write(rows.put(schema.POSITIONS, row | lowered))
            self._done.positions_lowered += 1

    def _list_memberships(self) -> None:
        """Make users' lists of chats agree with the memberships, which say who is in a chat."""
        listed: set[tuple[str, str]] = set()
        kinds = {row["chat_id"]: row["chat_type"] for row in self._tables.scan(schema.CHATS)}
        for page in self._tables.scan_pages(schema.MEMBERSHIPS):
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
        for row in self._tables.scan(schema.USER_CHATS):
            if (row["user_id"], row["chat_id"]) not in listed:
                key = schema.key_of(schema.USER_CHATS, row)
                self._tables.write(rows.delete(schema.USER_CHATS, key))
                self._done.memberships_listed += 1

    def _mark_members(self) -> None:
        """Mark the rows of positions of members, as the memberships say, and no other rows."""
        members = {
            (row["user_id"], row["chat_id"]): values.MEMBER.value(row)
            for row in self._tables.scan(schema.MEMBERSHIPS)
        }
        for row in self._tables.scan(schema.POSITIONS):
            user_id, chat_id = UserId(row["user_id"]), ChatId(row["chat_id"])
            member = members.pop((user_id, chat_id), None)
            joined = None if member is None else member.joined_sequence
            if row.get(marks.MARK) != joined:
                self._tables.write(rows.put(schema.POSITIONS, row | {marks.MARK: joined}))
        for (_, chat_id), member in members.items():
            self._tables.write(rows.put(schema.POSITIONS, marks.first_row(chat_id, member)))
        newest = schema_version.KEY | {"value": schema_version.NEWEST}
        self._tables.write(rows.put(schema.STORE, newest))

    def _bound_joining(self, row: Row) -> None:
        head = self._head(row["chat_id"])
        self._see(row["chat_id"], row["joined_sequence"])
        if row["joined_sequence"] > head:
            self._tables.write(rows.put(schema.MEMBERSHIPS, row | {"joined_sequence": head}))

    def _mend(self, chat: Row) -> None:
        """Mend one chat: its head, its counter, and a version above all that were known of it."""
        chat_id = chat["chat_id"]
        end = self._ends[chat_id]
        self._done.chats += 1
        self._done.heads_moved += end.head != chat["last_sequence"]
        mended = chat | {
            "last_sequence": end.head,
            "last_message": None if end.last_message == end.head else end.last_message,
            "last_message_at": end.last_message_at,
            "last_mention": end.last_mention or None,
            "membership_version": chat["membership_version"] + RESTORE_SEQUENCE_JUMP,
            "member_count": 0 if chat["status"] == values.CLOSED else self._members.get(chat_id, 0),
        }
        self._tables.write(rows.put(schema.CHATS, mended))
        counter = self._tables.get(schema.COUNTERS, {"chat_id": chat_id})
        if counter is None:
            # The chat stays write-blocked: `tidewire verify` names it, an operator recovers it.
            return
        highest = max(counter["sequence_counter"], self._highest.get(chat_id, 0))
        jumped = min(highest + RESTORE_SEQUENCE_JUMP, SEQUENCE_MAX)
        # Numbers that were open at the time of the backup may have been used since.
        moved = {"sequence_counter": jumped, "updated_at": self._now_ms, "open_above": None}
        self._tables.write(rows.put(schema.COUNTERS, counter | moved))

    def _end_sessions(self) -> None:
        """A login that ended after the backup was made must not become valid again."""
        self._empty(schema.USER_SESSIONS)
        self._done.sessions_ended = self._empty(schema.SESSIONS)

    def _empty(self, table: str) -> int:
        """Delete all rows; return how many there were."""
        count = 0
        for row in self._tables.scan(table):
            self._tables.write(rows.delete(table, schema.key_of(table, row)))
            count += 1
        return count
