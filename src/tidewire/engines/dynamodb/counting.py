"""Counting unread messages, and those of them that mention the reader."""

from typing import Final, NamedTuple

from tidewire.domain.chats import Chat
from tidewire.domain.ids import UserId
from tidewire.domain.limits import UNREAD_MAX, UNREAD_SCAN_MAX
from tidewire.domain.messages import MENTION_ALL
from tidewire.engines.dynamodb import schema
from tidewire.engines.dynamodb.acts import Part

UNREAD_PAGE: Final = 250


class Unread(NamedTuple):
    messages: int
    mentions: int


class Counting(Part):
    async def _unread(
        self, chat: Chat, user_id: UserId, above: int, *, last_mention: int = 0
    ) -> Unread:
        """Count messages of others above a position, from the last one down, up to a limit.
        Amendments are in another table. After UNREAD_MAX messages only mentions are counted, from
        the last one down."""
        meant = {user_id, MENTION_ALL}
        messages = mentions = scanned = 0
        through = chat.head
        while above < through and scanned < UNREAD_SCAN_MAX:
            limit = min(UNREAD_PAGE, UNREAD_SCAN_MAX - scanned)
            found = await self._database.query(
                schema.MESSAGES,
                chat.chat_id,
                between=(above + 1, through),
                ascending=False,
                limit=limit,
                fields="#sequence, #sender_id, #deleted_by, #mentions",
            )
            others = [
                row for row in found if row["sender_id"] != user_id and "deleted_by" not in row
            ]
            messages += len(others)
            mentions += sum(not meant.isdisjoint(row.get("mentions", ())) for row in others)
            if len(found) < limit or mentions >= UNREAD_MAX:
                break
            scanned += limit
            through = found[-1]["sequence"] - 1
            if messages >= UNREAD_MAX:
                through = min(through, last_mention)
        return Unread(min(UNREAD_MAX, messages), min(UNREAD_MAX, mentions))
