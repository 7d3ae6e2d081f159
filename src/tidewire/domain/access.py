"""Who may do what in a chat: the permission table, and the checks that an engine makes inside its
transaction, so that the permission still holds when the change is written (M-05). PURE.

Each `check_*` raises the refusal, or returns what exists: the chat, the actor's membership, the
target's. An argument of `None` stands for "is not a member", or for a chat that does not exist.
"""

from collections.abc import Iterable
from enum import StrEnum
from typing import Final

from tidewire.domain.chats import Chat, ChatType, DirectPolicy, Member, Role
from tidewire.domain.errors import (
    AlreadyAMember,
    ChatIsFull,
    Forbidden,
    InvalidOperation,
    NotAMember,
    UserNotFound,
)
from tidewire.domain.ids import UserId
from tidewire.domain.limits import BLOCKS_MAX


class Operation(StrEnum):
    RENAME = "rename"
    ADD_MEMBER = "add a member"
    ADD_ADMIN = "add an admin"
    REMOVE_MEMBER = "remove a member"
    REMOVE_ADMIN = "remove an admin"
    CHANGE_ROLE = "change a role"
    HAND_OVER = "hand the group over"
    CLOSE = "close the group"
    LEAVE = "leave"
    MUTE = "mute"
    MODERATE = "delete messages of others and mention all"
    SEND = "send"
    READ_HISTORY = "read history"
    SEE_DELIVERY = "see delivery status"


_EVERYBODY: Final = frozenset(Role)
_OWNER_AND_ADMIN: Final = frozenset({Role.OWNER, Role.ADMIN})
_OWNER: Final = frozenset({Role.OWNER})

PERMISSIONS: Final[dict[Operation, frozenset[Role]]] = {
    Operation.RENAME: _OWNER_AND_ADMIN,
    Operation.ADD_MEMBER: _OWNER_AND_ADMIN,
    Operation.ADD_ADMIN: _OWNER,
    Operation.REMOVE_MEMBER: _OWNER_AND_ADMIN,
    Operation.REMOVE_ADMIN: _OWNER,
    Operation.CHANGE_ROLE: _OWNER,
    Operation.HAND_OVER: _OWNER,
    Operation.CLOSE: _OWNER,
    Operation.LEAVE: frozenset({Role.ADMIN, Role.MEMBER}),
    Operation.MUTE: _EVERYBODY,
    Operation.MODERATE: _OWNER_AND_ADMIN,
    Operation.SEND: _EVERYBODY,
    Operation.READ_HISTORY: _EVERYBODY,
    Operation.SEE_DELIVERY: _EVERYBODY,
}
"""What a role may do. Outsiders may do nothing and are told nothing (M-09)."""


def may(role: Role, operation: Operation) -> bool:
    return role in PERMISSIONS[operation]


def check_begin_direct(
    policy: DirectPolicy, *, blocks_other: bool, is_blocked: bool, shares_group: bool
) -> None:
    """May a user begin a direct chat with another, now? Not called if that chat exists already."""
    if blocks_other:
        raise Forbidden("you have blocked this person; unblock them first")
    if is_blocked:
        raise blocked()
    if policy is DirectPolicy.NOBODY:
        raise Forbidden("direct chats are switched off here")
    if policy is DirectPolicy.SHARED_GROUP and not shares_group:
        raise Forbidden("you may write only to people who share a group with you")


def blocked() -> Forbidden:
    """The refusal of a message whose sender is blocked by the other person of a direct chat."""
    return Forbidden("you cannot write to this person")


def cannot_add() -> Forbidden:
    """The one refusal for people who do not want to be added: they block the person who adds, or
    have left this group for good. It does not say which of the two is the reason, nor which of
    several people it is about."""
    return Forbidden("you cannot add this person, or one of these people, to the group")


def check_founders(*, refuse: bool) -> None:
    """May a group begin with these members? `refuse`: one of them blocks the founder."""
    if refuse:
        raise cannot_add()


def check_block(user_id: UserId, blocked_id: UserId) -> None:
    if user_id == blocked_id:
        raise InvalidOperation("you cannot block yourself")


def check_block_count(count: int) -> None:
    """May a user who blocks `count` people block one more?"""
    if count >= BLOCKS_MAX:
        raise InvalidOperation(f"at most {BLOCKS_MAX} people can be blocked")


def check_rename(chat: Chat | None, actor: Member | None) -> tuple[Chat, Member]:
    return _check_group(chat, actor, Operation.RENAME)


