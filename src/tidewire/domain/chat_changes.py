"""What a change of a chat writes: a chat is made, a member comes, goes or gets a role, a group is
renamed, handed over or closed. PURE.

An engine reads the facts, calls these functions inside its transaction, and writes the decision.
`access` decides whether the change is allowed, so each function raises what its check raises.
"""

from collections.abc import Callable, Sequence

import msgspec
from msgspec.structs import replace

from tidewire.domain import access
from tidewire.domain.chats import (
    Chat,
    ChatType,
    CreateDirect,
    CreateGroup,
    Member,
    Role,
    check_chat_name,
)
from tidewire.domain.errors import ChatIsFull, InvalidOperation, NotAMember, UserNotFound
from tidewire.domain.events import (
    ChangeEvent,
    ChatClosed,
    ChatCreated,
    ChatRenamed,
    MembershipChange,
    MembershipChanged,
)
from tidewire.domain.ids import ChatId, UserId

# New chats.


class NewChat(msgspec.Struct, frozen=True):
    """A chat that must be written with its counter at 0 and all its members, in one act."""

    chat: Chat
    members: Sequence[Member]

    @property
    def event(self) -> ChatCreated:
        return ChatCreated(self.chat, tuple(member.user_id for member in self.members))


def check_pair(command: CreateDirect) -> None:
    """Refuse a direct chat with oneself. Called before an existing chat is looked up."""
    if command.actor_id == command.other_id:
        raise InvalidOperation("a direct chat is with another person")


def new_direct(
    command: CreateDirect,
    *,
    missing: Sequence[UserId],
    blocks_other: bool,
    is_blocked: bool,
    shares_group: bool,
    now_ms: int,
) -> NewChat:
    """The chat of a pair that has none. `missing`: those of the two who cannot join a chat."""
    check_people(missing)
    access.check_begin_direct(
        command.policy,
        blocks_other=blocks_other,
        is_blocked=is_blocked,
        shares_group=shares_group,
    )
    roles = {command.actor_id: Role.MEMBER, command.other_id: Role.MEMBER}
    return _new_chat(command, ChatType.DIRECT, None, roles, now_ms)


def check_found_group(
    command: CreateGroup, *, created_by: UserId, chat_type: str, is_closed: bool
) -> None:
    """Check that a chat found under the id of a new group is this group, made by an earlier try."""
    if created_by != command.actor_id or chat_type != ChatType.GROUP:
        raise InvalidOperation("this chat id is taken")
    if is_closed:
        raise NotAMember


def check_group(command: CreateGroup, *, members_max: int) -> None:
    """Check the name, the list of members and the size. Called before the members are looked up."""
    check_chat_name(command.name)
    if len({command.actor_id, *command.member_ids}) <= len(command.member_ids):
        raise InvalidOperation("name each of the other members once")
    if 1 + len(command.member_ids) > members_max:
        raise ChatIsFull(members_max)


def new_group(
    command: CreateGroup, *, missing: Sequence[UserId], refuse: bool, now_ms: int
) -> NewChat:
    """A new group that has passed `check_group`. `missing`: the users, the creator included, who
    cannot join a chat. `refuse`: a member blocks the creator."""
    check_people(missing)
    access.check_founders(refuse=refuse)
    roles = group_roles(command.actor_id, command.member_ids)
    return _new_chat(command, ChatType.GROUP, command.name, roles, now_ms)


def group_roles(creator: UserId, member_ids: Sequence[UserId]) -> dict[UserId, Role]:
    return {creator: Role.OWNER} | dict.fromkeys(member_ids, Role.MEMBER)


def founding_members(chat: Chat, roles: dict[UserId, Role]) -> list[Member]:
    """The members that a chat begins with."""
    return [
        Member(
            user_id=user_id,
            role=role,
            joined_at_ms=chat.created_at_ms,
            joined_sequence=0,
            added_by=chat.created_by,
        )
        for user_id, role in roles.items()
    ]


def check_people(missing: Sequence[UserId]) -> None:
    if missing:
        raise UserNotFound(*missing)


def _new_chat(
    command: CreateDirect | CreateGroup,
    chat_type: ChatType,
    name: str | None,
    roles: dict[UserId, Role],
    now_ms: int,
) -> NewChat:
    chat = Chat(
        chat_id=command.chat_id,
        chat_type=chat_type,
        name=name,
        created_by=command.actor_id,
        created_at_ms=now_ms,
        updated_at_ms=now_ms,
        membership_version=1,
        member_count=len(roles),
        head=0,
    )
    return NewChat(chat, founding_members(chat, roles))


# Changes of a chat.


class ChangeFacts(msgspec.Struct, frozen=True):
    """The facts that a change is decided on. None: no such chat, or the user is not a member."""

    chat: Chat | None
    actor: Member | None
    target: Member | None = None
    """The member whom the change is about, if that is not the actor."""
    target_exists: bool = True
    """Whether there is such a user, who can join a chat."""
    target_refuses: bool = False
    """The user blocks the actor, or has left this group for good."""
    member_ids: Sequence[UserId] = ()
    """All members by id, if the chat is to end."""


