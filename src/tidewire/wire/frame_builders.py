"""Builds frames from domain values, in one place for every plane. PURE.

Only frames with a rule of their own are here (how times are written, what `next_sequence` is, the
name of a chat's change); other frames are built where they are sent.
"""

from typing import Any, Final, assert_never

from msgspec.structs import replace

from tidewire.domain.chats import Chat
from tidewire.domain.events import (
    ChatClosed,
    ChatCreated,
    ChatRenamed,
    MembershipChange,
    MembershipChanged,
)
from tidewire.domain.ids import ChatId, ClientMessageId, UserId
from tidewire.domain.messages import Appended, Message, MessagePage
from tidewire.wire.forms import form_of
from tidewire.wire.server_frames import (
    ChatUpdateFrame,
    ChatUpdatePayload,
    EntryFrame,
    MessageFrame,
    MessagePayload,
    PlainItem,
    PlainPayload,
    SendMessageAckFrame,
    SendMessageAckPayload,
    SyncItem,
    SyncResponseFrame,
    SyncResponsePayload,
)
from tidewire.wire.timestamps import format_time_ms

_CHANGES: Final = {
    MembershipChange.ADDED: "member_added",
    MembershipChange.REMOVED: "member_removed",
    MembershipChange.ROLE_CHANGED: "role_changed",
}
_OF_AMENDMENTS: Final = ("target", "reason", "emoji", "is_on", "count")
"""The fields of an amendment on the wire, beside its kind."""


def message_frame(message: Message, *, now_ms: int) -> MessageFrame | EntryFrame:
    """The push of a stored entry: the same for every recipient who knows its kind."""
    content, amends = message.content, message.amends
    form = MessagePayload if content or amends is not None else PlainPayload
    payload = form(
        message_id=message.message_id,
        chat_id=message.chat_id,
        sequence=message.sequence,
        prev_sequence=message.prev_sequence,
        sender_id=message.sender_id,
        client_message_id=message.client_message_id,
        content=content,
        content_type=message.content_type,
        created_at=format_time_ms(message.created_at_ms),
    )
    timestamp = format_time_ms(now_ms)
    if content and amends is None and message.reply_to is None and not message.mentions:
        # The usual case. A text means neither damaged nor deleted, and fewer fields cost less.
        return MessageFrame(timestamp=timestamp, payload=payload)
    payload = replace(
        payload,
        reply_to=message.reply_to,
        mentions=message.mentions,
        is_damaged=message.is_damaged,
        is_deleted=message.deleted_by is not None,
        **({} if amends is None else amendment_fields(message)),
    )
    form_of_frame = MessageFrame if amends is None else EntryFrame
    return form_of_frame(timestamp=timestamp, payload=payload)


def plain_frame(entry: EntryFrame) -> MessageFrame:
    """The same push for a client that knows only messages: it continues the chain, and has no
    content."""
    plain = form_of(PlainPayload, entry.payload, content="", **dict.fromkeys(_OF_AMENDMENTS))
    return MessageFrame(timestamp=entry.timestamp, payload=plain)


def amendment_fields(message: Message) -> dict[str, Any]:
    """The fields of an amendment on the wire, beside those that every entry has."""
    amends = message.amends
    assert amends is not None
    fields: dict[str, Any] = {
        "kind": amends.kind.value,
        "target": amends.target,
        "reason": amends.reason,
    }
    if amends.emoji is not None:
        fields |= {"emoji": amends.emoji, "is_on": amends.is_on, "count": message.count}
    return fields


def send_message_ack_frame(
    appended: Appended,
    *,
    request_id: str,
    chat_id: ChatId,
    client_message_id: ClientMessageId,
    now_ms: int,
) -> SendMessageAckFrame:
    """The answer to a send that is in the store; the time is the stored one, also for a retry."""
    return SendMessageAckFrame(
        request_id=request_id,
        timestamp=format_time_ms(now_ms),
        payload=SendMessageAckPayload(
            client_message_id=client_message_id,
            message_id=appended.message_id,
            chat_id=chat_id,
            sequence=appended.sequence,
            prev_sequence=appended.prev_sequence,
            created_at=format_time_ms(appended.created_at_ms),
            deduplicated=appended.deduplicated,
            count=appended.count,
        ),
    )


