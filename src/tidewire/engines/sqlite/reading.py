"""Messages out of the database: pages for sync and history, and single ones."""

from typing import Any, Final

import apsw

from tidewire.domain.errors import CursorAhead, MessageNotFound
from tidewire.domain.ids import ChatId, MessageId, UserId
from tidewire.domain.messages import Message, MessagePage
from tidewire.engines.sqlite import stored
from tidewire.engines.sqlite.chats import access_chat

FIND_BY_ID: Final = "SELECT position FROM messages INDEXED BY messages_by_id WHERE message_id = ?"


def messages_after(
    database: apsw.Connection,
    reader: UserId,
    chat_id: ChatId,
    after: int,
    count_max: int,
    bytes_max: int,
) -> MessagePage:
    head = access_chat(database, reader, chat_id).chat.head
    if after > head:
        raise CursorAhead(cursor=after, head=head)
    messages, has_more = stored.messages_after(
        database, chat_id, after, count_max, bytes_max, head=head
    )
    through = messages[-1].sequence if messages else after
    return MessagePage(messages, synced_through=through, has_more=has_more, head=head)


def messages_before(
    database: apsw.Connection,
    reader: UserId,
    chat_id: ChatId,
    before: int | None,
    count_max: int,
    bytes_max: int,
) -> MessagePage:
    head = access_chat(database, reader, chat_id).chat.head
    messages = stored.messages_before(database, chat_id, before, count_max, bytes_max, head=head)
    through = messages[-1].sequence if messages else 0
    has_more = bool(messages) and messages[0].prev_sequence > 0
    return MessagePage(messages, synced_through=through, has_more=has_more, head=head)


def message(
    database: apsw.Connection, reader: UserId, chat_id: ChatId, message_id: MessageId
) -> Message:
    access_chat(database, reader, chat_id)
    where = "WHERE message_id = ? AND chat_id = ?"
    try:
        row = database.execute(stored.MESSAGE + where, (message_id, chat_id)).fetchone()
        found = None if row is None else stored.whole(row)
    except UnicodeDecodeError:
        row, found = (), None
    if row is None:
        raise MessageNotFound
    if found is None:
        position: Any = database.execute(FIND_BY_ID, (message_id,)).get
        found = stored.message_of_row(database, chat_id, position)
    return found
