"""From domain values to the frames that tell them, in one place for every plane. PURE.

Only what has a rule of its own is here (how times are written, what `next_sequence` is, what a
chat's change is called); a frame without one is built where it is sent.
"""

from typing import Final, assert_never

from tidewire.domain.events import (
    ChatClosed,
    ChatCreated,
    ChatRenamed,
    MembershipChange,
    MembershipChanged,
)
from tidewire.domain.ids import ChatId, ClientMessageId, UserId
from tidewire.domain.messages import Appended, Message, MessagePage
from tidewire.wire.server_frames import (
    ChatUpdateFrame,
    ChatUpdatePayload,
    MessageFrame,
    MessagePayload,
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


def message_frame(message: Message, *, now_ms: int) -> MessageFrame:
    """The push of a stored message: the same for every recipient."""
    return MessageFrame(
        timestamp=format_time_ms(now_ms),
        payload=MessagePayload(
            message_id=message.message_id,
            chat_id=message.chat_id,
            sequence=message.sequence,
            prev_sequence=message.prev_sequence,
            sender_id=message.sender_id,
            client_message_id=message.client_message_id,
            content=message.content,
            content_type=message.content_type,
            created_at=format_time_ms(message.created_at_ms),
            is_damaged=message.is_damaged,
        ),
    )


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
        ),
    )


def sync_response_frame(
    page: MessagePage, *, request_id: str, chat_id: ChatId, now_ms: int
) -> SyncResponseFrame:
    return SyncResponseFrame(
        request_id=request_id,
        timestamp=format_time_ms(now_ms),
        payload=SyncResponsePayload(
            chat_id=chat_id,
            messages=[_sync_item(message) for message in page.messages],
            synced_through=page.synced_through,
            has_more=page.has_more,
            # `synced_through` is the last returned, or the reader's own cursor if none was (D-06).
            next_sequence=page.synced_through + 1 if page.has_more else None,
        ),
    )


def chat_update_frame(
    event: ChatCreated | ChatRenamed | MembershipChanged, *, now_ms: int
) -> ChatUpdateFrame:
    """What happened to a chat, for its members and for one who has just been removed."""
    chat = event.chat
    user_id = role = joined_sequence = None
    match event:
        case ChatCreated():
            change, changed_by, changed_at_ms = "created", chat.created_by, chat.created_at_ms
            # Whoever is in a chat from its first hour joined at its head.
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
    return ChatUpdateFrame(
        timestamp=format_time_ms(now_ms),
        payload=ChatUpdatePayload(
            chat_id=chat.chat_id,
            membership_version=chat.shown_version,
            change=change,
            chat_type=chat.chat_type,
            name=chat.name,
            user_id=user_id,
            role=role,
            joined_sequence=joined_sequence,
            head=chat.head,
            changed_by=changed_by,
            changed_at=format_time_ms(changed_at_ms),
        ),
    )


def chat_closed_frame(event: ChatClosed, member_id: UserId, *, now_ms: int) -> ChatUpdateFrame:
    """What a member of a closed group gets: for the member it is a removal, which every client
    knows. So each gets a frame that names no other."""
    chat = event.chat
    return ChatUpdateFrame(
        timestamp=format_time_ms(now_ms),
        payload=ChatUpdatePayload(
            chat_id=chat.chat_id,
            membership_version=chat.shown_version,
            change=_CHANGES[MembershipChange.REMOVED],
            chat_type=chat.chat_type,
            name=chat.name,
            user_id=member_id,
            head=chat.head,
            changed_by=event.closed_by,
            changed_at=format_time_ms(event.closed_at_ms),
            is_closed=True,
        ),
    )


def _sync_item(message: Message) -> SyncItem:
    return SyncItem(
        message_id=message.message_id,
        sequence=message.sequence,
        prev_sequence=message.prev_sequence,
        sender_id=message.sender_id,
        client_message_id=message.client_message_id,
        content=message.content,
        content_type=message.content_type,
        created_at=format_time_ms(message.created_at_ms),
        is_damaged=message.is_damaged,
    )
