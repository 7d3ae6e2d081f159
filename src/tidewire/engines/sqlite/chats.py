"""Chats and members: each change is decided on the rows it changes, in the same transaction."""

from collections.abc import Iterable, Iterator
from typing import Any, Final

import apsw
import msgspec

from tidewire.domain import access
from tidewire.domain.chats import (
    Chat,
    ChatAccess,
    ChatType,
    CreatedChat,
    CreateDirect,
    CreateGroup,
    Member,
    Role,
    Roster,
    check_chat_name,
    pair_key,
    roster_of,
)
from tidewire.domain.errors import ChatIsFull, InvalidOperation, NotAMember, UserNotFound
from tidewire.domain.events import (
    ChatCreated,
    ChatRenamed,
    Event,
    MembershipChange,
    MembershipChanged,
)
from tidewire.domain.ids import ChatId, UserId
from tidewire.engines.sqlite.blocks import (
    blocks_any,
    has_refused,
    is_blocked,
    refuse,
    share_group,
)
from tidewire.engines.sqlite.stored import checked_head
from tidewire.engines.sqlite.users import missing_users

FIND_CHAT: Final = """
SELECT chat_type, name, created_by, created_at, updated_at, membership_version, block_changes,
    member_count, coalesce((SELECT max(sequence) FROM messages WHERE chat_id = chats.chat_id), 0),
    (SELECT sequence_counter FROM chat_counters WHERE chat_id = chats.chat_id)
FROM chats WHERE chat_id = ? AND closed_at IS NULL
"""

FIND_MEMBERS: Final = """
SELECT user_id, role, joined_at, joined_sequence, added_by, muted_until
FROM chat_memberships WHERE chat_id = ?
"""

# A re-added user keeps his positions; from now on he owes nothing from before this joining.
JOIN_POSITIONS: Final = """
INSERT INTO delivery_state (user_id, chat_id, updated_at, joined_sequence) VALUES (?, ?, ?, ?)
ON CONFLICT DO UPDATE SET joined_sequence = excluded.joined_sequence
"""


def find_chat(database: apsw.Connection, chat_id: ChatId) -> Chat | None:
    row = database.execute(FIND_CHAT, (chat_id,)).fetchone()
    if row is None:
        return None
    chat_type, name, created_by, created_at, updated_at, version, blocks, count, head, counter = row
    return Chat(
        chat_id=chat_id,
        chat_type=ChatType(chat_type),
        name=name,
        created_by=created_by,
        created_at_ms=created_at,
        updated_at_ms=updated_at,
        membership_version=version,
        member_count=count,
        head=checked_head(database, chat_id, head, counter),
        block_changes=blocks,
    )


def find_member(database: apsw.Connection, chat_id: ChatId, user_id: UserId) -> Member | None:
    rows = database.execute(FIND_MEMBERS + " AND user_id = ?", (chat_id, user_id))
    return next(_members(rows), None)


def access_chat(database: apsw.Connection, reader: UserId, chat_id: ChatId) -> ChatAccess:
    """The one gate: whoever reads anything of a chat comes through here."""
    chat = find_chat(database, chat_id)
    me = access.check_member(chat, find_member(database, chat_id, reader))
    assert chat is not None
    return ChatAccess(chat, me)


def list_members(
    database: apsw.Connection,
    reader: UserId,
    chat_id: ChatId,
    after: UserId | None,
    count_max: int,
) -> list[Member]:
    access_chat(database, reader, chat_id)
    rows = database.execute(
        FIND_MEMBERS + " AND user_id > ? ORDER BY user_id LIMIT ?",
        (chat_id, after or "", count_max),
    )
    return list(_members(rows))


