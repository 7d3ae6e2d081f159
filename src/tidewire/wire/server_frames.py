"""The frames from server to client, as a tagged union. PURE.

Answers have a `request_id`, pushes have no such field, so a push that carries one cannot be built.
Every frame has a `timestamp`. Optional fields that are None do not appear on the wire. Codes,
reasons and kinds of change are plain text here: a client must survive one that is newer than it.
"""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from tidewire.domain.chats import ChatType, Role
from tidewire.domain.delivery import DigestEntry
from tidewire.domain.ids import ChatId, ClientMessageId, ConnectionId, MessageId, UserId
from tidewire.domain.messages import MessageBody
from tidewire.wire.fields import Count, Cursor, SequenceNumber, tags_of

PROTOCOL_VERSION: Final = 1


class _Payload(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    pass


class _Push(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type"):
    """Sent without a request."""

    timestamp: str


class _Answer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type"):
    """Answers the request with this id."""

    request_id: str
    timestamp: str


class _AnswerOrPush(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type"
):
    """An answer if it has a `request_id`; unasked if it has none."""

    request_id: str | None = None
    timestamp: str


class ConnectionEstablishedPayload(_Payload, frozen=True, kw_only=True):
    connection_id: ConnectionId
    user_id: UserId
    device_id: str
    server_time: str
    heartbeat_interval_ms: Count
    protocol_version: int
    epoch: str
    """The epoch of the store. A client that knew another one drops its cursors."""
    features: tuple[str, ...] = ()
    """The features that are on: offered by the client and known to this server (`features`).
    Readers accept unknown ones, because features are added."""


class ConnectionEstablishedFrame(_Push, frozen=True, kw_only=True, tag="connection_established"):
    payload: ConnectionEstablishedPayload


class SendMessageAckPayload(_Payload, frozen=True, gc=False, kw_only=True):
    client_message_id: ClientMessageId
    message_id: MessageId
    chat_id: ChatId
    sequence: SequenceNumber
    prev_sequence: Cursor
    created_at: str
    deduplicated: bool
    count: Count | None = None
    """Of a reaction: how many users have the emoji on the target after it. Not there if the server
    does not know it any more; the entry has it."""


class SendMessageAckFrame(_Answer, frozen=True, gc=False, kw_only=True, tag="send_message_ack"):
    """The message is on stable storage. Every retry gets the same numbers."""

    payload: SendMessageAckPayload


class StoredBody(MessageBody, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """The end of every form of a stored message; the ids and numbers come before it."""

    content: str = ""
    """Not there, or empty, if it `is_damaged` or `is_deleted`; of an edit: the new text."""
    content_type: str
    created_at: str
    is_damaged: bool = False
    """The server's copy is damaged: of the other fields only the numbers are sure."""
    is_deleted: bool = False
    """The content was erased: an entry above it deletes it, or the message that it edits."""
    kind: str | None = None
    """The kind of the entry, an `EntryKind`; absent for a message. Readers accept unknown kinds,
    because kinds are added."""
    target: SequenceNumber | None = None
    """The message that an entry of another kind is about."""
    reason: str | None = None
    emoji: str | None = None
    is_on: bool | None = None
    count: Count | None = None
    """How many users have the emoji on the target after this reaction."""


class MessagePayload(StoredBody, frozen=True, gc=False):
    message_id: MessageId
    chat_id: ChatId
    sequence: SequenceNumber
    prev_sequence: Cursor
    sender_id: UserId
    client_message_id: ClientMessageId


class PlainPayload(MessagePayload, frozen=True, gc=False, kw_only=True):
    """An entry without text, as a `message` has it: clients older than entries need the `content`,
    even if it is empty."""

    content: str


class MessageFrame(_Push, frozen=True, gc=False, kw_only=True, tag="message"):
    """A message. To a client that has not offered `entries` also every other entry: of its `kind`,
    without content."""

    payload: MessagePayload


class EntryFrame(_Push, frozen=True, gc=False, kw_only=True, tag="entry"):
    """An entry that is no message, to a client that has offered `entries`."""

    payload: MessagePayload


class SyncItem(StoredBody, frozen=True, gc=False):
    """An entry of a page; the chat is the page's."""

    message_id: MessageId
    sequence: SequenceNumber
    prev_sequence: Cursor
    sender_id: UserId
    client_message_id: ClientMessageId


class PlainItem(SyncItem, frozen=True, gc=False, kw_only=True):
    """An item for a client that has not offered `entries`, see `PlainPayload`."""

    content: str


class SyncResponsePayload(_Payload, frozen=True, kw_only=True):
    chat_id: ChatId
    messages: Sequence[SyncItem]
    synced_through: Cursor
    """With this page and everything below it, the reader is complete up to here."""
    has_more: bool
    next_sequence: SequenceNumber | None = None
    """Only with `has_more`: last returned + 1; the next request asks from one below (D-06)."""


class SyncResponseFrame(_Answer, frozen=True, kw_only=True, tag="sync_response"):
    payload: SyncResponsePayload


class HeartbeatAckPayload(_Payload, frozen=True, gc=False, kw_only=True):
    server_time: str


class HeartbeatAckFrame(_AnswerOrPush, frozen=True, gc=False, kw_only=True, tag="heartbeat_ack"):
    """Answers every heartbeat, also one without a `request_id`."""

    payload: HeartbeatAckPayload


class ErrorPayload(_Payload, frozen=True, kw_only=True):
    code: str
    message: str
    details: Mapping[str, object] | None = None


class ErrorFrame(_AnswerOrPush, frozen=True, kw_only=True, tag="error"):
    payload: ErrorPayload


class ConnectionClosingPayload(_Payload, frozen=True, kw_only=True):
    reason: str
    message: str
    reconnect_delay_ms: Count


class ConnectionClosingFrame(_Push, frozen=True, kw_only=True, tag="connection_closing"):
    payload: ConnectionClosingPayload


class TypingIndicatorPayload(_Payload, frozen=True, gc=False, kw_only=True):
    chat_id: ChatId
    user_id: UserId
    is_typing: bool


class TypingIndicatorFrame(_Push, frozen=True, gc=False, kw_only=True, tag="typing_indicator"):
    payload: TypingIndicatorPayload


class ChatDigestPayload(_Payload, frozen=True, kw_only=True):
    digest_id: str
    page: Count
    last: bool
    chats: Sequence[DigestEntry]


class ChatDigestFrame(_AnswerOrPush, frozen=True, kw_only=True, tag="chat_digest"):
    """One page of the state of all the user's chats; unasked after connecting."""

    payload: ChatDigestPayload


class StatusUpdatePayload(_Payload, frozen=True, gc=False, kw_only=True):
    chat_id: ChatId
    others_delivered: Cursor
    others_read: Cursor
    own_delivered: Cursor | None = None
    own_read: Cursor | None = None
    unread: Count | None = None
    mentions_unread: Count | None = None


class StatusUpdateFrame(_Push, frozen=True, gc=False, kw_only=True, tag="status_update"):
    """Positions as the recipient sees them: state, not history; clients merge by maximum."""

    payload: StatusUpdatePayload


class ChatUpdatePayload(_Payload, frozen=True, kw_only=True):
    chat_id: ChatId
    membership_version: Count
    change: str
    chat_type: ChatType
    name: str | None = None
    user_id: UserId | None = None
    role: Role | None = None
    joined_sequence: Cursor | None = None
    head: Cursor
    changed_by: UserId
    changed_at: str
    is_closed: bool = False
    """The group was closed: there is no member any more."""


class ChatUpdateFrame(_Push, frozen=True, kw_only=True, tag="chat_update"):
    payload: ChatUpdatePayload


class ResyncPayload(_Payload, frozen=True, kw_only=True):
    reason: str
    """A `ResyncReason`. Readers accept unknown ones, because reasons are added."""
    delay_ms: Count


class ResyncFrame(_Push, frozen=True, kw_only=True, tag="resync"):
    """Something may have been missed: send a `digest_request` after the delay."""

    payload: ResyncPayload


ServerAnswer = SendMessageAckFrame | SyncResponseFrame
ServerAnswerOrPush = HeartbeatAckFrame | ErrorFrame | ChatDigestFrame
ServerPush = (
    ConnectionEstablishedFrame
    | MessageFrame
    | EntryFrame
    | ConnectionClosingFrame
    | TypingIndicatorFrame
    | StatusUpdateFrame
    | ChatUpdateFrame
    | ResyncFrame
)
ServerFrame = ServerAnswer | ServerAnswerOrPush | ServerPush

SERVER_FRAME_TYPES: Final = tags_of(ServerFrame)
MESSAGE_TYPE: Final = str(MessageFrame.__struct_config__.tag)
ENTRY_TYPE: Final = str(EntryFrame.__struct_config__.tag)
