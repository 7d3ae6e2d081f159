"""Inspects a DynamoDB store.

The store changes meanwhile: what can change is read in an order that gives no false alarm
(`ports.inspection`). The ids of all messages, and the keys of one chat, are kept in memory.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from tidewire.domain.chats import ChatType, pair_key
from tidewire.domain.delivery import effective
from tidewire.domain.errors import StoreUnavailable
from tidewire.domain.ids import ChatId, UserId, place_in
from tidewire.engines.dynamodb import marks, schema, schema_version, values
from tidewire.engines.dynamodb.entries import PLACED_ID, message_id_of
from tidewire.engines.dynamodb.inspect_changes import ChangeInspection
from tidewire.engines.dynamodb.looking import Tables
from tidewire.engines.dynamodb.options import DynamoOptions
from tidewire.engines.dynamodb.rows import Row
from tidewire.ports import inspection

TRIES_MAX: Final = 100
"""How often a chat is read again because its members changed meanwhile."""


class DynamoInspector:
    """Satisfies `ports.inspection.Inspector`. A message is identified by chat and sequence."""

    def __init__(self, options: DynamoOptions) -> None:
        self._tables = Tables(options)
        row = self._tables.get(schema.STORE, {"name": "epoch"})
        self._epoch = "" if row is None else str(row["value"])
        version = self._tables.get(schema.STORE, schema_version.KEY)
        self._has_marks = schema_version.version_of(version) >= schema_version.MARKS
        self._changes = ChangeInspection(self._tables)

    @property
    def epoch(self) -> str:
        return self._epoch

    def close(self) -> None:
        self._tables.close()

    def messages_estimate(self) -> int:
        return self._tables.count(schema.MESSAGES) + self._tables.count(schema.AMENDMENTS)

    def chats(self) -> Iterator[inspection.ChatRow]:
        named = {
            ChatId(row["chat_id"])
            for table in (schema.CHATS, schema.COUNTERS)
            for row in self._tables.scan(table)
        }
        for chat_id in sorted(named):
            row = self._chat(chat_id)
            if row is not None:
                yield row

    def messages(self, chat: inspection.ChatRow) -> Iterator[Sequence[inspection.MessageRow]]:
        for page in self._tables.log(chat.chat_id, chat.head):
            yield [
                (
                    row["sequence"],
                    row["prev_sequence"],
                    None,
                    message_id_of(row) or "",
                    row["client_message_id"],
                    (row["chat_id"], row["sequence"]),
                    False,
                )
                for row in page
            ]

    def keys(self, chat: inspection.ChatRow) -> Iterator[Sequence[inspection.EntryRow]]:
        """An expired key is gone, or will be: the entry of its message is used instead."""
        entries: dict[tuple[str, int], str] = {
            (row["chat_id"], row["sequence"]): row["client_message_id"]
            for page in self._tables.query(schema.KEYS, chat.chat_id)
            for row in page
            if row["sequence"] <= chat.head
        }
        for page in self.messages(chat):
            for message in page:
                entries.setdefault((chat.chat_id, message[0]), message[4])
        if entries:
            yield sorted((key, identity) for identity, key in entries.items())

    def message_ids(self) -> Iterator[Sequence[inspection.EntryRow]]:
        """An id that is not in the index contains its own place."""
        entries = []
        for table in (schema.MESSAGES, schema.AMENDMENTS):
            entries += [
                (row["message_id"], (row["chat_id"], row["sequence"]))
                for row in self._tables.scan(table, index=schema.MESSAGE_ID_INDEX)
            ]
            entries += [
                (row[PLACED_ID], (row["chat_id"], place_in(row[PLACED_ID])))
                for row in self._tables.scan(table)
                if PLACED_ID in row
            ]
        if entries:
            yield sorted(entries)

    def changes(
        self, chat: inspection.ChatRow, is_sound: Callable[[inspection.ChangeRow], bool]
    ) -> Iterator[Sequence[inspection.ChangeRow]]:
        return self._changes.changes(chat.chat_id, is_sound)

    def kept(
        self, is_sound: Callable[[inspection.KeptRow], bool]
    ) -> Iterator[Sequence[inspection.KeptRow]]:
        return self._changes.kept(is_sound)

    def positions(self) -> Iterator[Sequence[inspection.PositionRow]]:
        """Includes members whose position has never moved: it is 0."""
        for page in self._tables.scan_pages(schema.POSITIONS):
            yield self._bounded(page)
        for page in self._tables.scan_pages(schema.MEMBERSHIPS):
            keys = [{"user_id": row["user_id"], "chat_id": row["chat_id"]} for row in page]
            found = self._tables.get_many(schema.POSITIONS, keys)
            unmoved = [key for key in keys if (key["user_id"], key["chat_id"]) not in found]
            yield self._bounded(
                [key | {"last_acked_sequence": 0, "last_read_sequence": 0} for key in unmoved]
            )

    def _bounded(self, page: Sequence[Row]) -> list[inspection.PositionRow]:
        """Positions were read first, now heads, then counters: each bounds the one before it."""
        chat_keys = [{"chat_id": one} for one in {row["chat_id"] for row in page}]
        chats = self._tables.get_many(schema.CHATS, chat_keys)
        counters = self._tables.get_many(schema.COUNTERS, chat_keys)
        keys = [{"chat_id": row["chat_id"], "user_id": row["user_id"]} for row in page]
        members = self._tables.get_many(schema.MEMBERSHIPS, keys)
        found = []
        for row in page:
            chat_id, user_id = row["chat_id"], row["user_id"]
            member = members.get((chat_id, user_id), {})
            joined, marked = self._joined(row, member)
            found.append(
                inspection.PositionRow(
                    user_id=user_id,
                    chat_id=chat_id,
                    delivered=row["last_acked_sequence"],
                    read=row["last_read_sequence"],
                    joined_sequence=marked,
                    membership_joined=joined,
                    head=chats.get((chat_id,), {}).get("last_sequence", 0),
                    counter=counters.get((chat_id,), {}).get("sequence_counter"),
                    chat_exists=(chat_id,) in chats,
                    hidden_through=row.get("hidden_through"),
                )
            )
        return found

    def _joined(self, row: Row, member: Row) -> tuple[int | None, int | None]:
        """Where the owner of a row of positions joined: by membership, and by the row's mark."""
        joined, marked = member.get("joined_sequence"), row.get(marks.MARK)
        if not self._has_marks:
            # The rows of positions have no marks yet.
            return joined, joined
        if joined != marked:
            # The two were read one after the other; a member may have come or gone between.
            chat_id, user_id = ChatId(row["chat_id"]), UserId(row["user_id"])
            both = self._tables.get_together(
                (schema.MEMBERSHIPS, {"chat_id": chat_id, "user_id": user_id}),
                (schema.POSITIONS, marks.position_key(chat_id, user_id)),
            )
            joined, marked = (None if one is None else one.get(marks.MARK) for one in both)
        return joined, marked

    def direct_pairs(self) -> Iterator[Sequence[inspection.PairRow]]:
        pairs = sorted(
            (row["pair_key"], ChatId(row["chat_id"]))
            for row in self._tables.scan(schema.DIRECT_CHATS)
        )
        keys = [{"chat_id": one} for one in {chat_id for _, chat_id in pairs}]
        chats = self._tables.get_many(schema.CHATS, keys)
        yield [
            (pair, chat_id, chats[chat_id,]["chat_type"] if (chat_id,) in chats else None)
            for pair, chat_id in pairs
        ]

    def _chat(self, chat_id: ChatId) -> inspection.ChatRow | None:
        """A chat as of one membership version; None for a group that is still being made."""
        before = self._tables.get(schema.CHATS, {"chat_id": chat_id})
        for _ in range(TRIES_MAX):
            members = self._members(chat_id)
            positions = self._tables.get_many(
                schema.POSITIONS,
                [{"user_id": row["user_id"], "chat_id": chat_id} for row in members],
            )
            row = self._tables.get(schema.CHATS, {"chat_id": chat_id})
            counter_row = self._tables.get(schema.COUNTERS, {"chat_id": chat_id})
            counter = None if counter_row is None else counter_row["sequence_counter"]
            if row is None:
                return inspection.ChatRow(chat_id, None, 0, (), counter, 0, None, None, None)
            if row["status"] == values.PENDING:
                return None
            if row["status"] == values.CLOSED:
                # Rows of members that are not swept yet mean nothing any more.
                return self._row(row, (), {}, counter)
            if before is not None and before["membership_version"] == row["membership_version"]:
                return self._row(row, members, positions, counter)
            before = row
        raise StoreUnavailable(f"the members of {chat_id} changed with each look; try again later")

    def _members(self, chat_id: ChatId) -> list[Row]:
        return [row for page in self._tables.query(schema.MEMBERSHIPS, chat_id) for row in page]

    def _row(
        self,
        row: Row,
        members: Sequence[Row],
        positions: dict[tuple[str, ...], Row],
        counter: int | None,
    ) -> inspection.ChatRow:
        chat_id = ChatId(row["chat_id"])
        listed: list[inspection.MemberRow] = []
        for member in members:
            own = values.positions_of(positions.get((member["user_id"], chat_id)))
            joined = member["joined_sequence"]
            listed.append((member["user_id"], member["role"], joined, own.delivered, own.read))
        is_direct = row["chat_type"] == ChatType.DIRECT
        return inspection.ChatRow(
            chat_id=chat_id,
            chat_type=row["chat_type"],
            member_count=row["member_count"],
            members=listed,
            counter=counter,
            head=row["last_sequence"],
            pair_key=self._pair(chat_id, members) if is_direct else None,
            # There is no index of floors: they are computed from these very rows.
            floor_delivered=min((effective(one[3] or 0, one[2]) for one in listed), default=None),
            floor_read=min((effective(one[4] or 0, one[2]) for one in listed), default=None),
            marked=[member["user_id"] for member in members if member.get("blocked")],
            blocked=self._blocked(members) if is_direct else (),
            is_closed=row["status"] == values.CLOSED,
            membership_version=row["membership_version"],
            block_changes=row.get("block_changes", 0),
            refusing=() if is_direct else self._refusing(chat_id, members),
        )

    def _pair(self, chat_id: ChatId, members: Sequence[Row]) -> str | None:
        users = [UserId(member["user_id"]) for member in members]
        if len(users) != 2:
            return None
        key = pair_key(users[0], users[1])
        found = self._tables.get(schema.DIRECT_CHATS, {"pair_key": key})
        return key if found is not None and found["chat_id"] == chat_id else None

    def _refusing(self, chat_id: ChatId, members: Sequence[Row]) -> list[str]:
        keys = [{"user_id": row["user_id"], "blocked_id": chat_id} for row in members]
        return sorted(user_id for user_id, _ in self._tables.get_many(schema.BLOCKS, keys))

    def _blocked(self, members: Sequence[Row]) -> list[str]:
        users = [member["user_id"] for member in members]
        keys = [{"user_id": one, "blocked_id": other} for one in users for other in users]
        return sorted(blocked_id for _, blocked_id in self._tables.get_many(schema.BLOCKS, keys))


_CONFORMS: type[inspection.Inspector] = DynamoInspector
