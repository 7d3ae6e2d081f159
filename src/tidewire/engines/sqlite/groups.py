"""What becomes of groups: handed over to another owner, or closed."""

import apsw
import msgspec

from tidewire.domain import access
from tidewire.domain.chats import Member, Role
from tidewire.domain.events import ChatClosed, Event, MembershipChange
from tidewire.domain.ids import ChatId, UserId
from tidewire.engines.sqlite.chats import changed, find_chat, find_member


def hand_over(
    database: apsw.Connection, actor: UserId, chat_id: ChatId, user_id: UserId, now_ms: int
) -> tuple[Member, list[Event]]:
    chat = find_chat(database, chat_id)
    me = find_member(database, chat_id, actor)
    target = find_member(database, chat_id, user_id)
    is_change = access.check_hand_over(chat, me, target=target, target_id=user_id)
    assert chat is not None
    assert me is not None
    assert target is not None
    if not is_change:
        return target, []
    events: list[Event] = []
    for member, role in ((target, Role.OWNER), (me, Role.ADMIN)):
        database.execute(
            "UPDATE chat_memberships SET role = ? WHERE chat_id = ? AND user_id = ?",
            (role, chat_id, member.user_id),
        )
        event = changed(
            database,
            chat,
            msgspec.structs.replace(member, role=role),
            MembershipChange.ROLE_CHANGED,
            actor,
            now_ms,
            count=0,
        )
        chat = event.chat
        events.append(event)
    return msgspec.structs.replace(target, role=Role.OWNER), events


def close_group(
    database: apsw.Connection, actor: UserId, chat_id: ChatId, now_ms: int
) -> tuple[None, list[Event]]:
    chat = find_chat(database, chat_id)
    access.check_close(chat, find_member(database, chat_id, actor))
    assert chat is not None
    rows = database.execute(
        "SELECT user_id FROM chat_memberships WHERE chat_id = ? ORDER BY user_id", (chat_id,)
    )
    member_ids = tuple(UserId(user_id) for (user_id,) in rows)
    database.execute("DELETE FROM chat_memberships WHERE chat_id = ?", (chat_id,))
    database.execute(
        "UPDATE delivery_state SET joined_sequence = NULL"
        " WHERE chat_id = ? AND joined_sequence IS NOT NULL",
        (chat_id,),
    )
    database.execute(
        "UPDATE chats SET membership_version = membership_version + 1, member_count = 0,"
        " updated_at = ?, closed_at = ? WHERE chat_id = ?",
        (now_ms, now_ms, chat_id),
    )
    closed = msgspec.structs.replace(
        chat,
        membership_version=chat.membership_version + 1,
        member_count=0,
        updated_at_ms=now_ms,
    )
    return None, [ChatClosed(closed, member_ids, actor, now_ms)]
