"""Looking at a DynamoDB store from outside.

Nothing holds the store still: what can change is read in the order that gives no false alarm
(`ports.inspection`). The ids of all messages, and the keys of one chat, are kept in memory.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from tidewire.domain.chats import ChatType, pair_key
from tidewire.domain.delivery import effective
from tidewire.domain.errors import StoreUnavailable
from tidewire.domain.ids import ChatId, UserId
from tidewire.engines.dynamodb import schema, values
from tidewire.engines.dynamodb.looking import Tables
from tidewire.engines.dynamodb.options import DynamoOptions
from tidewire.engines.dynamodb.rows import Row
from tidewire.ports.inspection import (
    ChatRow,
    EntryRow,
    Inspector,
    MemberRow,
    MessageRow,
    PairRow,
    PositionRow,
)

TRIES_MAX: Final = 100
"""How often a chat is read again because its members changed meanwhile."""


class DynamoInspector:
    """Satisfies `ports.inspection.Inspector`. A message is identified by chat and sequence."""

    def __init__(self, options: DynamoOptions) -> None:
        self._tables = Tables(options)
        row = self._tables.get(schema.STORE, {"name": "epoch"})
        self._epoch = "" if row is None else str(row["value"])

    @property
    def epoch(self) -> str:
        return self._epoch

    def close(self) -> None:
        self._tables.close()

    def messages_estimate(self) -> int:
        return self._tables.count(schema.MESSAGES)

    def chats(self) -> Iterator[ChatRow]:
        named = {
            ChatId(row["chat_id"])
            for table in (schema.CHATS, schema.COUNTERS)
            for page in self._tables.scan(table)
            for row in page
        }
        for chat_id in sorted(named):
            row = self._chat(chat_id)
            if row is not None:
                yield row

    def messages(self, chat: ChatRow) -> Iterator[Sequence[MessageRow]]:
        if not chat.head:
            return
        between = (1, chat.head)
        for page in self._tables.query(schema.MESSAGES, chat.chat_id, between=between):
            yield [
                (
                    row["sequence"],
                    row["prev_sequence"],
                    None,
                    row["message_id"],
                    row["client_message_id"],
                    (row["chat_id"], row["sequence"]),
                    False,
                )
                for row in page
            ]

    def keys(self, chat: ChatRow) -> Iterator[Sequence[EntryRow]]:
        """A key that has expired is gone, or will be: its message stands for it."""
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

    def message_ids(self) -> Iterator[Sequence[EntryRow]]:
        entries = sorted(
            (row["message_id"], (row["chat_id"], row["sequence"]))
            for page in self._tables.scan(schema.MESSAGES, index=schema.MESSAGE_ID_INDEX)
            for row in page
        )
        if entries:
            yield entries

    def positions(self) -> Iterator[Sequence[PositionRow]]:
        """Also for a member whose position has never moved: he stands at the beginning."""
        for page in self._tables.scan(schema.POSITIONS):
            yield self._bounded(page)
        for page in self._tables.scan(schema.MEMBERSHIPS):
            keys = [{"user_id": row["user_id"], "chat_id": row["chat_id"]} for row in page]
            found = self._tables.get_many(schema.POSITIONS, keys)
            unmoved = [key for key in keys if (key["user_id"], key["chat_id"]) not in found]
            yield self._bounded(
                [key | {"last_acked_sequence": 0, "last_read_sequence": 0} for key in unmoved]
            )

    def _bounded(self, page: Sequence[Row]) -> list[PositionRow]:
        """Positions were read first, now heads, then counters: each bounds what is before it."""
        chat_keys = [{"chat_id": one} for one in {row["chat_id"] for row in page}]
        chats = self._tables.get_many(schema.CHATS, chat_keys)
        counters = self._tables.get_many(schema.COUNTERS, chat_keys)
        keys = [{"chat_id": row["chat_id"], "user_id": row["user_id"]} for row in page]
        members = self._tables.get_many(schema.MEMBERSHIPS, keys)
        return [_position(row, chats, counters, members) for row in page]

    def direct_pairs(self) -> Iterator[Sequence[PairRow]]:
        pairs = sorted(
            (row["pair_key"], ChatId(row["chat_id"]))
            for page in self._tables.scan(schema.DIRECT_CHATS)
            for row in page
        )
        keys = [{"chat_id": one} for one in {chat_id for _, chat_id in pairs}]
        chats = self._tables.get_many(schema.CHATS, keys)
        yield [
            (pair, chat_id, chats[chat_id,]["chat_type"] if (chat_id,) in chats else None)
            for pair, chat_id in pairs
        ]

    def _chat(self, chat_id: ChatId) -> ChatRow | None:
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
                return ChatRow(chat_id, None, 0, (), counter, 0, None, None, None)
            if row["status"] == values.PENDING:
                return None
            if row["status"] == values.CLOSED:
                # Rows of members that are not swept yet say nothing any more.
                return self._row(row, (), {}, counter)
            if before is not None and before["membership_version"] == row["membership_version"]:
                return self._row(row, members, positions, counter)
            before = row
        raise StoreUnavailable(f"the members of {chat_id} never stay the same; try again later")

    def _members(self, chat_id: ChatId) -> list[Row]:
        return [row for page in self._tables.query(schema.MEMBERSHIPS, chat_id) for row in page]

    def _row(
        self,
        row: Row,
        members: Sequence[Row],
        positions: dict[tuple[str, ...], Row],
        counter: int | None,
    ) -> ChatRow:
        chat_id = ChatId(row["chat_id"])
        listed: list[MemberRow] = []
        for member in members:
            own = values.positions_of(positions.get((member["user_id"], chat_id)))
            joined = member["joined_sequence"]
            listed.append((member["user_id"], member["role"], joined, own.delivered, own.read))
        is_direct = row["chat_type"] == ChatType.DIRECT
        return ChatRow(
            chat_id=chat_id,
            chat_type=row["chat_type"],
            member_count=row["member_count"],
            members=listed,
            counter=counter,
            head=row["last_sequence"],
            pair_key=self._pair(chat_id, members) if is_direct else None,
            # There is no index of floors: they are made of these very rows.
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


def _position(
    row: Row,
    chats: dict[tuple[str, ...], Row],
    counters: dict[tuple[str, ...], Row],
    members: dict[tuple[str, ...], Row],
) -> PositionRow:
    chat_id = ChatId(row["chat_id"])
    chat, counter = chats.get((chat_id,)), counters.get((chat_id,))
    member = members.get((chat_id, row["user_id"]))
    # The row does not repeat where its owner joined: there is one place only that says so.
    joined = None if member is None else member["joined_sequence"]
    return PositionRow(
        user_id=row["user_id"],
        chat_id=chat_id,
        delivered=row["last_acked_sequence"],
        read=row["last_read_sequence"],
        joined_sequence=joined,
        membership_joined=joined,
        head=0 if chat is None else chat["last_sequence"],
        counter=None if counter is None else counter["sequence_counter"],
        chat_exists=chat is not None,
        hidden_through=row.get("hidden_through"),
    )


_CONFORMS: type[Inspector] = DynamoInspector
