"""Facts in the event log: an envelope, a payload per kind of event, and the way back. PURE.

A record is an event of the domain as the log keeps it (contract-facts 5.3). It carries the whole
chat it is about, so that a reader needs no store to push it. Positions are not logged: they are
state, and go straight to whoever watches (DESIGN 8). What comes out of the log never raises.
"""

from collections.abc import Sequence
from typing import Final, TypedDict, assert_never

import msgspec

from tidewire.domain.chats import Chat, ChatType, Role
from tidewire.domain.events import (
    ChatClosed,
    ChatCreated,
    ChatRenamed,
    LoggedEvent,
    MembershipChange,
    MembershipChanged,
    MessageAppended,
)
from tidewire.domain.ids import ChatId, ClientMessageId, ConnectionId, MessageId, UserId
from tidewire.domain.messages import Message
from tidewire.wire.fields import Count, Cursor, SequenceNumber, tags_of
from tidewire.wire.timestamps import format_time_ms, parse_time_ms

EVENT_VERSION: Final = 1
CHAT_STATUS_ACTIVE: Final = "active"
REASON_CHARACTERS_MAX: Final = 200
EVENT_TYPE_CHARACTERS_MAX: Final = 64


class _Payload(msgspec.Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    chat_id: ChatId


class _ChatPayload(_Payload, frozen=True, kw_only=True):
    """The chat after the event."""

    chat_type: ChatType
    name: str | None = None
    created_by: UserId
    created_at: str
    updated_at: str
    membership_version: Count
    block_changes: Count = 0
    head: Cursor


class MessagePersistedPayload(_Payload, frozen=True, gc=False, kw_only=True):
    message_id: MessageId
    sequence: SequenceNumber
    prev_sequence: Cursor
    sender_id: UserId
    content: str = ""
    """Not there if it `is_damaged`."""
    content_type: str
    client_message_id: ClientMessageId
    created_at: str
    is_damaged: bool = False
    membership_version: Count
    """The roster that the message was sent to; a reader with an older one reloads (K-04)."""
    origin_connection_id: ConnectionId | None = None


class ChatCreatedPayload(_ChatPayload, frozen=True, kw_only=True):
    initial_members: Sequence[UserId]
    status: str
    member_count: Count


class ChatUpdatedPayload(_ChatPayload, frozen=True, kw_only=True):
    member_count: Count
    changed_by: UserId
    changed_at: str


class MembershipChangedPayload(_ChatPayload, frozen=True, kw_only=True):
    user_id: UserId
    change_type: MembershipChange
    role: Role
    joined_sequence: Cursor
    changed_by: UserId
    changed_at: str
    member_count_after: Count


class ChatClosedPayload(_ChatPayload, frozen=True, kw_only=True):
    members: Sequence[UserId]
    closed_by: UserId
    closed_at: str


class _Record(msgspec.Struct, frozen=True, kw_only=True, tag_field="event_type"):
    """The envelope. `event_version` other than 1 is read as 1; a breaking change is a new type."""

    event_id: str
    event_version: int
    event_time: str
    partition_key: ChatId
    producer_id: str
    trace_id: str


class MessagePersistedRecord(_Record, frozen=True, kw_only=True, tag="MessagePersisted"):
    payload: MessagePersistedPayload


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
    | ChatCreatedRecord
    | ChatUpdatedRecord
    | MembershipChangedRecord
    | ChatClosedRecord
)

EVENT_TYPES: Final = tags_of(EventRecord)


class UnknownRecord(msgspec.Struct, frozen=True):
    """A kind of event that this version does not know: ignored and counted (K-09)."""

    event_type: str


class RecordRefusal(msgspec.Struct, frozen=True):
    """A record that cannot be read, now or ever."""

    reason: str


class _Envelope(msgspec.Struct):
    event_type: object = None


