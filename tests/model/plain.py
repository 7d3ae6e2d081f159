"""How an engine's values look to the model: as tuples that can be compared with its own."""

from collections.abc import Awaitable

from tests.model.storage_model import DONE, Answer, Told
from tidewire.domain.chats import Member
from tidewire.domain.delivery import Advanced, AdvanceOutcome, DigestEntry
from tidewire.domain.errors import (
    EditConflict,
    InvalidMention,
    KeyReused,
    MessageDeleted,
    SequenceAboveHead,
)
from tidewire.domain.events import (
    ChatClosed,
    ChatCreated,
    ChatRenamed,
    Event,
    MembershipChanged,
    MessageAppended,
)
from tidewire.domain.messages import Appended, AppendOutcome


async def done(act: Awaitable[None]) -> Answer:
    await act
    return DONE


async def plain_member(act: Awaitable[Member]) -> Answer:
    member = await act
    return ("member", member.role.value, member.joined_sequence)


def plain_append(outcome: AppendOutcome) -> Answer:
    if isinstance(outcome, Appended):
        numbers = plain_numbers(outcome)
        if outcome.deduplicated:
            return ("again", *numbers)
        return ("stored", *numbers, outcome.moderated, outcome.count or 0)
    told: Answer = ()
    if isinstance(outcome, KeyReused) and outcome.original is not None:
        told = plain_numbers(outcome.original)
    elif isinstance(outcome, InvalidMention):
        told = (sorted(outcome.user_ids),)
    elif isinstance(outcome, MessageDeleted):
        told = (outcome.deleted_by,)
    elif isinstance(outcome, EditConflict):
        told = (outcome.content, outcome.edited_by)
    return (type(outcome).__name__, *told)


def plain_numbers(answer: Appended) -> Answer:
    return (answer.sequence, answer.prev_sequence, answer.message_id, answer.created_at_ms)


def plain_advance(outcome: AdvanceOutcome) -> Answer:
    if isinstance(outcome, Advanced):
        return ("positions", outcome.positions.delivered, outcome.positions.read, outcome.moved)
    if isinstance(outcome, SequenceAboveHead):
        return ("SequenceAboveHead", outcome.head)
    return (type(outcome).__name__,)


def plain_entry(entry: DigestEntry) -> Answer:
    return (
        entry.chat_id,
        entry.chat_type.value,
        entry.head,
        entry.membership_version,
        entry.joined_sequence,
        entry.delivered,
        entry.read,
        entry.others_delivered,
        entry.others_read,
        entry.unread,
        entry.mentions_unread,
    )


def history(told: list[Told]) -> list[Told]:
    """Everything but positions, which are state: an engine may tell of them apart from messages,
    and of two moves in one commit only the last."""
    return [event for event in told if event[0] != "positions"]


def latest_positions(told: list[Told]) -> dict[Told, Told]:
    return {event[1:3]: event[3:] for event in told if event[0] == "positions"}


def plain_event(event: Event) -> Told:
    match event:
        case MessageAppended():
            return ("message", event.message, event.membership_version)
        case ChatCreated():
            chat = event.chat
            return ("created", chat.chat_id, chat.chat_type.value, sorted(event.member_ids))
        case ChatRenamed():
            chat = event.chat
            return ("renamed", chat.chat_id, chat.name, chat.membership_version, event.changed_by)
        case MembershipChanged():
            return (
                event.change.value,
                event.chat.chat_id,
                event.user_id,
                event.role.value,
                event.joined_sequence,
                event.chat.membership_version,
                event.changed_by,
            )
        case ChatClosed():
            chat = event.chat
            return ("closed", chat.chat_id, sorted(event.member_ids), chat.membership_version)
        case _:
            positions = event.positions
            return (
                "positions",
                event.chat_id,
                event.user_id,
                positions.delivered,
                positions.read,
            )
