"""The answers of REST: the envelope, and the models in it. PURE.

Every success is `{"data": …}`, lists add `pagination`; the
one exception is the delivery status, whose shape ADR-008 gives without an envelope.
"""

from collections.abc import Mapping, Sequence
from typing import Generic, TypeVar

import msgspec

from tidewire.domain.chats import ChatType, Role
from tidewire.domain.fold import MessageNow
from tidewire.domain.ids import ChatId, ClientMessageId, MessageId, SessionId, UserId
from tidewire.wire.server_frames import StoredBody

Item = TypeVar("Item")


class _Model(msgspec.Struct, frozen=True, kw_only=True):
    pass


# The envelope.


class Envelope(msgspec.Struct, Generic[Item], frozen=True):
    data: Item


class Pagination(_Model, frozen=True, kw_only=True):
    has_more: bool
    next_cursor: str | None
    prev_cursor: str | None = None


class Page(msgspec.Struct, Generic[Item], frozen=True):
    data: Sequence[Item]
    pagination: Pagination


class FieldError(_Model, frozen=True, kw_only=True):
    field: str
    code: str
    message: str


class ErrorDetail(_Model, frozen=True, kw_only=True, omit_defaults=True):
    code: str
    message: str
    request_id: str
    details: Mapping[str, object] | None = None


class ErrorBody(_Model, frozen=True, kw_only=True):
    error: ErrorDetail


# People and their sessions.


class AccountView(_Model, frozen=True, kw_only=True):
    """A user, as shown to that user."""

    user_id: UserId
    username: str
    display_name: str
    created_at: str
    updated_at: str


class UserView(_Model, frozen=True, kw_only=True):
    """A user, as shown to others: without the user name, which only that user may give away."""

    user_id: UserId
    display_name: str
    created_at: str
    is_deleted: bool = False
    """The account was deleted; the display name says so too."""


class FoundUser(_Model, frozen=True, kw_only=True):
    username: str
    user_id: UserId
    display_name: str


class LookupResult(_Model, frozen=True, kw_only=True):
    users: Sequence[FoundUser]
    not_found: Sequence[str]


class PersonView(_Model, frozen=True, kw_only=True):
    user_id: UserId
    display_name: str


class SessionView(_Model, frozen=True, kw_only=True):
    session_id: SessionId
    device_id: str | None
    kind: str
    label: str | None
    address: str | None
    """The IP address of the last login or refresh. A bot has none."""
    client: str | None
    """The client's name for itself then (`User-Agent`). It is not checked."""
    created_at: str
    last_active_at: str
    """Exact to a few minutes."""
    expires_at: str
    """Each refresh moves it, up to a bound that the operator may set."""
    is_current: bool


class OpenedSessionView(_Model, frozen=True, kw_only=True):
    session_id: SessionId
    device_id: str | None
    created_at: str
    expires_at: str


class TokensView(_Model, frozen=True, kw_only=True):
    access_token: str
    refresh_token: str
    token_type: str = "Bearer"  # noqa: S105 - a kind, not a secret
    expires_in: int

    def __repr__(self) -> str:
        return "TokensView(***)"


class LoginResult(_Model, frozen=True, kw_only=True):
    user: AccountView
    session: OpenedSessionView
    tokens: TokensView
    is_new_user: bool


class RefreshResult(_Model, frozen=True, kw_only=True):
    tokens: TokensView


class RevokedCount(_Model, frozen=True, kw_only=True):
    revoked_count: int


# Chats.


class MemberView(_Model, frozen=True, kw_only=True):
    user_id: UserId
    role: Role
    display_name: str
    joined_at: str


class ChatSummary(_Model, frozen=True, kw_only=True):
    """A chat without its members."""

    chat_id: ChatId
    type: ChatType
    name: str | None
    created_by: UserId
    created_at: str
    updated_at: str
    member_count: int
    membership_version: int


class CreatedChatView(ChatSummary, frozen=True, kw_only=True):
    members: Sequence[MemberView]


class MyMembership(_Model, frozen=True, kw_only=True):
    role: Role
    joined_at: str
    joined_sequence: int
    muted_until: str | None


class MyStanding(MyMembership, frozen=True, kw_only=True):
    last_acked_sequence: int
    last_read_sequence: int


class ChatView(CreatedChatView, frozen=True, kw_only=True):
    current_sequence: int
    my_membership: MyStanding


class LastMessageView(_Model, frozen=True, kw_only=True, omit_defaults=True):
    """The last message as it is now. The preview is empty if it `is_deleted`, or if the server's
    copy `is_damaged`."""

    message_id: MessageId
    sequence: int
    sender_id: UserId
    content_preview: str
    created_at: str
    is_damaged: bool = False
    is_deleted: bool = False