class ChatChange(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be written, if the chat is still as it was when this was decided."""

    chat: Chat
    """As it is afterwards."""
    events: Sequence[ChangeEvent]
    """In order, each with a version of its own; the last one has the chat as it is afterwards."""
    joined: Member | None = None
    """A new member, whose `joined_sequence` is the chat's head at this instant."""
    left: UserId | None = None
    roles: Sequence[Member] = ()
    """Members who have another role now."""
    is_closed: bool = False
    """All members go, and the chat is not found any more."""


class ChangeRequest(msgspec.Struct, frozen=True):
    """A change that a user asks for. A store reads the facts that it names, calls `decide`, and
    writes the result, in one act."""

    actor_id: UserId
    chat_id: ChatId
    decide: Callable[[ChangeFacts], ChatChange | None]
    """Raises the refusal if the change is not allowed; None: there is nothing to change."""
    target_id: UserId | None = None
    """Whom the change is about, if that is not the actor."""
    joins: bool = False
    """The target is to become a member."""
    refuses: bool = False
    """The actor is not to be added to this chat again."""
    ends: bool = False
    """The chat is to end, for all members."""


class Changed(msgspec.Struct, frozen=True):
    """The chat and the members that a change was about, as they are after it."""

    chat: Chat
    actor: Member
    target: Member | None


def changed(facts: ChangeFacts, change: ChatChange | None) -> Changed:
    """The chat and members of the facts, after the change. A member who has left is as before."""
    assert facts.chat is not None
    assert facts.actor is not None
    if change is None:
        return Changed(facts.chat, facts.actor, facts.target)
    target = change.joined or next(iter(change.roles), facts.target)
    return Changed(change.chat, facts.actor, target)


def add_member(
    facts: ChangeFacts, user_id: UserId, role: Role, *, members_max: int, now_ms: int
) -> ChatChange:
    chat, actor = access.check_add(
        facts.chat,
        facts.actor,
        target=facts.target,
        target_exists=facts.target_exists,
        target_id=user_id,
        target_refuses=facts.target_refuses,
        role=role,
        members_max=members_max,
    )
    member = Member(
        user_id=user_id,
        role=role,
        joined_at_ms=now_ms,
        joined_sequence=chat.head,
        added_by=actor.user_id,
    )
    after = _next(chat, now_ms, member_count=chat.member_count + 1)
    event = _event(after, member, MembershipChange.ADDED, actor, now_ms)
    return ChatChange(chat=after, events=[event], joined=member)


def remove_member(facts: ChangeFacts, user_id: UserId, *, now_ms: int) -> ChatChange:
    chat, actor, target = access.check_remove(
        facts.chat, facts.actor, target=facts.target, target_id=user_id
    )
    return _removal(chat, target, actor, now_ms)


def leave(facts: ChangeFacts, *, now_ms: int) -> ChatChange:
    chat, actor = access.check_leave(facts.chat, facts.actor)
    return _removal(chat, actor, actor, now_ms)


def change_role(
    facts: ChangeFacts, user_id: UserId, role: Role, *, now_ms: int
) -> ChatChange | None:
    """None: the member has this role already."""
    chat, actor, target = access.check_change_role(
        facts.chat, facts.actor, target=facts.target, target_id=user_id, role=role
    )
    if target.role is role:
        return None
    return _new_roles(chat, [replace(target, role=role)], actor, now_ms)


def hand_over(facts: ChangeFacts, user_id: UserId, *, now_ms: int) -> ChatChange | None:
    """Two changes of roles, the new owner's first. None: the target is the owner already."""
    checked = access.check_hand_over(
        facts.chat, facts.actor, target=facts.target, target_id=user_id
    )
    if checked is None:
        return None
    chat, actor, target = checked
    members = [replace(target, role=Role.OWNER), replace(actor, role=Role.ADMIN)]
    return _new_roles(chat, members, actor, now_ms)


def rename(facts: ChangeFacts, name: str, *, now_ms: int) -> ChatChange | None:
    """None: this is the group's name already."""
    check_chat_name(name)
    chat, actor = access.check_rename(facts.chat, facts.actor)
    if chat.name == name:
        return None
    after = _next(chat, now_ms, name=name)
    return ChatChange(chat=after, events=[ChatRenamed(after, actor.user_id, now_ms)])


def close_group(facts: ChangeFacts, *, now_ms: int) -> ChatChange:
    chat, actor = access.check_close(facts.chat, facts.actor)
    after = _next(chat, now_ms, member_count=0)
    event = ChatClosed(after, tuple(facts.member_ids), actor.user_id, now_ms)
    return ChatChange(chat=after, events=[event], is_closed=True)


def _removal(chat: Chat, member: Member, actor: Member, now_ms: int) -> ChatChange:
    after = _next(chat, now_ms, member_count=chat.member_count - 1)
    event = _event(after, member, MembershipChange.REMOVED, actor, now_ms)
    return ChatChange(chat=after, events=[event], left=member.user_id)


def _new_roles(chat: Chat, members: Sequence[Member], actor: Member, now_ms: int) -> ChatChange:
    events = []
    for member in members:
        chat = _next(chat, now_ms)
        events.append(_event(chat, member, MembershipChange.ROLE_CHANGED, actor, now_ms))
    return ChatChange(chat=chat, events=events, roles=members)


def _next(chat: Chat, now_ms: int, **changed: object) -> Chat:
    """The chat after a change. Every change of members, roles or name raises the version."""
    version = chat.membership_version + 1
    return replace(chat, membership_version=version, updated_at_ms=now_ms, **changed)


def _event(
    chat: Chat, member: Member, change: MembershipChange, actor: Member, now_ms: int
) -> MembershipChanged:
    return MembershipChanged(
        chat=chat,
        user_id=member.user_id,
        change=change,
        role=member.role,
        joined_sequence=member.joined_sequence,
        changed_by=actor.user_id,
        changed_at_ms=now_ms,
    )
