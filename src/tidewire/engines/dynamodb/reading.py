"""Reads the log: the head first, then the entries up to it, last the reader's membership.

The head is read strongly, so everything up to it is committed. A page with a gap in its chain is
read again until it has none; membership is checked last, so that no reader is shown what was
written after being removed.
"""

from collections.abc import Callable, Sequence

from tidewire.domain.chats import Chat, ChatAccess, Member
from tidewire.domain.errors import CursorAhead, MessageNotFound, NotAMember
from tidewire.domain.ids import ChatId, MessageId, UserId, place_in
from tidewire.domain.messages import Message, MessagePage
from tidewire.engines.dynamodb import rows, schema, values
from tidewire.engines.dynamodb.acts import Part, act
from tidewire.engines.dynamodb.entries import entry_of
from tidewire.engines.dynamodb.known import Known
from tidewire.engines.dynamodb.pages import (
    Piece,
    chained_after,
    chained_before,
    cut,
    is_enough,
    merged,
)

Chain = Callable[[Sequence[Message]], list[Message]]


class Reading(Part):
    _known: Known

    async def _chat(self, chat_id: ChatId) -> Chat | None:
        chat = values.chat_of(await self._database.get(schema.CHATS, {"chat_id": chat_id}))
        if chat is not None:
            self._known.saw_head(chat_id, chat.head)
        return chat

    async def _head(self, chat_id: ChatId) -> int:
        chat = await self._chat(chat_id)
        if chat is None:
            raise NotAMember
        return chat.head

    async def _member(self, chat_id: ChatId, user_id: UserId) -> Member | None:
        key = {"chat_id": chat_id, "user_id": user_id}
        return values.member_of(await self._database.get(schema.MEMBERSHIPS, key))

    async def _check_member(self, chat_id: ChatId, reader: UserId) -> Member:
        """The one gate for readers; must be called after the data for the reader was read."""
        member = await self._member(chat_id, reader)
        if member is None:
            raise NotAMember
        return member

    @act
    async def access_chat(self, reader: UserId, chat_id: ChatId) -> ChatAccess:
        chat = await self._chat(chat_id)
        me = await self._check_member(chat_id, reader)
        if chat is None:
            raise NotAMember
        return ChatAccess(chat, me)

    @act
    async def messages_after(
        self, reader: UserId, chat_id: ChatId, after: int, *, count_max: int, bytes_max: int
    ) -> MessagePage:
        head = await self._head(chat_id)
        page: list[Message] = []
        if after < head:
            page = await self._whole_page(
                chat_id,
                (after + 1, head),
                lambda messages: chained_after(messages, after),
                count_max=count_max,
                bytes_max=bytes_max,
            )
        await self._check_member(chat_id, reader)
        if after > head:
            raise CursorAhead(cursor=after, head=head)
        through = page[-1].sequence if page else after
        return MessagePage(
            messages=page, synced_through=through, has_more=through < head, head=head
        )

    @act
    async def messages_before(
        self, reader: UserId, chat_id: ChatId, before: int | None, *, count_max: int, bytes_max: int
    ) -> MessagePage:
        head = await self._head(chat_id)
        top = await self._top(chat_id, before, head)
        page: list[Message] = []
        if top:
            page = await self._whole_page(
                chat_id,
                (1, top),
                lambda messages: chained_before(messages, top),
                ascending=False,
                count_max=count_max,
                bytes_max=bytes_max,
            )
        await self._check_member(chat_id, reader)
        return MessagePage(
            messages=page[::-1],
            synced_through=page[0].sequence if page else 0,
            has_more=bool(page) and page[-1].prev_sequence > 0,
            head=head,
        )

    async def _top(self, chat_id: ChatId, before: int | None, head: int) -> int:
        """The last entry below a sequence, as the entry after it says; 0: there is none."""
        if before is None or before > head:
            return head
        if before < 1:
            # Sequences begin at 1: nothing is below, and no entry would ever say so.
            return 0

        async def look() -> int | None:
            # There is an entry at or above `before`: the head. If the predecessor of the first one
            # found is not below `before`, it is in the other table, or not visible yet.
            for table in (schema.MESSAGES, schema.AMENDMENTS):
                found = await self._database.query(
                    table, chat_id, between=(before, head), limit=1, fields="#prev_sequence"
                )
                top: int | None = found[0]["prev_sequence"] if found else None
                if top is not None and top < before:
                    return top
            self._database.counts.pages_cut += 1
            return None

        return await self._database.until_shown(look)

    async def _whole_page(
        self,
        chat_id: ChatId,
        between: tuple[int, int],
        chain: Chain,
        *,
        ascending: bool = True,
        count_max: int,
        bytes_max: int,
    ) -> list[Message]:
        """Entries without a gap in their chain, from the first on, and no more than fit a page.

        Messages are read first. If their chain has no gap, there is nothing between them; otherwise
        there are amendments, or an entry is not visible yet.
        """

        async def read(table: str, between: tuple[int, int]) -> Piece:
            query = rows.query_request(table, chat_id, between=between, ascending=ascending)
            found: list[Message] = []
            async for page in self._database.pages(query, limit=count_max):
                found += [entry_of(row) for row in page]
                if is_enough(found, count_max, bytes_max):
                    return Piece(found, between, ascending=ascending, is_cut=True)
            return Piece(found, between, ascending=ascending, is_cut=False)

        async def look() -> list[Message] | None:
            messages = await read(schema.MESSAGES, between)
            entries = messages.entries
            chained = chain(entries)
            if len(chained) < len(entries) or not messages.is_closed:
                amendments = await read(schema.AMENDMENTS, messages.covered)
                entries = merged(messages, amendments)
                chained = chain(entries)
            if len(chained) < len(entries):
                self._database.counts.pages_cut += 1
            return cut(chained, count_max, bytes_max) or None

        return await self._database.until_shown(look)

    async def _entry_at(self, chat_id: ChatId, sequence: int) -> Message | None:
        """An entry, whatever its kind."""
        for table in (schema.MESSAGES, schema.AMENDMENTS):
            key: dict[str, rows.Value] = {"chat_id": chat_id, "sequence": sequence}
            row = await self._database.get(table, key)
            if row is not None:
                return entry_of(row)
        return None

    @act
    async def message(self, reader: UserId, chat_id: ChatId, message_id: MessageId) -> Message:
        message = await self._found(chat_id, message_id)
        access = await self.access_chat(reader, chat_id)
        if message is None or message.sequence > access.chat.head:
            raise MessageNotFound
        return message

    async def _found(self, chat_id: ChatId, message_id: MessageId) -> Message | None:
        """The entry at the place in its id, or where the index says: older ids have no place."""
        message = await self._entry_at(chat_id, place_in(message_id))
        if message is not None and message.message_id == message_id:
            return message
        for table in (schema.MESSAGES, schema.AMENDMENTS):
            message = await self._indexed(table, chat_id, message_id)
            if message is not None:
                return message
        return None

    async def _indexed(self, table: str, chat_id: ChatId, message_id: MessageId) -> Message | None:
        entries = await self._database.query(table, message_id, index=schema.MESSAGE_ID_INDEX)
        for entry in entries:
            if entry["chat_id"] == chat_id:
                key = {"chat_id": chat_id, "sequence": entry["sequence"]}
                row = await self._database.get(table, key)
                return None if row is None else entry_of(row)
        return None
