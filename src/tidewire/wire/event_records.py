"""Records of the event log: an envelope and a payload per kind of event, both ways. PURE.

A record is an event of the domain as the log keeps it (docs/data-model.md). It carries the whole
chat it is about, so that a reader needs no store to push it. Positions are not logged: they are
state, and reach the clients without the log. Decoding a record of the log never raises.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, assert_never

import msgspec

from tidewire.domain import events, ids
from tidewire.domain.chats import Chat, ChatType, Role
from tidewire.domain.messages import Amendment, EntryKind, Message, MessageBody
from tidewire.wire.fields import Count, Cursor, SequenceNumber, tags_of
from tidewire.wire.forms import form_of
from tidewire.wire.timestamps import format_time_ms, parse_time_ms

EVENT_VERSION: Final = 1
CHAT_STATUS_ACTIVE: Final = "active"
REASON_CHARACTERS_MAX: Final = 200
EVENT_TYPE_CHARACTERS_MAX: Final = 64


class _ChatPayload(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The chat after the event."""

    chat_id: ids.ChatId
    chat_type: ChatType
    name: str | None = None
    created_by: ids.UserId
    created_at: str
    updated_at: str
    membership_version: Count
    block_changes: Count = 0
    head: Cursor


class _PersistedBody(MessageBody, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """The end of an entry's payload; the ids and numbers come before it."""

    content: str = ""
    """Not there if it `is_damaged` or `is_deleted`."""
    content_type: str
    client_message_id: ids.ClientMessageId
    created_at: str
    is_damaged: bool = False
    is_deleted: bool = False
    """It was erased before it was published, by the deletion `deleted_by`."""
    deleted_by: SequenceNumber | None = None
    membership_version: Count
    """The roster that the message was sent to; a reader with an older one reloads (K-04)."""
    origin_connection_id: ids.ConnectionId | None = None


class MessagePersistedPayload(_PersistedBody, frozen=True, gc=False):
    chat_id: ids.ChatId
    message_id: ids.MessageId
    sequence: SequenceNumber
    prev_sequence: Cursor
    sender_id: ids.UserId


class EntryPersistedPayload(MessagePersistedPayload, frozen=True, gc=False, kw_only=True):
    """An edit, a deletion or a reaction. The text of an edit is its content."""

    kind: str
    """An `EntryKind`. A newer writer may have others."""
    target: SequenceNumber
    reason: str | None = None
    emoji: str | None = None
    is_on: bool = True
    count: Count = 0


class ChatCreatedPayload(_ChatPayload, frozen=True, kw_only=True):
    initial_members: Sequence[ids.UserId]
    status: str
    member_count: Count


class ChatUpdatedPayload(_ChatPayload, frozen=True, kw_only=True):
    member_count: Count
    changed_by: ids.UserId
    changed_at: str


class MembershipChangedPayload(_ChatPayload, frozen=True, kw_only=True):
    user_id: ids.UserId
    change_type: events.MembershipChange
    role: Role
    joined_sequence: Cursor
    changed_by: ids.UserId
    changed_at: str
    member_count_after: Count


class ChatClosedPayload(_ChatPayload, frozen=True, kw_only=True):
    members: Sequence[ids.UserId]
    closed_by: ids.UserId
    closed_at: str


class _Record(msgspec.Struct, frozen=True, kw_only=True, tag_field="event_type"):
    """The envelope. `event_version` other than 1 is read as 1; a breaking change is a new type."""

    event_id: str
    event_version: int
    event_time: str
    partition_key: ids.ChatId
    producer_id: str
    trace_id: str


class MessagePersistedRecord(_Record, frozen=True, kw_only=True, tag="MessagePersisted"):
    payload: MessagePersistedPayload


class EntryPersistedRecord(_Record, frozen=True, kw_only=True, tag="EntryPersisted"):
    """Not a `MessagePersisted`: who does not know entries must not take one for a message."""

    payload: EntryPersistedPayload


class ChatCreatedRecord(_Record, frozen=True, kw_only=True, tag="ChatCreated"):
    payload: ChatCreatedPayload


class ChatUpdatedRecord(_Record, frozen=True, kw_only=True, tag="ChatUpdated"):
    payload: ChatUpdatedPayload


class MembershipChangedRecord(_Record, frozen=True, kw_only=True, tag="MembershipChanged"):
    payload: MembershipChangedPayload


class ChatClosedRecord(_Record, frozen=True, kw_only=True, tag="ChatClosed"):
    payload: ChatClosedPayload


EventRecord = (
    MessagePersistedRecord
    | EntryPersistedRecord
    | ChatCreatedRecord
    | ChatUpdatedRecord
    | MembershipChangedRecord
    | ChatClosedRecord
)

_KINDS: Final[Mapping[type[events.LoggedEvent], tuple[type[Any], type[msgspec.Struct]]]] = {
    events.MessageAppended: (MessagePersistedRecord, MessagePersistedPayload),
    events.ChatCreated: (ChatCreatedRecord, ChatCreatedPayload),
    events.ChatRenamed: (ChatUpdatedRecord, ChatUpdatedPayload),
    events.MembershipChanged: (MembershipChangedRecord, MembershipChangedPayload),
    events.ChatClosed: (ChatClosedRecord, ChatClosedPayload),
}
"""The record of an event, and its payload; of an entry that is no message: `_ENTRY`."""
_ENTRY: Final[tuple[type[Any], type[msgspec.Struct]]] = (
    EntryPersistedRecord,
    EntryPersistedPayload,
)
_ENTRY_KINDS: Final = frozenset(EntryKind) - {EntryKind.MESSAGE}

EVENT_TYPES: Final = tags_of(EventRecord)


class UnknownRecord(msgspec.Struct, frozen=True):
    """A kind of event that this version does not know, in this chat. It is never just skipped: the
    members of the chat sync again (K-09)."""

    event_type: str
    chat_id: ids.ChatId


class RecordRefusal(msgspec.Struct, frozen=True):
    """A record that cannot be read, now or ever."""

    reason: str


class _Envelope(msgspec.Struct):
    event_type: object = None
    partition_key: object = None


_DECODER: Final[msgspec.json.Decoder[EventRecord]] = msgspec.json.Decoder(EventRecord)
_ENVELOPE_DECODER: Final = msgspec.json.Decoder(_Envelope)
_ENCODER: Final = msgspec.json.Encoder()


def record_of(
    event: events.LoggedEvent, *, event_id: str, now_ms: int, producer_id: str, trace_id: str
) -> EventRecord:
    """The record that tells the log of an event."""
    given: dict[str, object] = {}
    match event:
        case events.ChatCreated():
            given = {"initial_members": list(event.member_ids), "status": CHAT_STATUS_ACTIVE}
        case events.MembershipChanged():
            given = {"change_type": event.change, "member_count_after": event.chat.member_count}
        case events.ChatClosed():
            given = {"members": list(event.member_ids)}
        case _:
            pass
    about = event.message if isinstance(event, events.MessageAppended) else event.chat
    amends = about.amends if isinstance(about, Message) else None
    record, payload = _KINDS[type(event)] if amends is None else _ENTRY
    made: EventRecord = record(
        event_id=event_id,
        event_version=EVENT_VERSION,
        event_time=format_time_ms(now_ms),
        partition_key=about.chat_id,
        producer_id=producer_id,
        trace_id=trace_id,
        payload=form_of(payload, about, amends, event, **given),
    )
    return made


def event_of(record: EventRecord) -> events.LoggedEvent:
    """The event that a record tells of. The record comes from `decode_record` or `record_of`."""
    payload = record.payload
    match payload:
        case EntryPersistedPayload():
            amends = form_of(Amendment, payload, kind=EntryKind(payload.kind))
            message = form_of(Message, payload, amends=amends)
            return form_of(events.MessageAppended, payload, message=message)
        case MessagePersistedPayload():
            return form_of(events.MessageAppended, payload, message=form_of(Message, payload))
        case ChatCreatedPayload():
            return events.ChatCreated(form_of(Chat, payload), tuple(payload.initial_members))
        case ChatUpdatedPayload():
            return form_of(events.ChatRenamed, payload, chat=form_of(Chat, payload))
        case MembershipChangedPayload():
            chat = form_of(Chat, payload, member_count=payload.member_count_after)
            return form_of(events.MembershipChanged, payload, chat=chat, change=payload.change_type)
        case ChatClosedPayload():
            chat = form_of(Chat, payload, member_count=0)
            return form_of(events.ChatClosed, payload, chat=chat, member_ids=tuple(payload.members))
        case _:
            assert_never(payload)


def encode_record(record: EventRecord) -> bytes:
    return _ENCODER.encode(record)


def decode_record(data: bytes | memoryview) -> EventRecord | UnknownRecord | RecordRefusal:
    """Decode a record of the log. Never raises. A record that is refused once is always refused."""
    try:
        record = _DECODER.decode(data)
    except RecursionError:
        return RecordRefusal("the record is nested too deeply")
    except ValueError as error:
        return _unknown(data) or RecordRefusal(str(error)[:REASON_CHARACTERS_MAX])
    fault = _fault_of(record)
    if fault is not None:
        return RecordRefusal(fault)
    if isinstance(record, EntryPersistedRecord) and record.payload.kind not in _ENTRY_KINDS:
        return UnknownRecord(str(record.__struct_config__.tag), record.partition_key)
    return record


def _unknown(data: bytes | memoryview) -> UnknownRecord | None:
    """The record that cannot be decoded, if its type is unknown and it names a chat; else None."""
    try:
        envelope = _ENVELOPE_DECODER.decode(data)
    except (ValueError, RecursionError):
        return None
    event_type, chat_id = envelope.event_type, envelope.partition_key
    if not isinstance(event_type, str) or event_type in EVENT_TYPES:
        return None
    if not isinstance(chat_id, str) or not ids.is_safe_token(chat_id):
        return None
    return UnknownRecord(event_type[:EVENT_TYPE_CHARACTERS_MAX], ids.ChatId(chat_id))


def _fault_of(record: EventRecord) -> str | None:
    """Checks what the types cannot express, so that `event_of` cannot fail."""
    payload = record.payload
    if record.partition_key != payload.chat_id:
        return "partition_key is not the chat_id of the payload"
    if isinstance(payload, MessagePersistedPayload):
        fault = _entry_fault(payload)
        if fault is not None:
            return fault
    times = [getattr(payload, name) for name in payload.__struct_fields__ if name.endswith("_at")]
    if any(parse_time_ms(time) is None for time in [record.event_time, *times]):
        return "a time is not ISO 8601 in UTC with milliseconds"
    return None


def _entry_fault(payload: MessagePersistedPayload) -> str | None:
    if payload.prev_sequence >= payload.sequence:
        return "prev_sequence is not below sequence"
    if payload.is_deleted != (payload.deleted_by is not None):
        return "is_deleted and deleted_by do not agree"
    kind = EntryKind.MESSAGE
    if isinstance(payload, EntryPersistedPayload):
        if payload.target >= payload.sequence:
            return "target is not below sequence"
        if payload.kind not in _ENTRY_KINDS:
            # This version does not know which fields such an entry must have.
            return None
        kind = EntryKind(payload.kind)
        if kind is EntryKind.REACT and not payload.emoji:
            return "emoji is missing"
    is_gone = payload.is_damaged or payload.is_deleted
    if kind in (EntryKind.MESSAGE, EntryKind.EDIT) and not payload.content and not is_gone:
        return "content is missing"
    return None
