"""Changing who is in a chat and what it is called: decided on a version, committed on it (M-05)."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

import msgspec

from tidewire.domain import access
from tidewire.domain.chats import Chat, ChatAccess, Member, Role, check_chat_name
from tidewire.domain.errors import NotAMember
from tidewire.domain.events import ChangeEvent, ChatRenamed, MembershipChange, MembershipChanged
from tidewire.domain.ids import ChatId, UserId
from tidewire.engines.dynamodb import outbox_rows, rows, schema, values
from tidewire.engines.dynamodb.backoff import Hindrance
from tidewire.engines.dynamodb.database import Database
from tidewire.engines.dynamodb.errors import Cancelled, ConditionFailed
from tidewire.engines.dynamodb.reading import check_member, read_chat, read_member
from tidewire.engines.dynamodb.refusals import Key, refusal_checks, refusal_write
from tidewire.engines.dynamodb.rows import Value, Write

Members = Mapping[UserId, Member | None]


class Change(msgspec.Struct, frozen=True):
    """What is to be written, if the chat is still as it was when this was decided."""

    events: Sequence[ChangeEvent]
    """In order, each of a version of its own; the last one has the chat as it is to be."""
    writes: Sequence[Write]
    joins: bool = False
    """Fenced by the head as well, which becomes the joiner's `joined_sequence`."""


class Facts(msgspec.Struct, frozen=True):
    """What a change is decided on: the head row first, everything else read after it."""

    chat: Chat | None
    members: Members
    """The memberships of those concerned."""
    target_exists: bool
    """Of the user concerned, the last one."""
    target_refuses: bool
    """One of the refusals that were asked for is there."""


Decide = Callable[[Facts], Change | None]


async def change_chat(
    database: Database,
    chat_id: ChatId,
    concerned: Sequence[UserId],
    decide: Decide,
    *,
    refusals: Sequence[Key] = (),
    now_ms: int,
) -> Change | None:
    """Decide and commit, again and again until both are about the same version; None: no change.

    `decide` raises what is refused. The memberships are read after the head row: if one of them
    changes in between or later, the version has moved and the commit fails. `refusals` that are not
    there are part of the change's own writes, as conditions.
    """
    tried = 0
    while True:
        chat = await read_chat(database, chat_id)
        found = await database.get_many(
            [
                (schema.USERS, {"user_id": concerned[-1]}),
                *(
                    (schema.MEMBERSHIPS, {"chat_id": chat_id, "user_id": user_id})
                    for user_id in concerned
                ),
                *((schema.BLOCKS, key) for key in refusals),
            ]
        )
        count = 1 + len(concerned)
        members = {
            user_id: values.member_of(row)
            for user_id, row in zip(concerned, found[1:count], strict=True)
        }
        is_refused = any(row is not None for row in found[count:])
        change = decide(Facts(chat, members, values.can_join(found[0]), is_refused))
        if change is None:
            return None
        assert chat is not None
        try:
            await database.transact(
                [
                    _fence(chat, change, now_ms),
                    *change.writes,
                    *refusal_checks(refusals),
                    *(
                        rows.put_new(schema.OUTBOX, outbox_rows.change_row(event, now_ms=now_ms))
                        for event in change.events
                    ),
                ]
            )
        except Cancelled:
            database.counts.fences_failed += 1
            await database.pause(Hindrance.CONFLICT, min(tried, 2))
            tried += 1
        else:
            return change


def _fence(before: Chat, change: Change, now_ms: int) -> Write:
    after = change.events[-1].chat
    condition = "#membership_version = :before"
    fields: dict[str, Value] = {
        "before": before.membership_version,
        "after": after.membership_version,
        "count": after.member_count,
        "now": now_ms,
    }
    expression = "SET #membership_version = :after, #member_count = :count, #updated_at = :now"
    if change.joins:
        condition += " AND #last_sequence = :head"
        fields["head"] = before.head
    if after.name != before.name:
        expression += ", #name = :name"
        fields["name"] = after.name
    key = {"chat_id": before.chat_id}
    return rows.update(schema.CHATS, key, expression, condition=condition, **fields)