def roster(database: apsw.Connection, chat_id: ChatId) -> Roster | None:
    version = database.execute(
        "SELECT membership_version FROM chats WHERE chat_id = ? AND closed_at IS NULL", (chat_id,)
    ).fetchone()
    if version is None:
        return None
    rows: list[tuple[Any, ...]] = database.execute(
        "SELECT user_id, joined_sequence, blocked_at IS NOT NULL FROM chat_memberships"
        " WHERE chat_id = ? ORDER BY user_id",
        (chat_id,),
    ).fetchall()
    return roster_of(
        chat_id,
        version[0],
        {user_id: joined_sequence for user_id, joined_sequence, _ in rows},
        has_block=any(is_blocked for _, _, is_blocked in rows),
    )


def create_direct(
    database: apsw.Connection, command: CreateDirect, now_ms: int
) -> tuple[CreatedChat, list[Event]]:
    if command.actor_id == command.other_id:
        raise InvalidOperation("a direct chat is with somebody else")
    key = pair_key(command.actor_id, command.other_id)
    existing = database.execute(
        "SELECT chat_id FROM direct_chat_index WHERE pair_key = ?", (key,)
    ).fetchone()
    if existing is not None:
        set_hidden_through(database, command.actor_id, existing[0], None)
        return _found(database, existing[0]), []
    _check_users(database, (command.actor_id, command.other_id))
    one, other = command.actor_id, command.other_id
    access.check_begin_direct(
        command.policy,
        blocks_other=is_blocked(database, user_id=one, blocked_id=other),
        is_blocked=is_blocked(database, user_id=other, blocked_id=one),
        shares_group=share_group(database, one, other),
    )
    roles = {command.actor_id: Role.MEMBER, command.other_id: Role.MEMBER}
    created, events = _create(
        database, command.chat_id, ChatType.DIRECT, None, command.actor_id, roles, now_ms
    )
    database.execute(
        "INSERT INTO direct_chat_index VALUES (?, ?, ?)", (key, command.chat_id, now_ms)
    )
    return created, events


def create_group(
    database: apsw.Connection, command: CreateGroup, members_max: int, now_ms: int
) -> tuple[CreatedChat, list[Event]]:
    existing = find_chat(database, command.chat_id)
    if existing is not None:
        if existing.created_by != command.actor_id or existing.chat_type is not ChatType.GROUP:
            raise InvalidOperation("this chat id is taken")
        return CreatedChat(existing, created=False), []
    if database.execute("SELECT 1 FROM chats WHERE chat_id = ?", (command.chat_id,)).get:
        # It was made, and closed since.
        raise NotAMember
    check_chat_name(command.name)
    roles = {command.actor_id: Role.OWNER} | dict.fromkeys(command.member_ids, Role.MEMBER)
    if len(roles) != 1 + len(command.member_ids) or roles[command.actor_id] is not Role.OWNER:
        raise InvalidOperation("the members of a new group are others, each named once")
    if len(roles) > members_max:
        raise ChatIsFull(members_max)
    _check_users(database, roles)
    access.check_founders(refuse=blocks_any(database, command.member_ids, command.actor_id))
    return _create(
        database, command.chat_id, ChatType.GROUP, command.name, command.actor_id, roles, now_ms
    )


def add_member(
    database: apsw.Connection,
    actor: UserId,
    chat_id: ChatId,
    user_id: UserId,
    role: Role,
    members_max: int,
    now_ms: int,
) -> tuple[Member, list[Event]]:
    chat = find_chat(database, chat_id)
    access.check_add(
        chat,
        find_member(database, chat_id, actor),
        target=find_member(database, chat_id, user_id),
        target_exists=not missing_users(database, (user_id,)),
        target_id=user_id,
        target_refuses=blocks_any(database, (user_id,), actor)
        or has_refused(database, user_id, chat_id),
        role=role,
        members_max=members_max,
    )
    assert chat is not None
    member = _join(
        database, chat_id, user_id, role, actor, joined_sequence=chat.head, now_ms=now_ms
    )
    event = changed(database, chat, member, MembershipChange.ADDED, actor, now_ms, count=+1)
    return member, [event]


