"""Reading messages: the head first, then the messages up to it, then whether the reader may.

The head is read strongly, so everything up to it is committed. A page that does not hang together
is read again until it does; membership is checked last, so that nobody is shown what was written
after his removal.
"""

from collections.abc import Callable, Sequence

from tidewire.domain.chats import Chat, Member
from tidewire.domain.errors import CursorAhead, MessageNotFound, NotAMember
from tidewire.domain.ids import ChatId, MessageId, UserId
from tidewire.domain.limits import HISTORY_MESSAGES_MAX
from tidewire.domain.messages import Message, MessagePage
from tidewire.engines.dynamodb import schema, values
from tidewire.engines.dynamodb.backoff import Hindrance
from tidewire.engines.dynamodb.database import Database
from tidewire.engines.dynamodb.pages import chained_after, chained_before, cut, is_enough


async def read_chat(database: Database, chat_id: ChatId) -> Chat | None:
    return values.chat_of(await database.get(schema.CHATS, {"chat_id": chat_id}))


async def read_member(database: Database, chat_id: ChatId, user_id: UserId) -> Member | None:
    key = {"chat_id": chat_id, "user_id": user_id}
    return values.member_of(await database.get(schema.MEMBERSHIPS, key))


async def check_member(database: Database, chat_id: ChatId, reader: UserId) -> Member:
    """The one gate for readers, to be passed after what they are to see was read."""
    member = await read_member(database, chat_id, reader)
    if member is None:
        raise NotAMember
    return member


async def _chat(database: Database, chat_id: ChatId) -> Chat:
    chat = await read_chat(database, chat_id)
    if chat is None:
        raise NotAMember
    return chat


async def messages_after(
    database: Database,
    reader: UserId,
    chat_id: ChatId,
    after: int,
    *,
    count_max: int,
    bytes_max: int,
) -> MessagePage:
    head = (await _chat(database, chat_id)).head
    page: list[Message] = []
    tried = 0
    while not page and after < head:
        found = await _messages(
            database,
            chat_id,
            (after + 1, head),
            count_max=count_max,
            bytes_max=bytes_max,
            chain=lambda messages: chained_after(messages, after),
        )
        page = cut(found, count_max=count_max, bytes_max=bytes_max)
        if not page:
            await database.pause(Hindrance.PARTIAL, tried)
            tried += 1
    await check_member(database, chat_id, reader)
    if after > head:
        raise CursorAhead(cursor=after, head=head)
    through = page[-1].sequence if page else after
    return MessagePage(messages=page, synced_through=through, has_more=through < head, head=head)


async def messages_before(
    database: Database,
    reader: UserId,
    chat_id: ChatId,
    before: int | None,
    *,
    count_max: int,
    bytes_max: int,
) -> MessagePage:
    head = (await _chat(database, chat_id)).head
    top = await _top(database, chat_id, before, head)
    page: list[Message] = []
    tried = 0
    while not page and top:
        found = await _messages(
            database,
            chat_id,
            (1, top),
            ascending=False,
            count_max=count_max,
            bytes_max=bytes_max,
            chain=lambda messages: chained_before(messages, top),
        )
        page = cut(found, count_max=count_max, bytes_max=bytes_max)
        if not page:
            await database.pause(Hindrance.PARTIAL, tried)
            tried += 1
    await check_member(database, chat_id, reader)
    return MessagePage(
        messages=page[::-1],
        synced_through=page[0].sequence if page else 0,
        has_more=bool(page) and page[-1].prev_sequence > 0,
        head=head,
    )


async def _top(database: Database, chat_id: ChatId, before: int | None, head: int) -> int:
    """The last message below a sequence, as the one that follows it says; 0 if there is none."""
    if before is None or before > head:
        return head
    if before < 1:
        # Sequences begin at 1: nothing is below, and no message would ever say so.
        return 0
    tried = 0
    while True:
        rows = await database.query(schema.MESSAGES, chat_id, between=(before, head), limit=1)
        # Something at or above `before` there is: the head. If the first of it hangs on another
        # that is not below, that one does not show itself yet.
        if rows and rows[0]["prev_sequence"] < before:
            top: int = rows[0]["prev_sequence"]
            return top
        database.counts.pages_cut += 1
        await database.pause(Hindrance.PARTIAL, tried)
        tried += 1


async def _messages(
    database: Database,
    chat_id: ChatId,
    between: tuple[int, int],
    *,
    ascending: bool = True,
    count_max: int,
    bytes_max: int,
    chain: Callable[[Sequence[Message]], list[Message]],
) -> list[Message]:
    """Messages that hang together, until there are enough or one is missing."""
    found: list[Message] = []
    start = None
    while True:
        rows, start = await database.query_page(
            schema.MESSAGES,
            chat_id,
            between=between,
            ascending=ascending,
            limit=count_max - len(found),
            start=start,
        )
        found += [values.message_of(row) for row in rows]
        chained = chain(found)
        if len(chained) < len(found):
            database.counts.pages_cut += 1
            return chained
        if start is None or is_enough(found, count_max=count_max, bytes_max=bytes_max):
            return found


async def newest_message(database: Database, chat_id: ChatId, head: int) -> Message | None:
    """The message at the head; None if there is none."""
    if not head:
        return None
    tried = 0
    while True:
        row = await database.get(schema.MESSAGES, {"chat_id": chat_id, "sequence": head})
        if row is not None:
            return values.message_of(row)
        await database.pause(Hindrance.PARTIAL, tried)
        tried += 1


async def message_by_id(
    database: Database, reader: UserId, chat_id: ChatId, message_id: MessageId
) -> Message:
    message = await _indexed(database, chat_id, message_id)
    if message is None:
        # The index lags: what was written just now is looked for among the newest.
        rows = await database.query(
            schema.MESSAGES, chat_id, ascending=False, limit=HISTORY_MESSAGES_MAX
        )
        recent = [values.message_of(row) for row in rows if row["message_id"] == message_id]
        message = recent[0] if recent else None
    chat = await read_chat(database, chat_id)
    await check_member(database, chat_id, reader)
    if chat is None:
        raise NotAMember
    if message is None or message.sequence > chat.head:
        raise MessageNotFound
    return message


async def _indexed(database: Database, chat_id: ChatId, message_id: MessageId) -> Message | None:
    entries = await database.query(schema.MESSAGES, message_id, index=schema.MESSAGE_ID_INDEX)
    for entry in entries:
        if entry["chat_id"] == chat_id:
            key = {"chat_id": chat_id, "sequence": entry["sequence"]}
            row = await database.get(schema.MESSAGES, key)
            return None if row is None else values.message_of(row)
    return None
