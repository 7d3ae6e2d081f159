"""Making chats. A direct chat, and a group that fits, is one transaction; a larger group is filled
in several and becomes visible with the last of them (M-03)."""

from collections.abc import Sequence
from typing import Final

from tidewire.domain import access
from tidewire.domain.chats import (
    Chat,
    ChatType,
    CreatedChat,
    CreateDirect,
    CreateGroup,
    DirectPolicy,
    Member,
    Role,
    check_chat_name,
    pair_key,
)
from tidewire.domain.errors import (
    ChatIsFull,
    InvalidOperation,
    NotAMember,
    StoreUnavailable,
    UserNotFound,
)
from tidewire.domain.events import ChatCreated
from tidewire.domain.ids import ChatId, UserId
from tidewire.engines.dynamodb import outbox_rows, rows, schema, values
from tidewire.engines.dynamodb.backoff import Hindrance
from tidewire.engines.dynamodb.closing import abandon, sweep_members
from tidewire.engines.dynamodb.database import WRITES_MAX, Database
from tidewire.engines.dynamodb.errors import Cancelled
from tidewire.engines.dynamodb.reading import read_chat
from tidewire.engines.dynamodb.refusals import is_refused, refusal_checks, refusal_keys
from tidewire.engines.dynamodb.rows import Row, Value, Write

MEMBERS_PER_TRANSACTION_MAX: Final = (WRITES_MAX - 3) // 3
"""A member is two rows and the condition that no block is in the way; beside them stand the chat,
its counter and the outbox row."""

IN_THE_WAY: Final = "the database is busy; the same request may be sent again"

Created = tuple[CreatedChat, ChatCreated | None]
"""The answer, and the event if the chat was made by this very call."""


async def check_users_exist(database: Database, user_ids: Sequence[UserId]) -> None:
    """Rows of users are never deleted. An account that is deleted meanwhile leaves its groups once
    more, later (`accounts.deletion`)."""
    found = await database.get_many([(schema.USERS, {"user_id": one}) for one in user_ids])
    missing = [one for one, row in zip(user_ids, found, strict=True) if not values.can_join(row)]
    if missing:
        raise UserNotFound(*missing)


# Direct chats.


async def create_direct(database: Database, command: CreateDirect, *, now_ms: int) -> Created:
    one, other = command.actor_id, command.other_id
    if one == other:
        raise InvalidOperation("a direct chat has two members; nobody chats with himself")
    tried = 0
    while True:
        existing = await database.get(schema.DIRECT_CHATS, {"pair_key": pair_key(one, other)})
        if existing is not None:
            chat = await read_chat(database, ChatId(existing["chat_id"]))
            assert chat is not None
            return CreatedChat(chat, created=False), None
        await check_users_exist(database, [one, other])
        conditions = await _check_may_begin(database, command)
        chat, event, writes = _new_chat(
            command.chat_id,
            ChatType.DIRECT,
            None,
            one,
            roles={one: Role.MEMBER, other: Role.MEMBER},
            now_ms=now_ms,
        )
        pair: dict[str, Value] = {
            "pair_key": pair_key(one, other),
            "chat_id": chat.chat_id,
            "created_at": now_ms,
        }
        try:
            await database.transact([rows.put_new(schema.DIRECT_CHATS, pair), *conditions, *writes])
        except Cancelled:
            await database.pause(Hindrance.CONFLICT, tried)
            tried += 1
        else:
            return CreatedChat(chat, created=True), event