def remove_member(
    database: apsw.Connection, actor: UserId, chat_id: ChatId, user_id: UserId, now_ms: int
) -> tuple[None, list[Event]]:
    chat = find_chat(database, chat_id)
    target = find_member(database, chat_id, user_id)
    access.check_remove(
        chat, find_member(database, chat_id, actor), target=target, target_id=user_id
    )
    assert chat is not None
    assert target is not None
    return None, [_part(database, chat, target, actor, now_ms)]


def leave(
    database: apsw.Connection, actor: UserId, chat_id: ChatId, for_good: bool, now_ms: int
) -> tuple[None, list[Event]]:
    chat = find_chat(database, chat_id)
    me = find_member(database, chat_id, actor)
    access.check_leave(chat, me)
    assert chat is not None
    assert me is not None
    if for_good:
        refuse(database, actor, chat_id, now_ms)
    return None, [_part(database, chat, me, actor, now_ms)]


def change_role(
    database: apsw.Connection,
    actor: UserId,
    chat_id: ChatId,
    user_id: UserId,
    role: Role,
    now_ms: int,
) -> tuple[Member, list[Event]]:
    chat = find_chat(database, chat_id)
    target = find_member(database, chat_id, user_id)
    access.check_change_role(
        chat, find_member(database, chat_id, actor), target=target, target_id=user_id, role=role
    )
    assert chat is not None
    assert target is not None
    if target.role is role:
        return target, []
    database.execute(
        "UPDATE chat_memberships SET role = ? WHERE chat_id = ? AND user_id = ?",
        (role, chat_id, user_id),
    )
    member = msgspec.structs.replace(target, role=role)
    event = changed(database, chat, member, MembershipChange.ROLE_CHANGED, actor, now_ms, count=0)
    return member, [event]


def rename(
    database: apsw.Connection, actor: UserId, chat_id: ChatId, name: str, now_ms: int
) -> tuple[ChatAccess, list[Event]]:
    check_chat_name(name)
    chat = find_chat(database, chat_id)
    me = find_member(database, chat_id, actor)
    access.check_rename(chat, me)
    assert chat is not None
    assert me is not None
    if chat.name == name:
        return ChatAccess(chat, me), []
    database.execute("UPDATE chats SET name = ? WHERE chat_id = ?", (name, chat_id))
    renamed = msgspec.structs.replace(_raise_version(database, chat, 0, now_ms), name=name)
    return ChatAccess(renamed, me), [ChatRenamed(renamed, actor, now_ms)]


def mute(
    database: apsw.Connection, actor: UserId, chat_id: ChatId, muted_until_ms: int | None
) -> tuple[Member, list[Event]]:
    me = access_chat(database, actor, chat_id).me
    database.execute(
        "UPDATE chat_memberships SET muted_until = ? WHERE chat_id = ? AND user_id = ?",
        (muted_until_ms, chat_id, actor),
    )
    return msgspec.structs.replace(me, muted_until_ms=muted_until_ms), []


def hide(
    database: apsw.Connection, actor: UserId, chat_id: ChatId, wanted: bool
) -> tuple[None, list[Event]]:
    chat = access.check_hide(find_chat(database, chat_id), find_member(database, chat_id, actor))
    set_hidden_through(database, actor, chat_id, chat.head if wanted else None)
    return None, []


def set_hidden_through(
    database: apsw.Connection, user_id: UserId, chat_id: ChatId, sequence: int | None
) -> None:
    database.execute(
        "UPDATE delivery_state SET hidden_through = ?1"
        " WHERE user_id = ?2 AND chat_id = ?3 AND hidden_through IS NOT ?1",
        (sequence, user_id, chat_id),
    )


