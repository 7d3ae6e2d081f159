"""What becomes of the sends of a batch, by what is known of their chat. PURE."""

from collections.abc import Mapping, Sequence

import msgspec

from tidewire.domain.access import blocked
from tidewire.domain.chats import Chat, Member
from tidewire.domain.delivery import Positions, positions_after_append, read_by_reply
from tidewire.domain.errors import CounterMissing, KeyReused, NotAMember
from tidewire.domain.events import PositionsAdvanced
from tidewire.domain.ids import ClientMessageId, UserId
from tidewire.domain.messages import AppendOutcome, Message, SendMessage
from tidewire.engines.dynamodb.values import MemberState, StoredKey, is_same


class Known(msgspec.Struct, frozen=True):
    """What phase 0 has read: the head row first, the memberships after it or under its version."""

    chat: Chat | None
    has_counter: bool
    """False also for a counter that is behind its own chat: it would repeat itself (P-02). Only
    looked at where a key is somebody else's."""
    keys: Mapping[ClientMessageId, StoredKey]
    members: Mapping[UserId, MemberState | None]
    positions: Mapping[UserId, Positions | None]
    """None: no row yet."""


def judge(send: SendMessage, known: Known) -> AppendOutcome | None:
    """The answer to a send, in the order of the port's verdicts; None: it is to be stored."""
    key = known.keys.get(send.client_message_id)
    if key is not None and key.sender_id == send.sender_id:
        return key.answer if is_same(send, key) else KeyReused(key.answer)
    state = known.members.get(send.sender_id)
    if known.chat is None or state is None:
        return NotAMember()
    if state.is_blocked:
        return blocked()
    if not known.has_counter:
        return CounterMissing(send.chat_id)
    return None if key is None else KeyReused()


def number(
    sends: Sequence[SendMessage], *, first: int, prev_sequence: int, now_ms: int
) -> list[Message]:
    """The messages that the sends become: numbered from `first` on, linked one to the other."""
    messages = []
    for sequence, send in enumerate(sends, first):
        assert prev_sequence < sequence
        messages.append(
            Message(
                chat_id=send.chat_id,
                sequence=sequence,
                prev_sequence=prev_sequence,
                message_id=send.message_id,
                sender_id=send.sender_id,
                client_message_id=send.client_message_id,
                content=send.content,
                content_type=send.content_type,
                created_at_ms=now_ms,
            )
        )
        prev_sequence = sequence
    return messages


def author_moves(
    before: Positions, author: Member, own: Sequence[tuple[Message, int | None]]
) -> tuple[Positions, list[PositionsAdvanced]]:
    """Where an author stands after his own messages, and what of it is news to others.

    With each message comes what its author had seen when he wrote it.
    """
    events = []
    for message, seen_sequence in own:
        after = positions_after_append(
            before,
            joined_sequence=author.joined_sequence,
            prev_sequence=message.prev_sequence,
            sequence=message.sequence,
            seen_sequence=seen_sequence,
        )
        read = read_by_reply(
            before, prev_sequence=message.prev_sequence, seen_sequence=seen_sequence
        )
        if read > before.read:
            events.append(PositionsAdvanced(message.chat_id, author.user_id, after))
        before = after
    return before, events
