"""Builds the models of REST from domain values: one function for each model. PURE.

A model takes the fields of its value over by their names (`forms`); only additional and renamed
fields are written here.
"""

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from tidewire.domain.accounts import Session
from tidewire.domain.chat_list import ChatListItem
from tidewire.domain.chats import Chat, ChatAccess, Member
from tidewire.domain.delivery import DeliveryStatus, DigestEntry, MemberDelivery, Positions
from tidewire.domain.fold import MessageNow
from tidewire.domain.ids import ChatId, SessionId, UserId
from tidewire.domain.messages import Message
from tidewire.domain.users import User
from tidewire.wire import rest_models as models
from tidewire.wire.forms import Form, form_of
from tidewire.wire.frame_builders import amendment_fields
from tidewire.wire.timestamps import format_time_ms

Names = Mapping[UserId, User]

WHOLE = models.Pagination(has_more=False, next_cursor=None)
"""The pagination of a list that is complete."""


def name_of(names: Names, user_id: UserId) -> str:
    """The display name of a user, or the id if the user is not known any more."""
    user = names.get(user_id)
    return user_id if user is None else user.display_name


def account_view(user: User) -> models.AccountView:
    return form_of(models.AccountView, user)


def user_view(user: User) -> models.UserView:
    return form_of(models.UserView, user, is_deleted=user.deleted_at_ms is not None)


def person_view(user_id: UserId, names: Names) -> models.PersonView:
    return models.PersonView(user_id=user_id, display_name=name_of(names, user_id))


def found_user(user: User) -> models.FoundUser:
    return form_of(models.FoundUser, user)


def session_view(session: Session, *, current: SessionId) -> models.SessionView:
    return form_of(models.SessionView, session, is_current=session.session_id == current)


def opened_session_view(session: Session) -> models.OpenedSessionView:
    return form_of(models.OpenedSessionView, session)


def member_view(member: Member, names: Names) -> models.MemberView:
    return form_of(models.MemberView, member, display_name=name_of(names, member.user_id))


def chat_summary(chat: Chat) -> models.ChatSummary:
    return _chat(models.ChatSummary, chat)


def created_chat_view(
    chat: Chat, members: Sequence[Member], names: Names
) -> models.CreatedChatView:
    return _chat(
        models.CreatedChatView, chat, members=[member_view(member, names) for member in members]
    )


def chat_view(
    access: ChatAccess, positions: Positions, members: Sequence[Member], names: Names
) -> models.ChatView:
    return _chat(
        models.ChatView,
        access.chat,
        members=[member_view(member, names) for member in members],
        current_sequence=access.chat.head,
        my_membership=_standing(access.me, positions),
    )


def chat_list_entry(item: ChatListItem) -> models.ChatListEntry:
    message = item.last_message
    return _chat(
        models.ChatListEntry,
        item.chat,
        item,
        updated_at=format_time_ms(item.activity_at_ms),
        current_sequence=item.chat.head,
        my_membership=_standing(item.me, item.positions),
        last_message=None
        if message is None
        else form_of(models.LastMessageView, message, content_preview=message.preview),
        pending_ack_count=item.undelivered,
        unread_count=item.unread,
        other_member=None if item.other is None else form_of(models.PersonView, item.other),
    )


def added_member(chat_id: ChatId, member: Member, names: Names) -> models.AddedMember:
    return form_of(
        models.AddedMember, member, chat_id=chat_id, display_name=name_of(names, member.user_id)
    )


def changed_member(
    chat_id: ChatId, member: Member, names: Names, *, updated_by: UserId
) -> models.ChangedMember:
    return form_of(
        models.ChangedMember,
        member,
        chat_id=chat_id,
        display_name=name_of(names, member.user_id),
        updated_by=updated_by,
    )


def mute_view(chat_id: ChatId, member: Member) -> models.MuteView:
    return form_of(models.MuteView, member, chat_id=chat_id)


def message_view(
    message: Message, names: Names, now: MessageNow | None = None
) -> models.MessageView:
    """Written out by field, because a page has a hundred. `now` may know of a deletion that came
    after the message was read."""
    is_deleted = message.is_deleted or (now is not None and now.is_deleted)
    view = models.MessageView(
        message_id=message.message_id,
        chat_id=message.chat_id,
        sequence=message.sequence,
        prev_sequence=message.prev_sequence,
        sender_id=message.sender_id,
        sender=person_view(message.sender_id, names),
        client_message_id=message.client_message_id,
        content="" if is_deleted else message.content,
        content_type=message.content_type,
        created_at=format_time_ms(message.created_at_ms),
        reply_to=message.reply_to,
        mentions=() if is_deleted else message.mentions,
        is_damaged=message.is_damaged,
        is_deleted=is_deleted,
        now=now,
    )
    return view if message.amends is None else replace(view, **amendment_fields(message))


def delivery_state_view(entry: DigestEntry, moved_at_ms: int) -> models.DeliveryStateView:
    return form_of(
        models.DeliveryStateView,
        entry,
        **_acknowledged(entry),
        current_sequence=entry.head,
        unread_count=entry.unread,
        mentions_unread_count=entry.mentions_unread,
        updated_at=format_time_ms(moved_at_ms),
    )


def watermark_view(chat_id: ChatId, own: MemberDelivery) -> models.WatermarkView:
    return _positions(models.WatermarkView, own, chat_id=chat_id)


def delivery_status_view(status: DeliveryStatus, names: Names) -> models.DeliveryStatusView:
    return form_of(
        models.DeliveryStatusView,
        status,
        delivery_summary=form_of(models.DeliverySummaryView, status.summary),
        members=[
            _positions(models.MemberDeliveryView, each, display_name=name_of(names, each.user_id))
            for each in status.members
        ],
        pagination=models.MembersPagination(),
    )


def _chat(kind: type[Form], chat: Chat, *sources: object, **given: object) -> Form:
    return form_of(
        kind, chat, *sources, type=chat.chat_type, membership_version=chat.shown_version, **given
    )


def _standing(me: Member, positions: Positions) -> models.MyStanding:
    return form_of(models.MyStanding, me, **_acknowledged(positions))


def _positions(kind: type[Form], own: MemberDelivery, **given: object) -> Form:
    return form_of(kind, own, **_acknowledged(own.positions), **given)


def _acknowledged(own: Positions | DigestEntry) -> dict[str, int]:
    return {"last_acked_sequence": own.delivered, "last_read_sequence": own.read}
