"""Reads messages from the database: pages for sync and history, and single messages.

Rows are used as they are if their checksums and their chain hold; otherwise they are read again the
careful way (`stored`).
"""

from itertools import pairwise
from typing import Any, Final

import apsw

from tidewire.domain.errors import CursorAhead, MessageNotFound
from tidewire.domain.ids import ChatId, MessageId, UserId, place_in
from tidewire.domain.messages import Message, MessagePage, cut_page
from tidewire.engines.sqlite import stored
from tidewire.engines.sqlite.chats import access_chat

ABOVE: Final = "WHERE chat_id = ? AND sequence > ? ORDER BY sequence LIMIT ?"
# The message at the border says which one is before it.
THROUGH: Final = "WHERE chat_id = ? AND sequence <= ? ORDER BY sequence DESC LIMIT ?"
# Has the id that is asked for in place of the row's: if the checksum holds, it is that message.
AT_PLACE: Final = (
    stored.MESSAGE.replace(" message_id,", " ?,") + "WHERE chat_id = ? AND sequence = ?"
)
FIND_BY_ID: Final = f"""
SELECT position FROM messages INDEXED BY messages_by_id
WHERE message_id = ? AND ({stored.IS_INDEXED}) AND chat_id = ?
"""  # noqa: S608 - constants


def messages_after(
    database: apsw.Connection,
    reader: UserId,
    chat_id: ChatId,
    after: int,
    *,
    count_max: int,
    bytes_max: int,
) -> MessagePage:
    head = access_chat(database, reader, chat_id).chat.head
    if after > head:
        raise CursorAhead(cursor=after, head=head)
    messages = stored.read_whole(database, ABOVE, (chat_id, after, count_max + 1), bytes_max)
    found, has_more = cut_page(messages or (), count_max=count_max, bytes_max=bytes_max)
    begins = not messages or messages[0].prev_sequence <= after
    ends = has_more or (found[-1].sequence if found else after) == head
    if messages is None or not (begins and ends and _is_chain(messages)):
        mended = stored.messages_after_mended(database, chat_id, after, count_max)
        found, has_more = cut_page(mended, count_max=count_max, bytes_max=bytes_max)
    through = found[-1].sequence if found else after
    return MessagePage(found, synced_through=through, has_more=has_more, head=head)


def messages_before(
    database: apsw.Connection,
    reader: UserId,
    chat_id: ChatId,
    before: int | None,
    *,
    count_max: int,
    bytes_max: int,
) -> MessagePage:
    head = access_chat(database, reader, chat_id).chat.head
    border = head + 1 if before is None else before
    messages = stored.read_whole(database, THROUGH, (chat_id, border, count_max + 1), bytes_max)
    if messages is not None:
        reaches_head = before is not None or (messages[0].sequence if messages else 0) == head
        if not (reaches_head and _is_chain(messages[::-1])):
            messages = None
    if messages is None:
        messages = stored.messages_before_mended(database, chat_id, border, count_max)
    below = (message for message in messages if message.sequence < border)
    found, _ = cut_page(below, count_max=count_max, bytes_max=bytes_max)
    found.reverse()
    through = found[-1].sequence if found else 0
    has_more = bool(found) and found[0].prev_sequence > 0
    return MessagePage(found, synced_through=through, has_more=has_more, head=head)


def message(
    database: apsw.Connection, reader: UserId, chat_id: ChatId, message_id: MessageId
) -> Message:
    access_chat(database, reader, chat_id)
    place = place_in(message_id)
    try:
        row: Any = database.execute(AT_PLACE, (message_id, chat_id, place)).fetchone()
        found = None if row is None else stored.whole(row)
    except UnicodeDecodeError:
        row, found = (), None
    if found is None and row is not None:
        # The id is too old to carry its place, so this row is another one's; or the row is damaged.
        found = stored.message_at(database, chat_id, place)
        found = found if found is not None and found.is_damaged else None
    if found is not None:
        return found
    position: Any = database.execute(FIND_BY_ID, (message_id, chat_id)).get
    if position is None:
        raise MessageNotFound
    return stored.message_of_row(database, chat_id, position)


def _is_chain(messages: list[Message]) -> bool:
    return all(later.prev_sequence == one.sequence for one, later in pairwise(messages))
