"""The rules of an append: the order of the verdicts, and what a stored entry moves. PURE.

An engine reads the facts, calls these functions inside its transaction, and writes the decision. An
engine that appends in one transaction calls `decide_append`; one that takes its numbers first calls
the functions below it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec

from tidewire.domain.access import blocked
from tidewire.domain.advance import author_move
from tidewire.domain.amendments import (
    NO_FACTS,
    Erasure,
    TargetFacts,
    amend,
    judge_amendment,
    moderated_by,
)
from tidewire.domain.delivery import Positions
from tidewire.domain.errors import CounterMissing, KeyReused, NotAMember
from tidewire.domain.events import Event, MessageAppended
from tidewire.domain.ids import SYSTEM, ChatId, UserId, placed
from tidewire.domain.limits import SEQUENCE_MAX
from tidewire.domain.messages import (
    Appended,
    AppendOutcome,
    EntryKind,
    Message,
    SendMessage,
    said_by,
)


class EarlierSend(msgspec.Struct, frozen=True, gc=False):
    """The entry that is already stored under a send's `client_message_id`."""

    sender_id: UserId
    answer: Appended
    is_same: bool
    """Everything that the client chose is as in the new send."""
    is_damaged: bool = False
    """The stored bytes are damaged, so neither sender nor content can be compared."""
    is_deleted: bool = False
    """The content was erased, so there is nothing left to compare."""


# Every message changes these, so no structs of msgspec: Python cannot specialise a write to those.
@dataclass(slots=True, eq=False)
class ChatEnd:
    """The end of a chat, with the batch's appends so far. `counter` None: the row is missing."""

    membership_version: int
    counter: int | None
    head: int

    @property
    def has_numbers(self) -> bool:
        """Whether the chat can give out its next sequence. A counter that is missing, or below a
        message that is stored, would give one out twice (P-02)."""
        return self.counter is not None and self.head <= self.counter < SEQUENCE_MAX


@dataclass(slots=True, eq=False)
class Author:
    """A sender who is a member, with the sender's positions after the batch's sends so far.

    `is_admin`: may moderate the chat, as its owner or an admin of a group.
    """

    chat: ChatEnd
    joined_sequence: int
    positions: Positions
    is_blocked: bool
    is_admin: bool = False


class AppendDecision(msgspec.Struct, eq=False):
    """The decision on a batch: the answers, and everything that must be written for them."""

    outcomes: list[AppendOutcome] = []
    """One for each send, in the order of the sends."""
    messages: list[Message] = []
    events: list[Event] = []
    counters: dict[ChatId, int] = {}
    """The counters that move, with their new values."""
    positions: dict[tuple[ChatId, UserId], Positions] = {}
    """The authors' positions that move, with their new values."""
    edits: dict[tuple[ChatId, int], int] = {}
    """The messages that are edited, by chat and sequence, each with its last edit."""
    reactions: dict[tuple[ChatId, int, str, UserId], Message] = {}
    """By chat, target, emoji and user: the reaction that counts now."""
    erasures: list[Erasure] = []
    """Carried out after everything else is written: a batch may contain an entry that it erases."""


def decide_append(
    sends: Sequence[SendMessage],
    earlier: Mapping[int, Message],
    authors: Mapping[tuple[ChatId, UserId], Author],
    now_ms: int,
    facts: TargetFacts = NO_FACTS,
) -> AppendDecision:
    """Decide the sends of a batch, one after the other.

    `earlier` are the stored messages that have the key of a send, by the index of the send;
    `authors` are the senders who are members; `facts` are for the sends that are not plain.
    Authors, chats and targets are updated in place.
    """
    decision = AppendDecision()
    for index, send in enumerate(sends):
        author = authors.get((send.chat_id, send.sender_id))
        first = earlier.get(index) if earlier else None
        outcome = judge(send, None if first is None else earlier_send(send, first), author, facts)
        if outcome is None:
            assert author is not None
            outcome = _place(send, author, now_ms, decision, facts)
        decision.outcomes.append(outcome)
    return decision


