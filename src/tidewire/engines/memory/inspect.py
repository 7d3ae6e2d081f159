"""Looking at a memory store from outside. Nothing moves meanwhile: no read ever waits."""

from collections.abc import Iterator, Sequence

from tidewire.domain.chats import ChatType
from tidewire.domain.ids import UserId
from tidewire.engines.memory.tables import ChatRecord, MemoryTables
from tidewire.ports.inspection import (
    ChatRow,
    EntryRow,
    Inspector,
    MessageRow,
    PairRow,
    PositionRow,
)


class MemoryInspector:
    """Satisfies `ports.inspection.Inspector`. A message is identified by chat and sequence."""

    def __init__(self, tables: MemoryTables, epoch: str = "memory") -> None:
        self._tables = tables
        self._epoch = epoch
        self._pair_keys = {chat_id: key for key, chat_id in tables.direct_chats.items()}

    @property
    def epoch(self) -> str:
        return self._epoch

    def messages_estimate(self) -> int:
        return sum(len(record.messages) for record in self._tables.chats.values())

    def chats(self) -> Iterator[ChatRow]:
        tables = self._tables
        for chat_id in sorted(tables.chats.keys() | tables.counters.keys()):
            record = tables.chats.get(chat_id)
            counter = tables.counters.get(chat_id)
            if record is None:
                yield ChatRow(chat_id, None, 0, (), counter, 0, None, None, None)
            else:
                yield self._chat(record, counter)

    def messages(self, chat: ChatRow) -> Iterator[Sequence[MessageRow]]:
        record = self._tables.chats.get(chat.chat_id)
        if record is not None and record.messages:
            yield [
                (
                    message.sequence,
                    message.prev_sequence,
                    None,
                    message.message_id,
                    message.client_message_id,
                    (message.chat_id, message.sequence),
                    False,
                )
                for message in record.messages
            ]

    def keys(self, chat: ChatRow) -> Iterator[Sequence[EntryRow]]:
        record = self._tables.chats.get(chat.chat_id)
        if record is not None and record.messages_by_key:
            yield sorted(
                (key, (message.chat_id, message.sequence))
                for key, message in record.messages_by_key.items()
            )

    def message_ids(self) -> Iterator[Sequence[EntryRow]]:
        entries = sorted(
            (message_id, (message.chat_id, message.sequence))
            for record in self._tables.chats.values()
            for message_id, message in record.messages_by_id.items()
        )
        if entries:
            yield entries

    def positions(self) -> Iterator[Sequence[PositionRow]]:
        for record in self._tables.chats.values():
            rows = []
            for user_id, row in record.positions.items():
                member = record.members.get(user_id)
                # There is one joined_sequence only, that of the membership.
                joined = None if member is None else member.joined_sequence
                rows.append(
                    PositionRow(
                        user_id=user_id,
                        chat_id=record.chat_id,
                        delivered=row.positions.delivered,
                        read=row.positions.read,
                        joined_sequence=joined,
                        membership_joined=joined,
                        head=record.head,
                        counter=self._tables.counters.get(record.chat_id),
                        chat_exists=True,
                        hidden_through=row.hidden_through,
                    )
                )
            yield rows

    def direct_pairs(self) -> Iterator[Sequence[PairRow]]:
        chats = self._tables.chats
        yield [
            (key, chat_id, chats[chat_id].chat_type if chat_id in chats else None)
            for key, chat_id in sorted(self._tables.direct_chats.items())
        ]

    def close(self) -> None:
        """There is nothing to let go of."""

    def _chat(self, record: ChatRecord, counter: int | None) -> ChatRow:
        floors = record.floors()
        return ChatRow(
            chat_id=record.chat_id,
            chat_type=record.chat_type,
            member_count=len(record.members),
            members=[
                (
                    user_id,
                    member.role,
                    member.joined_sequence,
                    record.positions[user_id].positions.delivered,
                    record.positions[user_id].positions.read,
                )
                for user_id, member in sorted(record.members.items())
            ],
            counter=counter,
            head=record.head,
            pair_key=self._pair_keys.get(record.chat_id),
            floor_delivered=floors.delivered.first if record.members else None,
            floor_read=floors.read.first if record.members else None,
            marked=sorted(record.blocked),
            blocked=self._blocked(record),
            is_closed=record.is_closed,
            membership_version=record.membership_version,
            block_changes=record.block_changes,
            refusing=[
                user_id
                for user_id in sorted(record.members)
                if (user_id, record.chat_id) in self._tables.refusals
            ],
        )

    def _blocked(self, record: ChatRecord) -> list[UserId]:
        if record.chat_type is not ChatType.DIRECT:
            return []
        accounts, members = self._tables.accounts, sorted(record.members)
        return [
            blocked_id
            for blocked_id in members
            if any(accounts.is_blocked(user_id=one, blocked_id=blocked_id) for one in members)
        ]


_CONFORMS: type[Inspector] = MemoryInspector
