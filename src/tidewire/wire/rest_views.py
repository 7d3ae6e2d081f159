"""From the domain to what REST answers: one function a model. PURE."""

from collections.abc import Mapping, Sequence

from tidewire.domain.accounts import Session
from tidewire.domain.chat_list import ChatListItem, LastMessage
from tidewire.domain.chats import Chat, ChatAccess, Member
from tidewire.domain.delivery import (
    DeliveryStatus,
    DeliverySummary,
    DigestEntry,
    MemberDelivery,
    Positions,
)
from tidewire.domain.ids import ChatId, SessionId, UserId
from tidewire.domain.messages import Message
from tidewire.domain.users import User
from tidewire.wire.rest_models import (
    AccountView,
    AddedMember,
    ChangedMember,
    ChatListEntry,
    ChatSummary,
    ChatView,
    CreatedChatView,
    DeliveryStateView,
    DeliveryStatusView,
    DeliverySummaryView,
    FoundUser,
    LastMessageView,
    MemberDeliveryView,
    MembersPagination,
    MemberView,
    MessageView,
    MuteView,
    MyStanding,
    OpenedSessionView,
    Pagination,
    PersonView,
    SessionView,
    UserView,
    WatermarkView,
)
from tidewire.wire.timestamps import format_time_ms

Names = Mapping[UserId, User]

WHOLE = Pagination(has_more=False, next_cursor=None)
"""The pagination of a list that is complete."""


def name_of(names: Names, user_id: UserId) -> str:
    """What a user is called; his id if nobody knows him any more."""
    user = names.get(user_id)
    return user_id if user is None else user.display_name


def account_view(user: User) -> AccountView:
    return AccountView(
        user_id=user.user_id,
        username=user.username,
        display_name=user.display_name,
        created_at=format_time_ms(user.created_at_ms),
        updated_at=format_time_ms(user.updated_at_ms),
    )


def user_view(user: User) -> UserView:
    return UserView(
        user_id=user.user_id,
        display_name=user.display_name,
        created_at=format_time_ms(user.created_at_ms),
        is_deleted=user.deleted_at_ms is not None,
    )


def person_view(user_id: UserId, names: Names) -> PersonView:
    return PersonView(user_id=user_id, display_name=name_of(names, user_id))


def found_user(user: User) -> FoundUser:
    return FoundUser(username=user.username, user_id=user.user_id, display_name=user.display_name)


def session_view(session: Session, *, current: SessionId) -> SessionView:
    return SessionView(
        session_id=session.session_id,
        device_id=session.device_id,
        kind=session.kind,
        label=session.label,
        address=session.address,
        client=session.client,
        created_at=format_time_ms(session.created_at_ms),
        last_active_at=format_time_ms(session.last_active_at_ms),
        expires_at=format_time_ms(session.expires_at_ms),
        is_current=session.session_id == current,
    )


def opened_session_view(session: Session) -> OpenedSessionView:
    return OpenedSessionView(
        session_id=session.session_id,
        device_id=session.device_id,
        created_at=format_time_ms(session.created_at_ms),
        expires_at=format_time_ms(session.expires_at_ms),
    )


def member_view(member: Member, names: Names) -> MemberView:
    return MemberView(
        user_id=member.user_id,
        role=member.role,
        display_name=name_of(names, member.user_id),
        joined_at=format_time_ms(member.joined_at_ms),
    )


def _standing(me: Member, positions: Positions) -> MyStanding:
    return MyStanding(
        role=me.role,
        joined_at=format_time_ms(me.joined_at_ms),
        joined_sequence=me.joined_sequence,
        muted_until=_instant(me.muted_until_ms),
        last_acked_sequence=positions.delivered,
        last_read_sequence=positions.read,
    )


def chat_summary(chat: Chat) -> ChatSummary:
    return ChatSummary(
        chat_id=chat.chat_id,
        type=chat.chat_type,
        name=chat.name,
        created_by=chat.created_by,
        created_at=format_time_ms(chat.created_at_ms),
        updated_at=format_time_ms(chat.updated_at_ms),
        member_count=chat.member_count,
        membership_version=chat.shown_version,
    )


def created_chat_view(chat: Chat, members: Sequence[Member], names: Names) -> CreatedChatView:
    return CreatedChatView(
        chat_id=chat.chat_id,
        type=chat.chat_type,
        name=chat.name,
        created_by=chat.created_by,
        created_at=format_time_ms(chat.created_at_ms),
        updated_at=format_time_ms(chat.updated_at_ms),
        member_count=chat.member_count,
        membership_version=chat.shown_version,
        members=[member_view(member, names) for member in members],
    )