async def _check_may_begin(database: Database, command: CreateDirect) -> list[Write]:
    """The conditions under which the chat may begin, to be checked again by its transaction."""
    one, other = command.actor_id, command.other_id
    keys = [{"user_id": one, "blocked_id": other}, {"user_id": other, "blocked_id": one}]
    blocks = await database.get_many([(schema.BLOCKS, key) for key in keys])
    group = None
    if command.policy is DirectPolicy.SHARED_GROUP:
        group = await shared_group(database, one, other)
    access.check_begin_direct(
        command.policy,
        blocks_other=blocks[0] is not None,
        is_blocked=blocks[1] is not None,
        shares_group=group is not None,
    )
    conditions = [rows.check(schema.BLOCKS, key, "attribute_not_exists(#user_id)") for key in keys]
    if group is not None:
        conditions += [
            rows.check(
                schema.MEMBERSHIPS,
                {"chat_id": group, "user_id": user_id},
                "attribute_exists(#user_id)",
            )
            for user_id in (one, other)
        ]
    return conditions


async def shared_group(database: Database, one: UserId, other: UserId) -> ChatId | None:
    """Some group that both are in."""
    own = await database.query(schema.USER_CHATS, one)
    theirs = await database.query(schema.USER_CHATS, other)
    common = {row["chat_id"] for row in theirs}
    candidates = [
        row["chat_id"]
        for row in own
        if row["chat_type"] == ChatType.GROUP and row["chat_id"] in common
    ]
    found = await database.get_many([(schema.CHATS, {"chat_id": one}) for one in candidates])
    chats = [chat for row in found if (chat := values.chat_of(row)) is not None]
    return chats[0].chat_id if chats else None


# Groups.


async def create_group(
    database: Database, command: CreateGroup, *, members_max: int, now_ms: int
) -> Created:
    row = await database.get(schema.CHATS, {"chat_id": command.chat_id})
    if row is not None:
        return await _resume(database, command, row, now_ms=now_ms)
    check_chat_name(command.name)
    others = dict.fromkeys(command.member_ids, Role.MEMBER)
    if command.actor_id in others or len(others) < len(command.member_ids):
        raise InvalidOperation("name each of the other members once")
    if 1 + len(others) > members_max:
        raise ChatIsFull(members_max)
    await check_users_exist(database, [command.actor_id, *command.member_ids])
    refusals = refusal_keys(command.member_ids, actor=command.actor_id)
    access.check_founders(refuse=await is_refused(database, refusals))
    roles = {command.actor_id: Role.OWNER} | others
    chat, event, writes = _new_chat(
        command.chat_id,
        ChatType.GROUP,
        command.name,
        command.actor_id,
        roles=roles,
        now_ms=now_ms,
    )
    is_small = len(roles) <= MEMBERS_PER_TRANSACTION_MAX
    if is_small:
        writes += refusal_checks(refusals)
    else:
        pending = values.chat_row(chat, status=values.PENDING)
        pending["pending_members"] = list(command.member_ids)
        writes = [rows.put_new(schema.CHATS, pending), _counter(chat)]
    try:
        await database.transact(writes)
    except Cancelled:
        row = await database.get(schema.CHATS, {"chat_id": command.chat_id})
        if row is None:
            # A block has come between; or somebody was in the way, and the same request may follow.
            access.check_founders(refuse=await is_refused(database, refusals))
            raise StoreUnavailable(IN_THE_WAY) from None
        # A retry was faster.
        return await _resume(database, command, row, now_ms=now_ms)
    if is_small:
        return CreatedChat(chat, created=True), event
    return await _fill(database, chat, roles, now_ms=now_ms)


async def _resume(database: Database, command: CreateGroup, row: Row, *, now_ms: int) -> Created:
    """A retry: what the first try has made, finished if it was not."""
    if row["created_by"] != command.actor_id or row["chat_type"] != ChatType.GROUP:
        raise InvalidOperation("this chat id is taken")
    chat = values.chat_of(row)
    if chat is not None:
        return CreatedChat(chat, created=False), None
    if row["status"] == values.CLOSED:
        raise NotAMember
    chat = values.chat_of(row | {"status": values.ACTIVE})
    assert chat is not None
    members = dict.fromkeys((UserId(one) for one in row["pending_members"]), Role.MEMBER)
    roles = {UserId(row["created_by"]): Role.OWNER} | members
    return await _fill(database, chat, roles, now_ms=now_ms)


