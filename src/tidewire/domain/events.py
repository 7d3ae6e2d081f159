"""What has happened, in the past tense: the facts of a commit, handed on in commit order. PURE."""

from enum import StrEnum

import msgspec

from tidewire.domain.chats import Chat, Role
from tidewire.domain.delivery import Advance, AdvanceOutcome, Positions
from tidewire.domain.ids import ChatId, ConnectionId, UserId
from tidewire.domain.messages import Message


class MessageAppended(msgspec.Struct, frozen=True, gc=False):
    """An entry was stored. `membership_version` names the roster it was sent to; the connection it
    came from needs no push."""

    message: Message
    membership_version: int
    origin_connection_id: ConnectionId | None


class ChatCreated(msgspec.Struct, frozen=True):
    """A chat was made, with these members in it."""

    chat: Chat
    member_ids: tuple[UserId, ...]


class ChatRenamed(msgspec.Struct, frozen=True):
    chat: Chat
    changed_by: UserId
    changed_at_ms: int


class MembershipChange(StrEnum):
    ADDED = "added"
    REMOVED = "removed"
    ROLE_CHANGED = "role_changed"


class MembershipChanged(msgspec.Struct, frozen=True, kw_only=True):
    """A member came, went (then `changed_by` may be the member) or got another role.

    `chat` is the chat after the change; of a member who went, role and joined_sequence are the last
    ones.
    """

    chat: Chat
    user_id: UserId
    change: MembershipChange
    role: Role
    joined_sequence: int
    changed_by: UserId
    changed_at_ms: int


class ChatClosed(msgspec.Struct, frozen=True):
    """A group was closed. `chat` is the chat after it, `member_ids` are those who were in it."""

    chat: Chat
    member_ids: tuple[UserId, ...]
    closed_by: UserId
    closed_at_ms: int


class PositionsAdvanced(msgspec.Struct, frozen=True, gc=False):
    """A user's positions moved: by an acknowledgement, a read, or the implicit read of a reply."""

    chat_id: ChatId
    user_id: UserId
    positions: Positions


ChangeEvent = ChatCreated | ChatRenamed | MembershipChanged | ChatClosed

Event = MessageAppended | ChangeEvent | PositionsAdvanced

LoggedEvent = MessageAppended | ChangeEvent
"""The events that go into the log. Positions do not: they are state, not history."""


class Acknowledged(msgspec.Struct, frozen=True):
    """An acknowledgement of a connection was refused, or moved nothing."""

    connection_id: ConnectionId
    wish: Advance
    outcome: AdvanceOutcome


class StatusMissed(msgspec.Struct, frozen=True, gc=False):
    """A connection came back and acknowledged what was acknowledged before, so it may have missed
    the last status of this chat."""

    chat_id: ChatId
    user_id: UserId


Notice = Acknowledged | StatusMissed
"""The events of a write that committed nothing."""