class ChatListEntry(_Model, frozen=True, kw_only=True, omit_defaults=True):
    """`updated_at` is what the list is sorted by: the last message, or one's own joining."""

    chat_id: ChatId
    type: ChatType
    name: str | None
    created_at: str
    updated_at: str
    member_count: int
    membership_version: int
    current_sequence: int
    my_membership: MyStanding
    last_message: LastMessageView | None
    pending_ack_count: int
    unread_count: int
    other_member: PersonView | None = None
    """Of a direct chat only."""
    is_hidden: bool = False
    """You have hidden this direct chat, and no message has come since."""


class RefusedGroup(_Model, frozen=True, kw_only=True):
    chat_id: ChatId


class _MemberOfChat(_Model, frozen=True, kw_only=True):
    chat_id: ChatId
    user_id: UserId
    role: Role
    display_name: str
    joined_at: str


class AddedMember(_MemberOfChat, frozen=True, kw_only=True):
    added_by: UserId


class ChangedMember(_MemberOfChat, frozen=True, kw_only=True):
    updated_by: UserId


class MuteView(_Model, frozen=True, kw_only=True):
    chat_id: ChatId
    muted_until: str | None


# Messages and delivery.


class _Shown(StoredBody, frozen=True, kw_only=True):
    content: str
    """Always present, even if it is empty, because clients of 0.1.0 need it."""
    now: MessageNow | None = None
    """Of a message: its current state. Each part has the sequence of the entry that it comes from.
    Absent if the message is as it was written."""


class MessageView(_Shown, frozen=True):
    """A message, or (`kind`) another entry of the chat. The content is empty if it `is_deleted`, or
    if the server's copy `is_damaged`: then only `sequence` and `prev_sequence` are sure, other
    fields are as found, or empty."""

    message_id: MessageId
    chat_id: ChatId
    sequence: int
    prev_sequence: int
    sender_id: UserId
    sender: PersonView
    client_message_id: ClientMessageId


class HistoryPage(_Model, frozen=True, kw_only=True):
    data: Sequence[MessageView]
    pagination: Pagination
    as_of: int
    """What `now` says is at least as new as the entry with this sequence."""


class AroundView(_Model, frozen=True, kw_only=True):
    target_sequence: int
    messages: Sequence[MessageView]
    has_more_before: bool
    has_more_after: bool
    as_of: int


class DeliveryStateView(_Model, frozen=True, kw_only=True):
    chat_id: ChatId
    last_acked_sequence: int
    last_read_sequence: int
    current_sequence: int
    unread_count: int
    mentions_unread_count: int
    """How many of the unread messages mention you, or all."""
    updated_at: str


class WatermarkView(_Model, frozen=True, kw_only=True):
    chat_id: ChatId
    user_id: UserId
    last_acked_sequence: int
    last_read_sequence: int
    updated_at: str


class DeliverySummaryView(_Model, frozen=True, kw_only=True):
    sequence: int
    delivered_count: int
    read_count: int
    pending_count: int
    all_delivered: bool


class MemberDeliveryView(_Model, frozen=True, kw_only=True):
    user_id: UserId
    display_name: str
    last_acked_sequence: int
    last_read_sequence: int
    updated_at: str


class MembersPagination(_Model, frozen=True, kw_only=True):
    """The members come all at once; the field is there because the ADR has it."""

    has_more: bool = False
    next_cursor: str | None = None


class DeliveryStatusView(_Model, frozen=True, kw_only=True):
    """As ADR-008 Appendix F: without an envelope."""

    chat_id: ChatId
    chat_type: ChatType
    member_count: int
    delivery_summary: DeliverySummaryView
    members: Sequence[MemberDeliveryView]
    pagination: MembersPagination


# The server itself.


class HealthView(_Model, frozen=True, kw_only=True):
    status: str
    timestamp: str


class Capabilities(_Model, frozen=True, kw_only=True):
    max_message_size_bytes: int
    max_chat_members: int
    supported_content_types: Sequence[str]
    auth_methods: Sequence[str]
    websocket_protocol_version: int
    websocket_path: str


class ServerView(_Model, frozen=True, kw_only=True):
    version: str
    api_version: str
    capabilities: Capabilities
    registration: str
    """Who may make an account: `open` (all), `invite` (with an invite), `closed` (the operator)."""
    is_without_accounts: bool = False
    """No account was made yet. Told on the server's own machine only, if registration is open."""
    documentation_url: str