_DECODER: Final[msgspec.json.Decoder[EventRecord]] = msgspec.json.Decoder(EventRecord)
_ENVELOPE_DECODER: Final = msgspec.json.Decoder(_Envelope)
_ENCODER: Final = msgspec.json.Encoder()


class _EnvelopeFields(TypedDict):
    event_id: str
    event_version: int
    event_time: str
    partition_key: ChatId
    producer_id: str
    trace_id: str


class _ChatFields(TypedDict):
    chat_id: ChatId
    chat_type: ChatType
    name: str | None
    created_by: UserId
    created_at: str
    updated_at: str
    membership_version: int
    block_changes: int
    head: int


def record_of(
    event: LoggedEvent, *, event_id: str, now_ms: int, producer_id: str, trace_id: str
) -> EventRecord:
    """The record that tells the log of an event."""
    about = event.message if isinstance(event, MessageAppended) else event.chat
    envelope = _EnvelopeFields(
        event_id=event_id,
        event_version=EVENT_VERSION,
        event_time=format_time_ms(now_ms),
        partition_key=about.chat_id,
        producer_id=producer_id,
        trace_id=trace_id,
    )
    match event:
        case MessageAppended():
            return MessagePersistedRecord(**envelope, payload=_message_payload(event))
        case ChatCreated():
            created = ChatCreatedPayload(
                **_chat_fields(event.chat),
                initial_members=list(event.member_ids),
                status=CHAT_STATUS_ACTIVE,
                member_count=event.chat.member_count,
            )
            return ChatCreatedRecord(**envelope, payload=created)
        case ChatRenamed():
            updated = ChatUpdatedPayload(
                **_chat_fields(event.chat),
                member_count=event.chat.member_count,
                changed_by=event.changed_by,
                changed_at=format_time_ms(event.changed_at_ms),
            )
            return ChatUpdatedRecord(**envelope, payload=updated)
        case MembershipChanged():
            changed = MembershipChangedPayload(
                **_chat_fields(event.chat),
                user_id=event.user_id,
                change_type=event.change,
                role=event.role,
                joined_sequence=event.joined_sequence,
                changed_by=event.changed_by,
                changed_at=format_time_ms(event.changed_at_ms),
                member_count_after=event.chat.member_count,
            )
            return MembershipChangedRecord(**envelope, payload=changed)
        case ChatClosed():
            closed = ChatClosedPayload(
                **_chat_fields(event.chat),
                members=list(event.member_ids),
                closed_by=event.closed_by,
                closed_at=format_time_ms(event.closed_at_ms),
            )
            return ChatClosedRecord(**envelope, payload=closed)
        case _:
            assert_never(event)


def event_of(record: EventRecord) -> LoggedEvent:
    """The event that a record tells of. The record comes from `decode_record` or `record_of`."""
    payload = record.payload
    match payload:
        case MessagePersistedPayload():
            return MessageAppended(
                _message_of(payload), payload.membership_version, payload.origin_connection_id
            )
        case ChatCreatedPayload():
            chat = _chat_of(payload, member_count=payload.member_count)
            return ChatCreated(chat, tuple(payload.initial_members))
        case ChatUpdatedPayload():
            chat = _chat_of(payload, member_count=payload.member_count)
            return ChatRenamed(chat, payload.changed_by, _time_ms(payload.changed_at))
        case MembershipChangedPayload():
            return MembershipChanged(
                chat=_chat_of(payload, member_count=payload.member_count_after),
                user_id=payload.user_id,
                change=payload.change_type,
                role=payload.role,
                joined_sequence=payload.joined_sequence,
                changed_by=payload.changed_by,
                changed_at_ms=_time_ms(payload.changed_at),
            )
        case ChatClosedPayload():
            return ChatClosed(
                _chat_of(payload, member_count=0),
                tuple(payload.members),
                payload.closed_by,
                _time_ms(payload.closed_at),
            )
        case _:
            assert_never(payload)


def encode_record(record: EventRecord) -> bytes:
    return _ENCODER.encode(record)


