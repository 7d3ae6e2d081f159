"""What moves a chat forward: a message that is appended, a position that is acknowledged.

Both work on the tables at once and add what happened to the events of the running commit.
"""

from tidewire.domain.access import blocked
from tidewire.domain.chats import Member
from tidewire.domain.delivery import (
    Advance,
    Advanced,
    AdvanceOutcome,
    Positions,
    positions_after_append,
    read_by_reply,
)
from tidewire.domain.errors import CounterMissing, KeyReused, NotAMember, SequenceAboveHead
from tidewire.domain.events import Event, MessageAppended, PositionsAdvanced
from tidewire.domain.limits import SEQUENCE_MAX
from tidewire.domain.messages import Appended, AppendOutcome, Message, SendMessage
from tidewire.engines.memory.tables import ChatRecord, MemoryTables


def append_one(
    tables: MemoryTables, send: SendMessage, now_ms: int, events: list[Event]
) -> AppendOutcome:
    """Store one send, or say why not. The order of the verdicts is the port's."""
    record = tables.chats.get(send.chat_id)
    stored = None if record is None else record.messages_by_key.get(send.client_message_id)
    if stored is not None and stored.sender_id == send.sender_id:
        answer = _answer(stored, deduplicated=True)
        is_same = (stored.content, stored.content_type) == (send.content, send.content_type)
        return answer if is_same else KeyReused(answer)
    if record is None or (member := record.members.get(send.sender_id)) is None:
        return NotAMember()
    if send.sender_id in record.blocked:
        return blocked()
    counter = tables.counters.get(send.chat_id)
    # One that is behind its own messages would give a sequence out again (P-02).
    if counter is None or not record.head <= counter < SEQUENCE_MAX:
        return CounterMissing(send.chat_id)
    if stored is not None:
        return KeyReused()
    message = Message(
        chat_id=send.chat_id,
        sequence=counter + 1,
        prev_sequence=record.head,
        message_id=send.message_id,
        sender_id=send.sender_id,
        client_message_id=send.client_message_id,
        content=send.content,
        content_type=send.content_type,
        created_at_ms=now_ms,
    )
    tables.counters[send.chat_id] = message.sequence
    tables.commits += 1
    record.add_message(message, tables.commits)
    events.append(MessageAppended(message, record.membership_version, send.origin_connection_id))
    _move_author(record, member, message, send.seen_sequence, events)
    return _answer(message, deduplicated=False)


def _move_author(
    record: ChatRecord,
    author: Member,
    message: Message,
    seen_sequence: int | None,
    events: list[Event],
) -> None:
    """Move the author's positions; tell of it only if he thereby read somebody's message."""
    before = record.positions_of(author.user_id)
    after = positions_after_append(
        before,
        joined_sequence=author.joined_sequence,
        prev_sequence=message.prev_sequence,
        sequence=message.sequence,
        seen_sequence=seen_sequence,
    )
    if after == before:
        return
    record.move(author.user_id, after, message.created_at_ms)
    read = read_by_reply(before, prev_sequence=message.prev_sequence, seen_sequence=seen_sequence)
    if read > before.read:
        events.append(PositionsAdvanced(record.chat_id, author.user_id, after))


def advance_one(
    tables: MemoryTables, advance: Advance, now_ms: int, events: list[Event]
) -> AdvanceOutcome:
    """Move one user's positions, or say why not."""
    record = tables.chats.get(advance.chat_id)
    if record is None or advance.user_id not in record.members:
        return NotAMember()
    wanted = Positions(max(advance.delivered, advance.read), advance.read)
    if wanted.delivered > record.head:
        return SequenceAboveHead(sequence=wanted.delivered, head=record.head)
    before = record.positions_of(advance.user_id)
    after = before.merged(wanted)
    if after == before:
        return Advanced(before, moved=False)
    record.move(advance.user_id, after, now_ms)
    events.append(PositionsAdvanced(advance.chat_id, advance.user_id, after))
    return Advanced(after, moved=True)


def _answer(message: Message, *, deduplicated: bool) -> Appended:
    return Appended(
        message_id=message.message_id,
        sequence=message.sequence,
        prev_sequence=message.prev_sequence,
        created_at_ms=message.created_at_ms,
        deduplicated=deduplicated,
    )
