"""The list of a user's chats: reads all head rows, sorts them here, as of a snapshot (A-03).

The snapshot is the newest time that the first page saw. A chat with newer activity is placed by its
last message up to the snapshot. Times are those of the servers that stored the messages: a chat
whose messages have times out of order may be shown on two pages or, once, on none.
"""

from typing import Final

import msgspec

from tidewire.domain.chat_list import ChatListCursor, ChatListItem, ChatListPage
from tidewire.domain.chats import ChatType
from tidewire.domain.delivery import effective, is_hidden
from tidewire.domain.ids import ChatId, UserId
from tidewire.engines.dynamodb import schema, values
from tidewire.engines.dynamodb.acts import act
from tidewire.engines.dynamodb.amended import Amended
from tidewire.engines.dynamodb.positions import PositionsPart

LOOK_BACK_MAX: Final = 500
"""How many messages are searched for the last one before the snapshot."""


class Place(msgspec.Struct, frozen=True, order=True):
    activity_at_ms: int
    chat_id: ChatId


class ChatList(PositionsPart, Amended):
    @act
    async def chat_list(
        self,
        reader: UserId,
        *,
        cursor: ChatListCursor | None,
        count_max: int,
        active_since_ms: int = 0,
    ) -> ChatListPage:
        places = await self._places(reader, None if cursor is None else cursor.snapshot)
        waiting = [place for place in places if place.activity_at_ms >= active_since_ms]
        if cursor is None:
            snapshot = places[0].activity_at_ms if places else 0
        else:
            snapshot = cursor.snapshot
            last = Place(cursor.activity_at_ms, cursor.chat_id)
            waiting = [place for place in waiting if place < last]
        page = waiting[:count_max]
        items = await self._side_by_side([self._item(reader, place) for place in page])
        following = None
        if len(page) < len(waiting):
            following = ChatListCursor(snapshot, page[-1].activity_at_ms, page[-1].chat_id)
        return ChatListPage([one for one in items if one is not None], following)

    async def _places(self, reader: UserId, snapshot: int | None) -> list[Place]:
        """All visible chats of the reader, newest activity first, as of the snapshot."""
        own = await self._database.query(schema.USER_CHATS, reader)
        heads = await self._database.get_each(schema.CHATS, [row["chat_id"] for row in own])
        places = []
        for row, head in zip(own, heads, strict=True):
            chat = values.chat_of(head)
            if head is None or chat is None:
                continue
            last_ms = head["last_message_at"]
            if snapshot is not None and last_ms > snapshot:
                last_ms = await self._last_before(chat.chat_id, chat.head, snapshot)
            places.append(Place(max(row["joined_at"], last_ms), chat.chat_id))
        return sorted(places, reverse=True)

    async def _last_before(self, chat_id: ChatId, head: int, snapshot: int) -> int:
        found = await self._database.query(
            schema.MESSAGES,
            chat_id,
            between=(1, head),
            ascending=False,
            limit=LOOK_BACK_MAX,
            fields="#created_at",
        )
        return next((row["created_at"] for row in found if row["created_at"] <= snapshot), 0)

    async def _item(self, reader: UserId, place: Place) -> ChatListItem | None:
        head_row = await self._database.get(schema.CHATS, {"chat_id": place.chat_id})
        chat = values.chat_of(head_row)
        if head_row is None or chat is None:
            return None
        last_message = await self._last_message(chat.chat_id, head_row)
        key = {"user_id": reader, "chat_id": chat.chat_id}
        await self._write_waiting([(chat.chat_id, reader)])
        row = await self._database.get(schema.POSITIONS, key)
        positions = values.positions_of(row)
        other = None
        if chat.chat_type is ChatType.DIRECT:
            members, _ = await self._members_of(chat)
            [other_id] = [user_id for user_id in members if user_id != reader]
            user_row = await self._database.get(schema.USERS, {"user_id": other_id})
            other = None if user_row is None else values.USER.value(user_row)
        me = await self._member(chat.chat_id, reader)
        if me is None:
            return None
        read = effective(positions.read, me.joined_sequence)
        delivered = effective(positions.delivered, me.joined_sequence)
        unread = (await self._unread(chat, reader, read)).messages
        return ChatListItem(
            chat=chat,
            me=me,
            activity_at_ms=place.activity_at_ms,
            last_message=last_message,
            other=other,
            positions=positions,
            unread=unread,
            undelivered=unread
            if read == delivered
            else (await self._unread(chat, reader, delivered)).messages,
            is_hidden=row is not None and is_hidden(row.get("hidden_through"), chat.head),
        )
