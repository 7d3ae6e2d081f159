"""Chats, their members and roles, and the commands that change them. PURE.

A direct chat has exactly two members and never changes; a group has one owner, admins and members.
Who may do what is decided in `access`.
"""

from collections.abc import Mapping, Sequence
from enum import StrEnum

import msgspec

from tidewire.domain.ids import ChatId, UserId
from tidewire.domain.limits import CHAT_NAME_CHARACTERS_MAX
from tidewire.domain.names import check_shown_name


class ChatType(StrEnum):
    DIRECT = "direct"
    GROUP = "group"


class Role(StrEnum):
    OWNER = "owner"
    ADMIN = "admin"
    MEMBER = "member"


class Chat(msgspec.Struct, frozen=True, kw_only=True):
    """A chat as it is stored.

    `membership_version` rises with every change of members, roles, name or blocks (mute does not
    count): writes are fenced and rosters compared by it. `head` is the sequence of the last stored
    entry, 0 if there is none.
    """

    chat_id: ChatId
    chat_type: ChatType
    name: str | None
    created_by: UserId
    created_at_ms: int
    updated_at_ms: int
    membership_version: int
    member_count: int
    head: int
    block_changes: int = 0
    """How many of the version's increments came from setting or removing a block."""

    @property
    def shown_version(self) -> int:
        """The version that members are shown. A block does not raise it, because the blocked person
        sees this version, too."""
        return self.membership_version - self.block_changes


class Member(msgspec.Struct, frozen=True, kw_only=True):
    """One user in one chat. `joined_sequence` is the head at the instant of joining."""

    user_id: UserId
    role: Role
    joined_at_ms: int
    joined_sequence: int
    added_by: UserId
    muted_until_ms: int | None = None


class ChatAccess(msgspec.Struct, frozen=True):
    """A chat together with the caller's own membership in it, which proves the right to look."""

    chat: Chat
    me: Member


class DirectPolicy(StrEnum):
    """Who may begin a direct chat with whom. One that exists is found whatever the policy is."""

    ANYONE = "anyone"
    SHARED_GROUP = "shared_group"
    """People who are in some group together."""
    NOBODY = "nobody"


class CreateDirect(msgspec.Struct, frozen=True, kw_only=True):
    """One chat per pair: if it exists, it is found instead."""

    chat_id: ChatId
    actor_id: UserId
    other_id: UserId
    policy: DirectPolicy = DirectPolicy.ANYONE


class CreateGroup(msgspec.Struct, frozen=True, kw_only=True):
    chat_id: ChatId
    actor_id: UserId
    name: str
    member_ids: Sequence[UserId]
    """The others: without the creator, who becomes the owner, and without repetitions."""


class CreatedChat(msgspec.Struct, frozen=True):
    """`created` is False if the direct chat was there already."""

    chat: Chat
    created: bool


class Roster(msgspec.Struct, frozen=True):
    """Who is in a chat, as of one membership version.

    `has_block`: a direct chat in which one user has blocked the other. Then the two get only stored
    entries of each other: no ticks and no typing.
    """

    chat_id: ChatId
    membership_version: int
    user_ids: Sequence[UserId]
    has_block: bool = False
    joined: Mapping[UserId, int] = msgspec.field(default_factory=dict)
    """The `joined_sequence` of those members for whom it is above 0."""
    joined_max: int = 0
    """The highest of them: a message above it is for every member."""

    def readers_of(self, sequence: int) -> Sequence[UserId]:
        """The members who had joined when the message of this sequence was stored."""
        if sequence > self.joined_max:
            return self.user_ids
        joined = self.joined
        return tuple(user_id for user_id in self.user_ids if joined.get(user_id, 0) < sequence)


def roster_of(
    chat_id: ChatId,
    membership_version: int,
    members: Mapping[UserId, int],
    *,
    has_block: bool = False,
) -> Roster:
    """The roster of these members; `members` has the `joined_sequence` of each."""
    joined = {user_id: sequence for user_id, sequence in members.items() if sequence > 0}
    return Roster(
        chat_id,
        membership_version,
        tuple(members),
        has_block=has_block,
        joined=joined,
        joined_max=max(joined.values(), default=0),
    )


def pair_key(one: UserId, other: UserId) -> str:
    """The name of the direct chat of two users, the same from either side."""
    return f"{min(one, other)}#{max(one, other)}"


def check_chat_name(name: str) -> str:
    """Returns the name if it is valid: 1 to 128 characters that can be shown in one line."""
    return check_shown_name(name, "a chat name", CHAT_NAME_CHARACTERS_MAX)
