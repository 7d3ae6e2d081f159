"""The list of a user's chats: all by their head rows, sorted here, cut by a snapshot (A-03).

The snapshot is the newest time that the first page saw. A chat that has moved since is put where it
was by its last message up to then. Times are those of the servers that stored the messages: a chat
whose messages carry times out of order may be shown on two pages or, once, on none.
"""

import asyncio
from collections.abc import Sequence
from typing import Final

import msgspec

from tidewire.domain.chat_list import ChatListCursor, ChatListItem, ChatListPage, LastMessage
from tidewire.domain.chats import ChatType
from tidewire.domain.delivery import effective, is_hidden
from tidewire.domain.ids import ChatId, UserId
from tidewire.domain.limits import PREVIEW_CHARACTERS_MAX
from tidewire.domain.messages import Message
from tidewire.engines.dynamodb import schema, values
from tidewire.engines.dynamodb.database import Database
from tidewire.engines.dynamodb.positions import AT_ONCE_MAX, count_others
from tidewire.engines.dynamodb.reading import newest_message, read_chat
from tidewire.engines.dynamodb.rosters import read_members

LOOK_BACK_MAX: Final = 500
"""How many messages are looked through for the last one before the snapshot."""


class Place(msgspec.Struct, frozen=True, order=True):
    activity_at_ms: int
    chat_id: ChatId


async def list_chats(
    database: Database,
    reader: UserId,
    *,
    cursor: ChatListCursor | None,
    count_max: int,
    active_since_ms: int,
) -> ChatListPage:
    places = await _places(database, reader, None if cursor is None else cursor.snapshot)
    waiting = [place for place in places if place.activity_at_ms >= active_since_ms]
    if cursor is None:
        snapshot = places[0].activity_at_ms if places else 0
    else:
        snapshot = cursor.snapshot
        last = Place(cursor.activity_at_ms, cursor.chat_id)
        waiting = [place for place in waiting if place < last]
    page = waiting[:count_max]
    gate = asyncio.Semaphore(AT_ONCE_MAX)

    async def item(place: Place) -> ChatListItem | None:
        async with gate:
            with database.within_budget():
                return await _item(database, reader, place)

    items = await asyncio.gather(*(item(place) for place in page))
    following = None
    if len(page) < len(waiting):
        following = ChatListCursor(snapshot, page[-1].activity_at_ms, page[-1].chat_id)
    return ChatListPage([one for one in items if one is not None], following)


async def _places(database: Database, reader: UserId, snapshot: int | None) -> Sequence[Place]:
    """All chats of the reader that can be seen, newest activity first, as of the snapshot."""
    own = await database.query(schema.USER_CHATS, reader)
    heads = await database.get_many([(schema.CHATS, {"chat_id": row["chat_id"]}) for row in own])
    places = []
    for row, head in zip(own, heads, strict=True):
        chat = values.chat_of(head)
        if head is None or chat is None:
            continue
        last_ms = head["last_message_at"]
        if snapshot is not None and last_ms > snapshot:
            last_ms = await _last_before(database, chat.chat_id, chat.head, snapshot)
        places.append(Place(max(row["joined_at"], last_ms), chat.chat_id))
    return sorted(places, reverse=True)


async def _last_before(database: Database, chat_id: ChatId, head: int, snapshot: int) -> int:
    found = await database.query(
        schema.MESSAGES,
        chat_id,
        between=(1, head),
        ascending=False,
        limit=LOOK_BACK_MAX,
        fields="#created_at",
    )
    return next((row["created_at"] for row in found if row["created_at"] <= snapshot), 0)


async def _item(database: Database, reader: UserId, place: Place) -> ChatListItem | None:
    chat = await read_chat(database, place.chat_id)
    if chat is None:
        return None
    message = await newest_message(database, chat.chat_id, chat.head)
    row = await database.get(schema.POSITIONS, {"user_id": reader, "chat_id": chat.chat_id})
    positions = values.positions_of(row)
    other = None
    if chat.chat_type is ChatType.DIRECT:
        members = await read_members(database, chat.chat_id)
        [other_id] = [user_id for user_id in members if user_id != reader]
        user_row = await database.get(schema.USERS, {"user_id": other_id})
        other = None if user_row is None else values.user_of(user_row)
    me_row = await database.get(schema.MEMBERSHIPS, {"chat_id": chat.chat_id, "user_id": reader})
    me = values.member_of(me_row)
    if me is None:
        return None
    read = effective(positions.read, me.joined_sequence)
    delivered = effective(positions.delivered, me.joined_sequence)
    unread = await count_others(database, chat, reader, read)
    return ChatListItem(
        chat=chat,
        me=me,
        activity_at_ms=place.activity_at_ms,
        last_message=None if message is None else _last(message),
        other=other,
        positions=positions,
        unread=unread,
        undelivered=unread
        if read == delivered
        else await count_others(database, chat, reader, delivered),
        is_hidden=row is not None and is_hidden(row.get("hidden_through"), chat.head),
    )


def _last(message: Message) -> LastMessage:
    return LastMessage(
        message.message_id,
        message.sequence,
        message.sender_id,
        message.content[:PREVIEW_CHARACTERS_MAX],
        message.created_at_ms,
    )
