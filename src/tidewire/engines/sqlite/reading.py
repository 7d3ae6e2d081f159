"""Messages out of the database: pages for sync and history, and single ones."""

from typing import Final

import apsw

from tidewire.domain.errors import CursorAhead, MessageNotFound
from tidewire.domain.ids import ChatId, MessageId, UserId
from tidewire.domain.messages import Message, MessagePage
from tidewire.engines.sqlite.chats import access_chat

MESSAGE: Final = """
SELECT chat_id, sequence, prev_sequence, message_id, sender_id, client_message_id,
    content, content_type, created_at
FROM messages
"""


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
    messages = _page(
        database,
        "WHERE chat_id = ? AND sequence > ? ORDER BY sequence LIMIT ?",
        (chat_id, after, count_max),
        bytes_max,
    )
    through = messages[-1].sequence if messages else after
    return MessagePage(messages, synced_through=through, has_more=through < head, head=head)


def messages_before(
    database: apsw.Connection,
    reader: UserId,
    chat_id: ChatId,
    before: int | None,
    count_max: int,
    bytes_max: int,
) -> MessagePage:
    head = access_chat(database, reader, chat_id).chat.head
    messages = _page(
        database,
        "WHERE chat_id = ? AND sequence < ? ORDER BY sequence DESC LIMIT ?",
        (chat_id, head + 1 if before is None else before, count_max),
        bytes_max,
    )
    messages.reverse()
    through = messages[-1].sequence if messages else 0
    has_more = bool(messages) and messages[0].prev_sequence > 0
    return MessagePage(messages, synced_through=through, has_more=has_more, head=head)


def message(
    database: apsw.Connection, reader: UserId, chat_id: ChatId, message_id: MessageId
) -> Message:
    access_chat(database, reader, chat_id)
    row = database.execute(
        MESSAGE + "WHERE message_id = ? AND chat_id = ?", (message_id, chat_id)
    ).fetchone()
    if row is None:
        raise MessageNotFound
    return Message(*row)


def _page(
    database: apsw.Connection, where: str, bindings: tuple[str | int, ...], bytes_max: int
) -> list[Message]:
    """Messages up to a number of bytes of content, but at least one if there is one."""
    messages: list[Message] = []
    size_bytes = 0
    for row in database.execute(MESSAGE + where, bindings):
        found = Message(*row)
        size_bytes += len(found.content.encode())
        if messages and size_bytes > bytes_max:
            break
        messages.append(found)
    return messages