def _create(
    database: apsw.Connection,
    chat_id: ChatId,
    chat_type: ChatType,
    name: str | None,
    creator: UserId,
    roles: dict[UserId, Role],
    now_ms: int,
) -> tuple[CreatedChat, list[Event]]:
    """The chat, its counter and its members, all at once: a chat never lacks its counter."""
    database.execute(
        "INSERT INTO chats (chat_id, chat_type, name, created_by, created_at, updated_at,"
        " membership_version, member_count) VALUES (?, ?, ?, ?, ?, ?, 1, ?)",
        (chat_id, chat_type, name, creator, now_ms, now_ms, len(roles)),
    )
    database.execute(
        "INSERT INTO chat_counters (chat_id, sequence_counter, created_at, updated_at)"
        " VALUES (?, 0, ?, ?)",
        (chat_id, now_ms, now_ms),
    )
    for user_id, role in roles.items():
        _join(database, chat_id, user_id, role, creator, joined_sequence=0, now_ms=now_ms)
    chat = find_chat(database, chat_id)
    assert chat is not None
    return CreatedChat(chat, created=True), [ChatCreated(chat, tuple(roles))]


def _found(database: apsw.Connection, chat_id: ChatId) -> CreatedChat:
    chat = find_chat(database, chat_id)
    assert chat is not None
    return CreatedChat(chat, created=False)


def _join(
    database: apsw.Connection,
    chat_id: ChatId,
    user_id: UserId,
    role: Role,
    added_by: UserId,
    *,
    joined_sequence: int,
    now_ms: int,
) -> Member:
    member = Member(
        user_id=user_id,
        role=role,
        joined_at_ms=now_ms,
        joined_sequence=joined_sequence,
        added_by=added_by,
    )
    database.execute(
        "INSERT INTO chat_memberships"
        " (chat_id, user_id, role, joined_at, joined_sequence, added_by) VALUES (?, ?, ?, ?, ?, ?)",
        (chat_id, user_id, role, now_ms, joined_sequence, added_by),
    )
    database.execute(JOIN_POSITIONS, (user_id, chat_id, now_ms, joined_sequence))
    return member


def _part(
    database: apsw.Connection, chat: Chat, member: Member, actor: UserId, now_ms: int
) -> MembershipChanged:
    """Take a member out. His positions stay, but nobody waits for him any more."""
    database.execute(
        "DELETE FROM chat_memberships WHERE chat_id = ? AND user_id = ?",
        (chat.chat_id, member.user_id),
    )
    database.execute(
        "UPDATE delivery_state SET joined_sequence = NULL WHERE user_id = ? AND chat_id = ?",
        (member.user_id, chat.chat_id),
    )
    return changed(database, chat, member, MembershipChange.REMOVED, actor, now_ms, count=-1)


def changed(
    database: apsw.Connection,
    chat: Chat,
    member: Member,
    change: MembershipChange,
    actor: UserId,
    now_ms: int,
    *,
    count: int,
) -> MembershipChanged:
    """Note a change of one member: the event with the chat after it."""
    return MembershipChanged(
        chat=_raise_version(database, chat, count, now_ms),
        user_id=member.user_id,
        change=change,
        role=member.role,
        joined_sequence=member.joined_sequence,
        changed_by=actor,
        changed_at_ms=now_ms,
    )


def _raise_version(database: apsw.Connection, chat: Chat, count: int, now_ms: int) -> Chat:
    """Every change of members, roles or name raises the version; the chat after it."""
    database.execute(
        "UPDATE chats SET membership_version = membership_version + 1,"
        " member_count = member_count + ?, updated_at = ? WHERE chat_id = ?",
        (count, now_ms, chat.chat_id),
    )
    return msgspec.structs.replace(
        chat,
        membership_version=chat.membership_version + 1,
        member_count=chat.member_count + count,
        updated_at_ms=now_ms,
    )


def _check_users(database: apsw.Connection, user_ids: Iterable[UserId]) -> None:
    missing = missing_users(database, tuple(user_ids))
    if missing:
        raise UserNotFound(*missing)


def _members(rows: Iterable[tuple[Any, ...]]) -> Iterator[Member]:
    for user_id, role, joined_at, joined_sequence, added_by, muted_until in rows:
        yield Member(
            user_id=user_id,
            role=Role(role),
            joined_at_ms=joined_at,
            joined_sequence=joined_sequence,
            added_by=added_by,
            muted_until_ms=muted_until,
        )