def check_add(
    chat: Chat | None,
    actor: Member | None,
    *,
    target: Member | None,
    target_exists: bool,
    target_id: UserId,
    target_refuses: bool,
    role: Role,
    members_max: int,
) -> tuple[Chat, Member]:
    """May the actor add this user in this role, now? `target_refuses`: the user blocks the actor,
    or has left this group for good."""
    if role is Role.OWNER:
        raise InvalidOperation("a group has one owner; add a member or an admin")
    operation = Operation.ADD_ADMIN if role is Role.ADMIN else Operation.ADD_MEMBER
    group, adder = _check_group(chat, actor, operation)
    if not target_exists:
        raise UserNotFound(target_id)
    if target is not None:
        raise AlreadyAMember
    if group.member_count >= members_max:
        raise ChatIsFull(members_max)
    if target_refuses:
        raise cannot_add()
    return group, adder


def check_remove(
    chat: Chat | None, actor: Member | None, *, target: Member | None, target_id: UserId
) -> tuple[Chat, Member, Member]:
    """May the actor remove this user, now? Only a member can be removed."""
    if actor is not None and actor.user_id == target_id:
        raise InvalidOperation("you cannot remove yourself; leave the group instead")
    is_admin = target is not None and target.role is Role.ADMIN
    operation = Operation.REMOVE_ADMIN if is_admin else Operation.REMOVE_MEMBER
    group, remover = _check_group(chat, actor, operation)
    if target is None:
        raise UserNotFound(target_id)
    if target.role is Role.OWNER:
        raise InvalidOperation("the owner cannot be removed")
    return group, remover, target


def check_leave(chat: Chat | None, actor: Member | None) -> tuple[Chat, Member]:
    if chat is not None and actor is not None and actor.role is Role.OWNER:
        raise InvalidOperation(
            "the owner cannot leave: hand the group over to another member first, or close it"
        )
    return _check_group(chat, actor, Operation.LEAVE)


def check_hand_over(
    chat: Chat | None, actor: Member | None, *, target: Member | None, target_id: UserId
) -> tuple[Chat, Member, Member] | None:
    """May the actor make this member the owner, now? None: the target is the owner already, so
    there is nothing to do (a retry of a request that was carried out is answered like this)."""
    is_member = chat is not None and actor is not None
    if is_member and target is not None and target.role is Role.OWNER:
        return None
    group, owner = _check_group(chat, actor, Operation.HAND_OVER)
    if target is None:
        raise UserNotFound(target_id)
    return group, owner, target


def check_close(chat: Chat | None, actor: Member | None) -> tuple[Chat, Member]:
    return _check_group(chat, actor, Operation.CLOSE)


def check_hide(chat: Chat | None, actor: Member | None) -> Chat:
    """May the actor hide this chat, or show it again?"""
    check_member(chat, actor)
    assert chat is not None
    if chat.chat_type is not ChatType.DIRECT:
        raise InvalidOperation("only a direct chat can be hidden; a group can be left")
    return chat


def successor(members: Iterable[Member], leaver: UserId) -> Member | None:
    """Who becomes the owner when the owner goes without naming one: the admin, or else the member,
    who has been in the group for longest. None: no other member is left, the group closes."""
    others = [member for member in members if member.user_id != leaver]
    others.sort(key=lambda one: (one.role is not Role.ADMIN, one.joined_at_ms, one.user_id))
    return others[0] if others else None


def check_change_role(
    chat: Chat | None,
    actor: Member | None,
    *,
    target: Member | None,
    target_id: UserId,
    role: Role,
) -> tuple[Chat, Member, Member]:
    if role is Role.OWNER:
        raise InvalidOperation("a role change does not hand a group over; transfer it instead")
    group, owner = _check_group(chat, actor, Operation.CHANGE_ROLE)
    if target is None:
        raise UserNotFound(target_id)
    if target.role is Role.OWNER:
        raise InvalidOperation("the owner's role cannot be changed")
    return group, owner, target


def check_member(chat: Chat | None, actor: Member | None) -> Member:
    """The check before every access to a chat: returns the caller's membership, or raises
    NotAMember."""
    if chat is None or actor is None:
        raise NotAMember
    return actor


def _check_group(
    chat: Chat | None, actor: Member | None, operation: Operation
) -> tuple[Chat, Member]:
    """Check membership first, so that an outsider learns nothing; then the type of the chat; then
    the role."""
    if chat is None or actor is None:
        raise NotAMember
    if chat.chat_type is not ChatType.GROUP:
        raise InvalidOperation(f"a direct chat never changes: you cannot {operation} in it")
    if not may(actor.role, operation):
        raise Forbidden(f"a chat's {actor.role} may not {operation}")
    return chat, actor
