"""The list of a user's chats, from the memory engine's tables."""

from tests.support.memory.tables import ChatRecord, MemoryTables
from tidewire.domain.chat_list import (
    ChatListCursor,
    ChatListItem,
    ChatListPage,
    LastMessage,
    last_message_of,
)
from tidewire.domain.chats import ChatType
from tidewire.domain.ids import UserId


def list_chats(
    tables: MemoryTables,
    reader: UserId,
    cursor: ChatListCursor | None,
    count_max: int,
    active_since_ms: int,
) -> ChatListPage:
    snapshot = tables.commits if cursor is None else cursor.snapshot
    places = sorted(
        (
            (record.activity_at_ms(record.members[reader], snapshot=snapshot), chat_id)
            for chat_id, record in tables.chats.items()
            if reader in record.members
        ),
        reverse=True,
    )
    waiting = [
        place
        for place in places
        if place[0] >= active_since_ms
        and (cursor is None or place < (cursor.activity_at_ms, cursor.chat_id))
    ]
    page = waiting[:count_max]
    items = [
        _item(tables, tables.chats[chat_id], reader, activity_at_ms)
        for activity_at_ms, chat_id in page
    ]
    following = ChatListCursor(snapshot, *page[-1]) if len(page) < len(waiting) else None
    return ChatListPage(items, following)


def _last_message(record: ChatRecord) -> LastMessage | None:
    message = record.last_message()
    edits = [] if message is None else record.edits_of(message.sequence)
    return last_message_of(message, edits[-1].content if edits else None)


def _item(
    tables: MemoryTables, record: ChatRecord, reader: UserId, activity_at_ms: int
) -> ChatListItem:
    me = record.members[reader]
    others = [user_id for user_id in record.members if user_id != reader]
    is_direct = record.chat_type is ChatType.DIRECT
    return ChatListItem(
        chat=record.chat,
        me=me,
        activity_at_ms=activity_at_ms,
        last_message=_last_message(record),
        other=tables.users.get(others[0]) if is_direct else None,
        positions=record.positions_of(reader),
        unread=record.unread(me),
        undelivered=record.undelivered(me),
        is_hidden=record.is_hidden(reader),
    )
