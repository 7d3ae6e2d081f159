"""Inspects a memory store. Nothing changes meanwhile, because no read ever waits."""

from collections.abc import Callable, Iterator, Sequence

from tests.support.memory.tables import ChatRecord, MemoryTables
from tidewire.domain.chats import ChatType
from tidewire.domain.ids import UserId
from tidewire.domain.messages import Amendment, EntryKind, Message
from tidewire.ports.inspection import (
    ChangeRow,
    ChatRow,
    EntryRow,
    Inspector,
    KeptRow,
    MessageRow,
    PairRow,
    PositionRow,
    TargetRow,
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

    def changes(
        self, chat: ChatRow, is_sound: Callable[[ChangeRow], bool]
    ) -> Iterator[Sequence[ChangeRow]]:
        record = self._tables.chats.get(chat.chat_id)
        if record is not None:
            changed = [one for one in record.messages if _concerns_others(one)]
            yield [_change(record, message) for message in changed]

    def kept(self, is_sound: Callable[[KeptRow], bool]) -> Iterator[Sequence[KeptRow]]:
        for record in self._tables.chats.values():
            yield [
                KeptRow(
                    record.chat_id,
                    EntryKind.REACT,
                    kept.sequence,
                    user_id,
                    Amendment(
                        kind=EntryKind.REACT,
                        target=target,
                        emoji=emoji,
                        is_on=kept.amends is not None and kept.amends.is_on,
                    ),
                    None if (entry := record.message_at(kept.sequence)) is None else _said(entry),
                    (found := record.message_at(target)) is not None and found.is_deleted,
                )
                for (target, emoji, user_id), kept in record.reactions.items()
            ]

    def positions(self) -> Iterator[Sequence[PositionRow]]:
        for record in self._tables.chats.values():
            rows = []
            for user_id, row in record.positions.items():
                member = record.members.get(user_id)
                # There is only one joined_sequence, that of the membership.
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
        """There is nothing to close."""

    def _chat(self, record: ChatRecord, counter: int | None) -> ChatRow:
        floors = record.floors()
        return ChatRow(
            chat_id=record.chat_id,
            chat_type=record.chat_type,
            member_count=record.stored.member_count,
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
            membership_version=record.stored.membership_version,
            block_changes=record.stored.block_changes,
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


def _concerns_others(message: Message) -> bool:
    is_plain = message.amends is None and message.reply_to is None and not message.mentions
    return not is_plain or message.is_deleted


def _said(message: Message) -> ChangeRow:
    return ChangeRow(
        message.sequence,
        message.sender_id,
        message.amends,
        message.reply_to,
        message.mentions,
        message.count,
        bool(message.content),
        message.deleted_by,
    )


def _change(record: ChatRecord, message: Message) -> ChangeRow:
    """An entry, with what is kept about it. Edits and mentions are kept only in the log."""
    named = message.reply_to if message.amends is None else message.amends.target
    target = None if named is None else record.message_at(named)
    deletion = None if message.deleted_by is None else record.message_at(message.deleted_by)
    kept = on_count = None
    if message.amends is not None and target is not None:
        if message.kind is EntryKind.EDIT and not target.is_deleted:
            kept = message.sequence
        elif message.amends.emoji is not None:
            kept, on_count = _reactions(
                record, message, message.amends.target, message.amends.emoji
            )
    return _said(message)._replace(
        target=None
        if target is None
        else TargetRow(target.amends is None, bool(target.content), target.deleted_by),
        deletes=None
        if deletion is None or deletion.amends is None or deletion.kind is not EntryKind.DELETE
        else deletion.amends.target,
        kept=kept,
        on_count=on_count,
        found_mentions=message.mentions,
    )


def _reactions(
    record: ChatRecord, message: Message, target: int, emoji: str
) -> tuple[int | None, int | None]:
    """The entry kept of a reaction; if it is the last with its emoji, how many users have it on."""
    own = record.reactions.get((target, emoji, message.sender_id))
    same = [one for key, one in record.reactions.items() if key[:2] == (target, emoji)]
    is_last = all(one.sequence <= message.sequence for one in same)
    count = sum(one.amends is not None and one.amends.is_on for one in same)
    return None if own is None else own.sequence, count if is_last else None


_CONFORMS: type[Inspector] = MemoryInspector