def judge(
    send: SendMessage,
    earlier: EarlierSend | None,
    author: Author | None,
    facts: TargetFacts = NO_FACTS,
) -> AppendOutcome | None:
    """The answer to a send that must not be stored; None: store it. No author: not a member.

    A retry of an entry that is stored gets its first answer whatever has happened since. Apart from
    that an outsider gets only NotAMember. A missing counter is reported before a key that another
    member used; the rules about other entries come last.
    """
    if earlier is not None and earlier.sender_id == send.sender_id:
        return _own_key(earlier)
    if author is None:
        return NotAMember()
    if author.is_blocked:
        return blocked()
    if not author.chat.has_numbers:
        return CounterMissing(send.chat_id)
    if earlier is None:
        # `is_plain` without the call, because every message comes here.
        if send.amends is None and send.reply_to is None and not send.mentions:
            return None
        return judge_amendment(send, is_admin=author.is_admin, facts=facts)
    # The sender of a damaged message is not known: this member may have sent it.
    return _own_key(earlier) if earlier.is_damaged else KeyReused()


def earlier_send(send: SendMessage, stored: Message) -> EarlierSend:
    """The stored message with a send's key, compared with the send."""
    return EarlierSend(
        stored.sender_id,
        answer_of(stored, deduplicated=True),
        is_same=said_by(stored) == said_by(send),
        is_damaged=stored.is_damaged,
        is_deleted=stored.is_deleted,
    )


def message_of(
    send: SendMessage, sequence: int, prev_sequence: int, now_ms: int, count: int = 0
) -> Message:
    """The entry that a send becomes at its place in the chat. `count` is for a reaction."""
    assert 0 <= prev_sequence < sequence
    return Message(
        send.chat_id,
        sequence,
        prev_sequence,
        placed(send.message_id, sequence),
        send.sender_id,
        send.client_message_id,
        send.content,
        send.content_type,
        now_ms,
        send.reply_to,
        send.mentions,
        send.amends,
        count,
    )


def answer_of(message: Message, *, deduplicated: bool, moderated: UserId | None = None) -> Appended:
    """The answer to the send of a stored entry. `moderated` is the result of `moderated_by`."""
    amends = message.amends
    return Appended(
        message.message_id,
        message.sequence,
        message.prev_sequence,
        message.created_at_ms,
        deduplicated,
        moderated,
        None if amends is None or amends.emoji is None else message.count,
    )


def _own_key(earlier: EarlierSend) -> AppendOutcome:
    """The answer to a `client_message_id` that its own sender has used before."""
    is_repeated = earlier.is_same or earlier.is_damaged or earlier.is_deleted
    return earlier.answer if is_repeated else KeyReused(earlier.answer)


def _place(
    send: SendMessage, author: Author, now_ms: int, decision: AppendDecision, facts: TargetFacts
) -> Appended:
    """Give a send its place in the chat, and update the chat, its author and its target."""
    chat = author.chat
    assert chat.counter is not None
    sequence = chat.counter + 1
    count, moderated = 0, None
    if send.amends is not None:
        target = facts.targets[send.chat_id, send.amends.target]
        count, moderated = amend(target, send, sequence), moderated_by(send, target)
    message = message_of(send, sequence, chat.head, now_ms, count)
    chat.counter = chat.head = sequence
    decision.counters[send.chat_id] = sequence
    decision.messages.append(message)
    if message.amends is not None:
        note_amendment(decision, message)
    decision.events.append(
        MessageAppended(message, chat.membership_version, send.origin_connection_id)
    )
    if send.sender_id == SYSTEM:
        return answer_of(message, deduplicated=False)
    before = author.positions
    after, told = author_move(before, author.joined_sequence, message, send.seen_sequence)
    if after != before:
        author.positions = after
        decision.positions[send.chat_id, send.sender_id] = after
        if told is not None:
            decision.events.append(told)
    return answer_of(message, deduplicated=False, moderated=moderated)


def note_amendment(decision: AppendDecision, message: Message) -> None:
    """Note what a stored amendment writes beside its own row: a mark on its target, a row of a
    reaction, or an erasure."""
    amends = message.amends
    assert amends is not None
    if amends.emoji is not None:
        key = (message.chat_id, amends.target, amends.emoji, message.sender_id)
        decision.reactions[key] = message
    elif amends.kind is EntryKind.EDIT:
        decision.edits[message.chat_id, amends.target] = message.sequence
    else:
        assert amends.kind is EntryKind.DELETE, "a message amends nothing"
        decision.erasures.append(Erasure(message.chat_id, amends.target, message.sequence))