def chat_view(
    access: ChatAccess, positions: Positions, members: Sequence[Member], names: Names
) -> ChatView:
    chat = access.chat
    return ChatView(
        chat_id=chat.chat_id,
        type=chat.chat_type,
        name=chat.name,
        created_by=chat.created_by,
        created_at=format_time_ms(chat.created_at_ms),
        updated_at=format_time_ms(chat.updated_at_ms),
        member_count=chat.member_count,
        membership_version=chat.shown_version,
        members=[member_view(member, names) for member in members],
        current_sequence=chat.head,
        my_membership=_standing(access.me, positions),
    )


def chat_list_entry(item: ChatListItem) -> ChatListEntry:
    chat = item.chat
    other = item.other
    return ChatListEntry(
        chat_id=chat.chat_id,
        type=chat.chat_type,
        name=chat.name,
        created_at=format_time_ms(chat.created_at_ms),
        updated_at=format_time_ms(item.activity_at_ms),
        member_count=chat.member_count,
        membership_version=chat.shown_version,
        current_sequence=chat.head,
        my_membership=_standing(item.me, item.positions),
        last_message=None if item.last_message is None else _last_message(item.last_message),
        pending_ack_count=item.undelivered,
        unread_count=item.unread,
        other_member=None
        if other is None
        else PersonView(user_id=other.user_id, display_name=other.display_name),
        is_hidden=item.is_hidden,
    )


def _last_message(message: LastMessage) -> LastMessageView:
    return LastMessageView(
        message_id=message.message_id,
        sequence=message.sequence,
        sender_id=message.sender_id,
        content_preview=message.preview,
        created_at=format_time_ms(message.created_at_ms),
        is_damaged=message.is_damaged,
    )


def added_member(chat_id: ChatId, member: Member, names: Names) -> AddedMember:
    return AddedMember(
        chat_id=chat_id,
        user_id=member.user_id,
        role=member.role,
        display_name=name_of(names, member.user_id),
        joined_at=format_time_ms(member.joined_at_ms),
        added_by=member.added_by,
    )


def changed_member(
    chat_id: ChatId, member: Member, names: Names, *, updated_by: UserId
) -> ChangedMember:
    return ChangedMember(
        chat_id=chat_id,
        user_id=member.user_id,
        role=member.role,
        display_name=name_of(names, member.user_id),
        joined_at=format_time_ms(member.joined_at_ms),
        updated_by=updated_by,
    )


def mute_view(chat_id: ChatId, member: Member) -> MuteView:
    return MuteView(chat_id=chat_id, muted_until=_instant(member.muted_until_ms))


def message_view(message: Message, names: Names) -> MessageView:
    return MessageView(
        message_id=message.message_id,
        chat_id=message.chat_id,
        sequence=message.sequence,
        prev_sequence=message.prev_sequence,
        sender_id=message.sender_id,
        sender=person_view(message.sender_id, names),
        client_message_id=message.client_message_id,
        content=message.content,
        content_type=message.content_type,
        created_at=format_time_ms(message.created_at_ms),
        is_damaged=message.is_damaged,
    )


def delivery_state_view(entry: DigestEntry, moved_at_ms: int) -> DeliveryStateView:
    return DeliveryStateView(
        chat_id=entry.chat_id,
        last_acked_sequence=entry.delivered,
        last_read_sequence=entry.read,
        current_sequence=entry.head,
        unread_count=entry.unread,
        updated_at=format_time_ms(moved_at_ms),
    )


def watermark_view(chat_id: ChatId, own: MemberDelivery) -> WatermarkView:
    return WatermarkView(
        chat_id=chat_id,
        user_id=own.user_id,
        last_acked_sequence=own.positions.delivered,
        last_read_sequence=own.positions.read,
        updated_at=format_time_ms(own.updated_at_ms),
    )


def delivery_status_view(status: DeliveryStatus, names: Names) -> DeliveryStatusView:
    return DeliveryStatusView(
        chat_id=status.chat_id,
        chat_type=status.chat_type,
        member_count=status.member_count,
        delivery_summary=_summary(status.summary),
        members=[
            MemberDeliveryView(
                user_id=member.user_id,
                display_name=name_of(names, member.user_id),
                last_acked_sequence=member.positions.delivered,
                last_read_sequence=member.positions.read,
                updated_at=format_time_ms(member.updated_at_ms),
            )
            for member in status.members
        ],
        pagination=MembersPagination(),
    )


def _summary(summary: DeliverySummary) -> DeliverySummaryView:
    return DeliverySummaryView(
        sequence=summary.sequence,
        delivered_count=summary.delivered_count,
        read_count=summary.read_count,
        pending_count=summary.pending_count,
        all_delivered=summary.all_delivered,
    )


def _instant(time_ms: int | None) -> str | None:
    return None if time_ms is None else format_time_ms(time_ms)
