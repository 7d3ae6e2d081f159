"""Chats and members: each change is decided on the rows it changes, in the same transaction, by
`domain.chat_changes`; here facts are read and decisions written."""

from collections.abc import Sequence
from typing import Any, Final

import apsw
from msgspec.structs import replace

from tidewire.domain import access, chat_changes
from tidewire.domain.chats import (
    Chat,
    ChatAccess,
    ChatType,
    CreatedChat,
    CreateDirect,
    CreateGroup,
    Member,
    Roster,
    pair_key,
    roster_of,
)
from tidewire.domain.events import ChangeEvent
from tidewire.domain.ids import ChatId, UserId
from tidewire.engines.sqlite.blocks import blocks_any, has_refused, is_blocked, refuse, share_group
from tidewire.engines.sqlite.database import Shape
from tidewire.engines.sqlite.stored import checked_head
from tidewire.engines.sqlite.users import missing_users

CHATS: Final = Shape("chats", Chat, without=["head"])
MEMBERS: Final = Shape("chat_memberships", Member)
MAY_CHANGE: Final = ("name", "membership_version", "member_count", "updated_at_ms")

# The head, and the counter that it is checked against.
FIND_CHAT: Final = f"""
SELECT {CHATS.columns},
    coalesce((SELECT max(sequence) FROM messages WHERE chat_id = chats.chat_id), 0),
    (SELECT sequence_counter FROM chat_counters WHERE chat_id = chats.chat_id)
FROM chats WHERE chat_id = ? AND closed_at IS NULL
"""  # noqa: S608 - constants

# A user who comes back keeps the positions, and owes no acknowledgement from before this joining. A
# row without `joined_sequence` is in no index of lowest positions: a direct chat needs none.
JOIN_POSITIONS: Final = """
INSERT INTO delivery_state (user_id, chat_id, updated_at, joined_sequence) VALUES (?, ?, ?, ?)
ON CONFLICT DO UPDATE SET joined_sequence = excluded.joined_sequence
"""

# The positions of former members stay, but are not waited for.
DELETE_MEMBERS: Final = "DELETE FROM chat_memberships WHERE chat_id = ?"
END_POSITIONS: Final = (
    "UPDATE delivery_state SET joined_sequence = NULL"
    " WHERE chat_id = ? AND joined_sequence IS NOT NULL"
)


def find_chat(database: apsw.Connection, chat_id: ChatId) -> Chat | None:
    row: Any = database.execute(FIND_CHAT, (chat_id,)).fetchone()
    if row is None:
        return None
    *fields, indexed, counter = row
    return CHATS.value(fields, head=checked_head(database, chat_id, indexed, counter))


def find_member(database: apsw.Connection, chat_id: ChatId, user_id: UserId) -> Member | None:
    return MEMBERS.first(database, "WHERE chat_id = ? AND user_id = ?", chat_id, user_id)


def access_chat(database: apsw.Connection, reader: UserId, chat_id: ChatId) -> ChatAccess:
    """The one gate: every read of anything in a chat comes through here."""
    chat = find_chat(database, chat_id)
    me = access.check_member(chat, find_member(database, chat_id, reader))
    assert chat is not None
    return ChatAccess(chat, me)


def list_members(
    database: apsw.Connection,
    reader: UserId,
    chat_id: ChatId,
    *,
    after: UserId | None,
    count_max: int,
) -> list[Member]:
    access_chat(database, reader, chat_id)
    rest = "WHERE chat_id = ? AND user_id > ? ORDER BY user_id LIMIT ?"
    return MEMBERS.find(database, rest, chat_id, after or "", count_max)


def roster(database: apsw.Connection, chat_id: ChatId) -> Roster | None:
    version: Any = database.execute(
        "SELECT membership_version FROM chats WHERE chat_id = ? AND closed_at IS NULL", (chat_id,)
    ).get
    if version is None:
        return None
    rows: list[tuple[Any, ...]] = database.execute(
        "SELECT user_id, joined_sequence, blocked_at IS NOT NULL FROM chat_memberships"
        " WHERE chat_id = ? ORDER BY user_id",
        (chat_id,),
    ).fetchall()
    return roster_of(
        chat_id,
        version,
        {user_id: joined_sequence for user_id, joined_sequence, _ in rows},
        has_block=any(is_blocked for _, _, is_blocked in rows),
    )


# New chats.


def create_direct(
    database: apsw.Connection, command: CreateDirect, *, now_ms: int
) -> tuple[CreatedChat, Sequence[ChangeEvent]]:
    chat_changes.check_pair(command)
    one, other = command.actor_id, command.other_id
    key = pair_key(one, other)
    existing: Any = database.execute(
        "SELECT chat_id FROM direct_chat_index WHERE pair_key = ?", (key,)
    ).get
    if existing is not None:
        _set_hidden_through(database, one, existing, None)
        chat = find_chat(database, existing)
        assert chat is not None
        return CreatedChat(chat, created=False), ()
    new = chat_changes.new_direct(
        command,
        missing=missing_users(database, (one, other)),
        blocks_other=is_blocked(database, user_id=one, blocked_id=other),
        is_blocked=is_blocked(database, user_id=other, blocked_id=one),
        shares_group=share_group(database, one, other),
        now_ms=now_ms,
    )
    created = _insert(database, new)
    database.execute(
        "INSERT INTO direct_chat_index VALUES (?, ?, ?)", (key, command.chat_id, now_ms)
    )
    return created