def decode_record(data: bytes | memoryview) -> EventRecord | UnknownRecord | RecordRefusal:
    """What the log says. Never raises; what is refused once is refused for ever."""
    try:
        record = _DECODER.decode(data)
    except RecursionError:
        return RecordRefusal("the record is nested too deeply")
    except ValueError as error:
        event_type = _event_type_of(data)
        if event_type is None or event_type in EVENT_TYPES:
            return RecordRefusal(str(error)[:REASON_CHARACTERS_MAX])
        return UnknownRecord(event_type[:EVENT_TYPE_CHARACTERS_MAX])
    fault = _fault_of(record)
    return record if fault is None else RecordRefusal(fault)


def _event_type_of(data: bytes | memoryview) -> str | None:
    try:
        event_type = _ENVELOPE_DECODER.decode(data).event_type
    except (ValueError, RecursionError):
        return None
    return event_type if isinstance(event_type, str) else None


def _fault_of(record: EventRecord) -> str | None:
    """What the types cannot say, so that `event_of` cannot fail."""
    payload = record.payload
    if record.partition_key != payload.chat_id:
        return "partition_key is not the chat_id of the payload"
    times = [record.event_time, payload.created_at]
    match payload:
        case MessagePersistedPayload():
            if payload.prev_sequence >= payload.sequence:
                return "prev_sequence is not below sequence"
            if not payload.content and not payload.is_damaged:
                return "content is missing"
        case ChatCreatedPayload():
            times += [payload.updated_at]
        case ChatUpdatedPayload() | MembershipChangedPayload():
            times += [payload.updated_at, payload.changed_at]
        case ChatClosedPayload():
            times += [payload.updated_at, payload.closed_at]
        case _:
            assert_never(payload)
    if any(parse_time_ms(time) is None for time in times):
        return "a time is not ISO 8601 in UTC with milliseconds"
    return None


def _message_payload(event: MessageAppended) -> MessagePersistedPayload:
    message = event.message
    return MessagePersistedPayload(
        chat_id=message.chat_id,
        message_id=message.message_id,
        sequence=message.sequence,
        prev_sequence=message.prev_sequence,
        sender_id=message.sender_id,
        content=message.content,
        content_type=message.content_type,
        client_message_id=message.client_message_id,
        created_at=format_time_ms(message.created_at_ms),
        is_damaged=message.is_damaged,
        membership_version=event.membership_version,
        origin_connection_id=event.origin_connection_id,
    )


def _message_of(payload: MessagePersistedPayload) -> Message:
    return Message(
        chat_id=payload.chat_id,
        sequence=payload.sequence,
        prev_sequence=payload.prev_sequence,
        message_id=payload.message_id,
        sender_id=payload.sender_id,
        client_message_id=payload.client_message_id,
        content=payload.content,
        content_type=payload.content_type,
        created_at_ms=_time_ms(payload.created_at),
        is_damaged=payload.is_damaged,
    )


def _chat_fields(chat: Chat) -> _ChatFields:
    return _ChatFields(
        chat_id=chat.chat_id,
        chat_type=chat.chat_type,
        name=chat.name,
        created_by=chat.created_by,
        created_at=format_time_ms(chat.created_at_ms),
        updated_at=format_time_ms(chat.updated_at_ms),
        membership_version=chat.membership_version,
        block_changes=chat.block_changes,
        head=chat.head,
    )


def _chat_of(payload: _ChatPayload, *, member_count: int) -> Chat:
    return Chat(
        chat_id=payload.chat_id,
        chat_type=payload.chat_type,
        name=payload.name,
        created_by=payload.created_by,
        created_at_ms=_time_ms(payload.created_at),
        updated_at_ms=_time_ms(payload.updated_at),
        membership_version=payload.membership_version,
        member_count=member_count,
        head=payload.head,
        block_changes=payload.block_changes,
    )


def _time_ms(text: str) -> int:
    time_ms = parse_time_ms(text)
    assert time_ms is not None, text
    return time_ms