def sync_response_frame(
    page: MessagePage, *, request_id: str, chat_id: ChatId, now_ms: int, has_entries: bool
) -> SyncResponseFrame:
    """`has_entries`: the client knows kinds of entries; if not, it gets them as messages without
    content, as from `plain_frame`."""
    item_of = _sync_item if has_entries else _plain_item
    return SyncResponseFrame(
        request_id=request_id,
        timestamp=format_time_ms(now_ms),
        payload=SyncResponsePayload(
            chat_id=chat_id,
            messages=[item_of(message) for message in page.messages],
            synced_through=page.synced_through,
            has_more=page.has_more,
            # `synced_through` is the last returned, or the reader's own cursor if none was (D-06).
            next_sequence=page.synced_through + 1 if page.has_more else None,
        ),
    )


def chat_update_frame(
    event: ChatCreated | ChatRenamed | MembershipChanged, *, now_ms: int
) -> ChatUpdateFrame:
    """The push about a change of a chat, for its members and for one who has just been removed."""
    chat = event.chat
    user_id = role = joined_sequence = None
    match event:
        case ChatCreated():
            change, changed_by, changed_at_ms = "created", chat.created_by, chat.created_at_ms
            # The members of a new chat joined at its head.
            joined_sequence = chat.head
        case ChatRenamed():
            change, changed_by, changed_at_ms = "renamed", event.changed_by, event.changed_at_ms
        case MembershipChanged():
            change = _CHANGES[event.change]
            changed_by, changed_at_ms = event.changed_by, event.changed_at_ms
            user_id = event.user_id
            if event.change is not MembershipChange.REMOVED:
                role, joined_sequence = event.role, event.joined_sequence
        case _:
            assert_never(event)
    return _chat_update(
        chat,
        now_ms,
        change=change,
        user_id=user_id,
        role=role,
        joined_sequence=joined_sequence,
        changed_by=changed_by,
        changed_at=format_time_ms(changed_at_ms),
    )


def chat_closed_frame(event: ChatClosed, member_id: UserId, *, now_ms: int) -> ChatUpdateFrame:
    """The push for one member of a closed group. It says that this member was removed, because
    every client knows removals. So each member gets a frame of its own, which names no other."""
    return _chat_update(
        event.chat,
        now_ms,
        change=_CHANGES[MembershipChange.REMOVED],
        user_id=member_id,
        changed_by=event.closed_by,
        changed_at=format_time_ms(event.closed_at_ms),
        is_closed=True,
    )


def _chat_update(chat: Chat, now_ms: int, **given: object) -> ChatUpdateFrame:
    version = chat.shown_version
    payload = form_of(ChatUpdatePayload, chat, membership_version=version, **given)
    return ChatUpdateFrame(timestamp=format_time_ms(now_ms), payload=payload)


def _sync_item(message: Message) -> SyncItem:
    item = _item(SyncItem, message)
    return item if message.amends is None else replace(item, **amendment_fields(message))


def _plain_item(message: Message) -> SyncItem:
    if message.amends is not None:
        return replace(_item(PlainItem, message), content="", kind=message.kind.value)
    return _item(SyncItem if message.content else PlainItem, message)


def _item(form: type[SyncItem], message: Message) -> SyncItem:
    return form(
        message_id=message.message_id,
        sequence=message.sequence,
        prev_sequence=message.prev_sequence,
        sender_id=message.sender_id,
        client_message_id=message.client_message_id,
        content=message.content,
        content_type=message.content_type,
        created_at=format_time_ms(message.created_at_ms),
        reply_to=message.reply_to,
        mentions=message.mentions,
        is_damaged=message.is_damaged,
        is_deleted=message.deleted_by is not None,
    )