def _next(chat: Chat, now_ms: int, **changed: object) -> Chat:
    return msgspec.structs.replace(
        chat,
        membership_version=chat.membership_version + 1,
        updated_at_ms=now_ms,
        **changed,
    )


def _member_event(
    chat: Chat, member: Member, change: MembershipChange, actor: UserId, now_ms: int
) -> MembershipChanged:
    return MembershipChanged(
        chat=chat,
        user_id=member.user_id,
        change=change,
        role=member.role,
        joined_sequence=member.joined_sequence,
        changed_by=actor,
        changed_at_ms=now_ms,
    )


def decide_add(
    actor: UserId, user_id: UserId, role: Role, *, members_max: int, now_ms: int
) -> Decide:
    def decide(facts: Facts) -> Change:
        chat, members = facts.chat, facts.members
        access.check_add(
            chat,
            members[actor],
            target=members[user_id],
            target_exists=facts.target_exists,
            target_id=user_id,
            target_refuses=facts.target_refuses,
            role=role,
            members_max=members_max,
        )
        assert chat is not None
        member = Member(
            user_id=user_id,
            role=role,
            joined_at_ms=now_ms,
            joined_sequence=chat.head,
            added_by=actor,
        )
        after = _next(chat, now_ms, member_count=chat.member_count + 1)
        writes = [
            rows.put_new(schema.MEMBERSHIPS, values.member_row(chat.chat_id, member)),
            rows.put(schema.USER_CHATS, values.user_chat_row(after, member)),
        ]
        event = _member_event(after, member, MembershipChange.ADDED, actor, now_ms)
        return Change([event], writes, joins=True)

    return decide


def _removal(chat: Chat, member: Member, actor: UserId, now_ms: int) -> Change:
    after = _next(chat, now_ms, member_count=chat.member_count - 1)
    writes = [
        rows.delete(
            schema.MEMBERSHIPS,
            {"chat_id": chat.chat_id, "user_id": member.user_id},
            condition="attribute_exists(#user_id)",
        ),
        rows.delete(schema.USER_CHATS, {"user_id": member.user_id, "chat_id": chat.chat_id}),
    ]
    return Change([_member_event(after, member, MembershipChange.REMOVED, actor, now_ms)], writes)


def decide_remove(actor: UserId, user_id: UserId, *, now_ms: int) -> Decide:
    def decide(facts: Facts) -> Change:
        chat, members = facts.chat, facts.members
        target = members[user_id]
        access.check_remove(chat, members[actor], target=target, target_id=user_id)
        assert chat is not None
        assert target is not None
        return _removal(chat, target, actor, now_ms)

    return decide


def decide_leave(actor: UserId, *, for_good: bool, now_ms: int) -> Decide:
    def decide(facts: Facts) -> Change:
        chat, member = facts.chat, facts.members[actor]
        access.check_leave(chat, member)
        assert chat is not None
        assert member is not None
        removal = _removal(chat, member, actor, now_ms)
        if not for_good:
            return removal
        writes = [*removal.writes, refusal_write(actor, chat.chat_id, now_ms)]
        return msgspec.structs.replace(removal, writes=writes)

    return decide


def decide_role(actor: UserId, user_id: UserId, role: Role, *, now_ms: int) -> Decide:
    def decide(facts: Facts) -> Change | None:
        chat, members = facts.chat, facts.members
        target = members[user_id]
        access.check_change_role(chat, members[actor], target=target, target_id=user_id, role=role)
        assert chat is not None
        assert target is not None
        if target.role is role:
            return None
        member = msgspec.structs.replace(target, role=role)
        event = _role_event(_next(chat, now_ms), member, actor, now_ms)
        return Change([event], [_role_write(chat, member)])

    return decide


def _role_write(chat: Chat, member: Member) -> Write:
    return rows.update(
        schema.MEMBERSHIPS,
        {"chat_id": chat.chat_id, "user_id": member.user_id},
        "SET #role = :role",
        condition="attribute_exists(#user_id)",
        role=member.role.value,
    )