async def _fill(
    database: Database, chat: Chat, roles: dict[UserId, Role], *, now_ms: int
) -> Created:
    """Write the members of a group that nobody sees yet, and show it with all of them.

    Every transaction needs the group to be hidden still: a late one cannot bring back somebody who
    has left meanwhile (M-04). If a block comes between, the group ends before anybody has seen it.
    """
    key = {"chat_id": chat.chat_id}
    is_hidden = rows.check(schema.CHATS, key, "#status = :pending", pending=values.PENDING)
    members = _members(chat, roles)
    event = ChatCreated(chat, tuple(roles))
    show = rows.update(
        schema.CHATS,
        key,
        "SET #status = :active REMOVE #pending_members",
        condition="#status = :pending",
        active=values.ACTIVE,
        pending=values.PENDING,
    )
    outbox = rows.put_new(schema.OUTBOX, outbox_rows.change_row(event, now_ms=now_ms))
    try:
        for start in range(0, len(members), MEMBERS_PER_TRANSACTION_MAX):
            chunk = members[start : start + MEMBERS_PER_TRANSACTION_MAX]
            others = [one.user_id for one in chunk if one.user_id != chat.created_by]
            checks = refusal_checks(refusal_keys(others, actor=chat.created_by))
            with database.within_budget():
                await database.transact([is_hidden, *checks, *_member_writes(chat, chunk)])
        with database.within_budget():
            await database.transact([show, outbox])
    except Cancelled:
        return await _found_or_refused(database, chat, roles)
    return CreatedChat(chat, created=True), event


async def _found_or_refused(database: Database, chat: Chat, roles: dict[UserId, Role]) -> Created:
    """A group could not be filled: a retry was faster, or a member blocks its founder now."""
    founder = chat.created_by
    others = [user_id for user_id in roles if user_id != founder]
    with database.within_budget():
        is_in_the_way = await is_refused(database, refusal_keys(others, actor=founder))
        has_ended = is_in_the_way and await abandon(database, chat)
        shown = await read_chat(database, chat.chat_id)
    if has_ended:
        await sweep_members(database, chat.chat_id, last=founder)
        raise access.cannot_add()
    if shown is None:
        raise StoreUnavailable(IN_THE_WAY)
    return CreatedChat(shown, created=False), None


def _new_chat(
    chat_id: ChatId,
    chat_type: ChatType,
    name: str | None,
    actor: UserId,
    *,
    roles: dict[UserId, Role],
    now_ms: int,
) -> tuple[Chat, ChatCreated, list[Write]]:
    chat = Chat(
        chat_id=chat_id,
        chat_type=chat_type,
        name=name,
        created_by=actor,
        created_at_ms=now_ms,
        updated_at_ms=now_ms,
        membership_version=1,
        member_count=len(roles),
        head=0,
    )
    event = ChatCreated(chat, tuple(roles))
    writes = [
        rows.put_new(schema.CHATS, values.chat_row(chat)),
        _counter(chat),
        *_member_writes(chat, _members(chat, roles)),
        rows.put_new(schema.OUTBOX, outbox_rows.change_row(event, now_ms=now_ms)),
    ]
    return chat, event, writes


def _counter(chat: Chat) -> Write:
    """Made with the chat, and nowhere else: a missing one is never made up (ADR-004)."""
    at = chat.created_at_ms
    counter: dict[str, Value] = {
        "chat_id": chat.chat_id,
        "sequence_counter": 0,
        "created_at": at,
        "updated_at": at,
    }
    return rows.put_new(schema.COUNTERS, counter)


def _members(chat: Chat, roles: dict[UserId, Role]) -> list[Member]:
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


def _member_writes(chat: Chat, members: Sequence[Member]) -> list[Write]:
    return [
        write
        for member in members
        for write in (
            rows.put(schema.MEMBERSHIPS, values.member_row(chat.chat_id, member)),
            rows.put(schema.USER_CHATS, values.user_chat_row(chat, member)),
        )
    ]