def create_group(
    database: apsw.Connection, command: CreateGroup, *, members_max: int, now_ms: int
) -> tuple[CreatedChat, Sequence[ChangeEvent]]:
    row: Any = database.execute(
        "SELECT created_by, chat_type, closed_at IS NOT NULL FROM chats WHERE chat_id = ?",
        (command.chat_id,),
    ).fetchone()
    if row is not None:
        created_by, chat_type, is_closed = row
        chat_changes.check_found_group(
            command, created_by=created_by, chat_type=chat_type, is_closed=bool(is_closed)
        )
        chat = find_chat(database, command.chat_id)
        assert chat is not None
        return CreatedChat(chat, created=False), ()
    chat_changes.check_group(command, members_max=members_max)
    new = chat_changes.new_group(
        command,
        missing=missing_users(database, (command.actor_id, *command.member_ids)),
        refuse=blocks_any(database, command.member_ids, command.actor_id),
        now_ms=now_ms,
    )
    return _insert(database, new)


def _insert(
    database: apsw.Connection, new: chat_changes.NewChat
) -> tuple[CreatedChat, Sequence[ChangeEvent]]:
    """The chat, its counter and its members, all at once: a chat never lacks its counter."""
    chat = new.chat
    CHATS.insert(database, chat)
    database.execute(
        "INSERT INTO chat_counters (chat_id, sequence_counter, created_at, updated_at)"
        " VALUES (?, 0, ?, ?)",
        (chat.chat_id, chat.created_at_ms, chat.created_at_ms),
    )
    for member in new.members:
        assert member.joined_sequence == 0
        _join(database, chat, member)
    return CreatedChat(chat, created=True), [new.event]


def _join(database: apsw.Connection, chat: Chat, member: Member) -> None:
    MEMBERS.insert(database, member, chat_id=chat.chat_id)
    joined_sequence = None if chat.chat_type is ChatType.DIRECT else member.joined_sequence
    database.execute(
        JOIN_POSITIONS, (member.user_id, chat.chat_id, member.joined_at_ms, joined_sequence)
    )


# Changes of chats.


def change_chat(
    database: apsw.Connection, request: chat_changes.ChangeRequest, *, now_ms: int
) -> tuple[chat_changes.Changed, Sequence[ChangeEvent]]:
    facts = _facts(database, request)
    change = request.decide(facts)
    if request.refuses:
        refuse(database, request.actor_id, request.chat_id, now_ms)
    return chat_changes.changed(facts, change), () if change is None else _carry_out(
        database, change
    )


def _facts(
    database: apsw.Connection, request: chat_changes.ChangeRequest
) -> chat_changes.ChangeFacts:
    """The facts that a change is decided on, as far as the request needs them."""
    actor, chat_id, target = request.actor_id, request.chat_id, request.target_id
    facts = chat_changes.ChangeFacts(
        find_chat(database, chat_id), find_member(database, chat_id, actor)
    )
    if target is not None:
        facts = replace(facts, target=find_member(database, chat_id, target))
        if request.joins:
            facts = replace(
                facts,
                target_exists=not missing_users(database, (target,)),
                target_refuses=blocks_any(database, (target,), actor)
                or has_refused(database, target, chat_id),
            )
    if request.ends:
        rows = database.execute(
            "SELECT user_id FROM chat_memberships WHERE chat_id = ? ORDER BY user_id", (chat_id,)
        )
        facts = replace(facts, member_ids=[UserId(user_id) for (user_id,) in rows])
    return facts


def _carry_out(database: apsw.Connection, change: chat_changes.ChatChange) -> Sequence[ChangeEvent]:
    """Write a change; returns its events."""
    chat, chat_id = change.chat, change.chat.chat_id
    if change.joined is not None:
        _join(database, chat, change.joined)
    for member in change.roles:
        database.execute(
            "UPDATE chat_memberships SET role = ? WHERE chat_id = ? AND user_id = ?",
            (member.role, chat_id, member.user_id),
        )
    if change.left is not None:
        database.execute(DELETE_MEMBERS + " AND user_id = ?", (chat_id, change.left))
        database.execute(END_POSITIONS + " AND user_id = ?", (chat_id, change.left))
    if change.is_closed:
        database.execute(DELETE_MEMBERS, (chat_id,))
        database.execute(END_POSITIONS, (chat_id,))
    closed_at = chat.updated_at_ms if change.is_closed else None
    CHATS.update(database, chat, MAY_CHANGE, closed_at=closed_at)
    return change.events


# What concerns the actor alone.


def mute(
    database: apsw.Connection, actor: UserId, chat_id: ChatId, muted_until_ms: int | None
) -> Member:
    me = access_chat(database, actor, chat_id).me
    database.execute(
        "UPDATE chat_memberships SET muted_until = ? WHERE chat_id = ? AND user_id = ?",
        (muted_until_ms, chat_id, actor),
    )
    return replace(me, muted_until_ms=muted_until_ms)


def hide(database: apsw.Connection, actor: UserId, chat_id: ChatId, *, wanted: bool) -> None:
    chat = access.check_hide(find_chat(database, chat_id), find_member(database, chat_id, actor))
    _set_hidden_through(database, actor, chat_id, chat.head if wanted else None)


def _set_hidden_through(
    database: apsw.Connection, user_id: UserId, chat_id: ChatId, sequence: int | None
) -> None:
    database.execute(
        "UPDATE delivery_state SET hidden_through = ?1"
        " WHERE user_id = ?2 AND chat_id = ?3 AND hidden_through IS NOT ?1",
        (sequence, user_id, chat_id),
    )