def _role_event(chat: Chat, member: Member, actor: UserId, now_ms: int) -> MembershipChanged:
    return _member_event(chat, member, MembershipChange.ROLE_CHANGED, actor, now_ms)


def decide_hand_over(actor: UserId, user_id: UserId, *, now_ms: int) -> Decide:
    def decide(facts: Facts) -> Change | None:
        chat, members = facts.chat, facts.members
        me, target = members[actor], members[user_id]
        if not access.check_hand_over(chat, me, target=target, target_id=user_id):
            return None
        assert chat is not None
        assert me is not None
        assert target is not None
        owner = msgspec.structs.replace(target, role=Role.OWNER)
        admin = msgspec.structs.replace(me, role=Role.ADMIN)
        given = _next(chat, now_ms)
        events = [
            _role_event(given, owner, actor, now_ms),
            _role_event(_next(given, now_ms), admin, actor, now_ms),
        ]
        return Change(events, [_role_write(chat, owner), _role_write(chat, admin)])

    return decide


def decide_rename(actor: UserId, name: str, *, now_ms: int) -> Decide:
    def decide(facts: Facts) -> Change | None:
        chat = facts.chat
        check_chat_name(name)
        access.check_rename(chat, facts.members[actor])
        assert chat is not None
        if chat.name == name:
            return None
        return Change([ChatRenamed(_next(chat, now_ms, name=name), actor, now_ms)], ())

    return decide


async def access_chat(database: Database, reader: UserId, chat_id: ChatId) -> ChatAccess:
    chat = await read_chat(database, chat_id)
    me = await check_member(database, chat_id, reader)
    if chat is None:
        raise NotAMember
    return ChatAccess(chat, me)


async def hide(database: Database, actor: UserId, chat_id: ChatId, *, wanted: bool) -> None:
    """Written beside the actor's positions, which are read fresh wherever a chat is listed."""
    chat = await read_chat(database, chat_id)
    me = await read_member(database, chat_id, actor)
    head = access.check_hide(chat, me).head
    if not wanted:
        await unhide(database, actor, chat_id)
        return
    assert me is not None
    # The row may not be there yet: then it begins where positions begin.
    hidden = rows.update(
        schema.POSITIONS,
        {"user_id": actor, "chat_id": chat_id},
        "SET #hidden_through = :head,"
        " #last_acked_sequence = if_not_exists(#last_acked_sequence, :none),"
        " #last_read_sequence = if_not_exists(#last_read_sequence, :none),"
        " #updated_at = if_not_exists(#updated_at, :joined)",
        head=head,
        none=0,
        joined=me.joined_at_ms,
    )
    await database.transact([hidden])


async def unhide(database: Database, user_id: UserId, chat_id: ChatId) -> None:
    """Show a chat again; nothing happens if it is not hidden."""
    key = {"user_id": user_id, "chat_id": chat_id}
    row = await database.get(schema.POSITIONS, key)
    if row is None or "hidden_through" not in row:
        return
    shown = rows.update(
        schema.POSITIONS,
        key,
        "REMOVE #hidden_through",
        condition="attribute_exists(#hidden_through)",
    )
    with suppress(Cancelled):
        await database.transact([shown])


async def mute(
    database: Database, actor: UserId, chat_id: ChatId, muted_until_ms: int | None
) -> Member:
    await access_chat(database, actor, chat_id)
    key = {"chat_id": chat_id, "user_id": actor}
    fields: dict[str, Value] = {} if muted_until_ms is None else {"until": muted_until_ms}
    change = "REMOVE #muted_until" if muted_until_ms is None else "SET #muted_until = :until"
    condition = "attribute_exists(#user_id)"
    write = rows.update(schema.MEMBERSHIPS, key, change, condition=condition, **fields)
    try:
        row = await database.write(write, returned="ALL_NEW")
    except ConditionFailed as failed:
        raise NotAMember from failed
    member = values.member_of(row)
    assert member is not None
    return member
