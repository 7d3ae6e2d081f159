"""Delivered and read positions: moved forward by conditional writes, read with their chats."""

import asyncio
from collections.abc import Sequence
from typing import Final

import msgspec

from tidewire.domain.chats import Chat
from tidewire.domain.delivery import (
    NOWHERE,
    Advance,
    Advanced,
    AdvanceOutcome,
    DeliveryStatus,
    DigestEntry,
    DigestPage,
    Floors,
    Positions,
    effective,
    summarise,
)
from tidewire.domain.errors import NotAMember, SequenceAboveHead
from tidewire.domain.events import PositionsAdvanced
from tidewire.domain.ids import ChatId, UserId
from tidewire.domain.limits import UNREAD_MAX, UNREAD_SCAN_MAX
from tidewire.engines.dynamodb import rows, schema, values
from tidewire.engines.dynamodb.backoff import CONDITION_FAILED, Hindrance
from tidewire.engines.dynamodb.database import Database
from tidewire.engines.dynamodb.errors import Cancelled
from tidewire.engines.dynamodb.position_rows import position_write
from tidewire.engines.dynamodb.reading import check_member, read_chat
from tidewire.engines.dynamodb.rosters import FullChat, read_full

AT_ONCE_MAX: Final = 16
"""Rows of one call that are worked on side by side."""
UNREAD_PAGE: Final = 250


class Progress(msgspec.Struct, frozen=True):
    """What the advances of one user in one chat came to."""

    outcomes: Sequence[AdvanceOutcome]
    after: Positions
    events: Sequence[PositionsAdvanced] = ()


def progress(
    advances: Sequence[Advance], *, is_member: bool, head: int, before: Positions
) -> Progress:
    """Judge and apply, one after the other: membership first, then the bound."""
    if not is_member:
        return Progress([NotAMember() for _ in advances], before)
    outcomes: list[AdvanceOutcome] = []
    events = []
    for advance in advances:
        wanted = Positions(max(advance.delivered, advance.read), advance.read)
        if wanted.delivered > head:
            outcomes.append(SequenceAboveHead(sequence=wanted.delivered, head=head))
            continue
        after = before.merged(wanted)
        outcomes.append(Advanced(after, moved=after != before))
        if after != before:
            events.append(PositionsAdvanced(advance.chat_id, advance.user_id, after))
        before = after
    return Progress(outcomes, before, events)


async def advance_one(
    database: Database, chat_id: ChatId, user_id: UserId, advances: Sequence[Advance], now_ms: int
) -> Progress:
    """Move one row, while its owner is a member: checked again by the transaction that moves it."""
    membership: dict[str, rows.Value] = {"chat_id": chat_id, "user_id": user_id}
    position: dict[str, rows.Value] = {"user_id": user_id, "chat_id": chat_id}
    chat_row, member_row, row = await database.get_many(
        [
            (schema.CHATS, {"chat_id": chat_id}),
            (schema.MEMBERSHIPS, membership),
            (schema.POSITIONS, position),
        ]
    )
    chat = values.chat_of(chat_row)
    is_member = chat is not None and member_row is not None
    before = None if row is None else values.positions_of(row)
    tried = 0
    while True:
        start = NOWHERE if before is None else before
        head = 0 if chat is None else chat.head
        result = progress(advances, is_member=is_member, head=head, before=start)
        if result.after == start:
            return result
        try:
            await database.transact(
                [
                    rows.check(schema.MEMBERSHIPS, membership, "attribute_exists(#user_id)"),
                    position_write(user_id, chat_id, before, result.after, now_ms=now_ms),
                ]
            )
        except Cancelled as cancelled:
            if cancelled.codes[0] == CONDITION_FAILED:
                is_member = False
            if cancelled.codes[1] == CONDITION_FAILED:
                found = cancelled.rows[1]
                before = None if found is None else values.positions_of(found)
            await database.pause(Hindrance.CONFLICT, min(tried, 2))
            tried += 1
        else:
            return result


class Advances:
    """A batch of advances: each user and chat by itself, many at once."""

    def __init__(self, database: Database, advances: Sequence[Advance], now_ms: int) -> None:
        self._database = database
        self._now_ms = now_ms
        self._gate = asyncio.Semaphore(AT_ONCE_MAX)
        self._advances = advances
        self.events: list[PositionsAdvanced] = []
        """What has moved, also if the batch as a whole failed."""

    async def carry_out(self) -> list[AdvanceOutcome]:
        groups: dict[tuple[ChatId, UserId], list[int]] = {}
        for index, advance in enumerate(self._advances):
            groups.setdefault((advance.chat_id, advance.user_id), []).append(index)
        results = await asyncio.gather(
            *(self._group(key, indexes) for key, indexes in groups.items()), return_exceptions=True
        )
        outcomes: dict[int, AdvanceOutcome] = {}
        failed: BaseException | None = None
        for indexes, result in zip(groups.values(), results, strict=True):
            if isinstance(result, BaseException):
                failed = result
                continue
            self.events += result.events
            outcomes |= zip(indexes, result.outcomes, strict=True)
        if failed is not None:
            raise failed
        return [outcomes[index] for index in range(len(self._advances))]

    async def _group(self, key: tuple[ChatId, UserId], indexes: Sequence[int]) -> Progress:
        advances = [self._advances[index] for index in indexes]
        async with self._gate:
            with self._database.within_budget():
                return await advance_one(self._database, *key, advances, self._now_ms)


# Reading.


async def read_floors(database: Database, chat_id: ChatId) -> Floors | None:
    chat = await read_chat(database, chat_id)
    return None if chat is None else (await read_full(database, chat)).floors()


async def read_status(
    database: Database, reader: UserId, chat_id: ChatId, sequence: int | None
) -> DeliveryStatus:
    chat = await read_chat(database, chat_id)
    if chat is None:
        raise NotAMember
    wanted = chat.head if sequence is None else sequence
    row = await database.get(schema.MESSAGES, {"chat_id": chat_id, "sequence": wanted})
    full = await read_full(database, chat)
    await check_member(database, chat_id, reader)
    if wanted > chat.head:
        raise SequenceAboveHead(sequence=wanted, head=chat.head)
    return DeliveryStatus(
        chat_id=chat_id,
        chat_type=chat.chat_type,
        member_count=len(full.deliveries),
        summary=summarise(
            wanted,
            author_id=None if row is None else UserId(row["sender_id"]),
            members=full.deliveries,
        ),
        members=full.deliveries,
    )


async def count_others(database: Database, chat: Chat, user_id: UserId, above: int) -> int:
    """Messages of others above a position, as far as it is worth counting."""
    count = scanned = 0
    while above < chat.head and count < UNREAD_MAX and scanned < UNREAD_SCAN_MAX:
        found = await database.query(
            schema.MESSAGES,
            chat.chat_id,
            between=(above + 1, chat.head),
            limit=min(UNREAD_PAGE, UNREAD_SCAN_MAX - scanned),
            fields="#sequence, #sender_id",
        )
        if not found:
            break
        count += sum(row["sender_id"] != user_id for row in found)
        scanned += len(found)
        above = found[-1]["sequence"]
    return min(UNREAD_MAX, count)


async def _entry(database: Database, full: FullChat, user_id: UserId) -> DigestEntry | None:
    state = full.members.get(user_id)
    if state is None:
        return None
    chat, floors, own = full.chat, full.floors(), full.positions(user_id)
    joined = state.member.joined_sequence
    return DigestEntry(
        chat_id=chat.chat_id,
        chat_type=chat.chat_type,
        head=chat.head,
        membership_version=chat.membership_version,
        joined_sequence=joined,
        delivered=own.delivered,
        read=own.read,
        others_delivered=floors.delivered.boundary(user_id, chat.head),
        others_read=floors.read.boundary(user_id, chat.head),
        unread=await count_others(database, chat, user_id, effective(own.read, joined)),
    )


async def read_standing(database: Database, user_id: UserId, chat_id: ChatId) -> DigestEntry | None:
    chat = await read_chat(database, chat_id)
    if chat is None:
        return None
    return await _entry(database, await read_full(database, chat), user_id)


async def read_digest(
    database: Database, user_id: UserId, *, after: ChatId | None, count_max: int
) -> DigestPage:
    own = await database.query(schema.USER_CHATS, user_id, above=after, limit=count_max + 1)
    chat_ids = [ChatId(row["chat_id"]) for row in own[:count_max]]
    gate = asyncio.Semaphore(AT_ONCE_MAX)

    async def entry(chat_id: ChatId) -> DigestEntry | None:
        async with gate:
            with database.within_budget():
                return await read_standing(database, user_id, chat_id)

    entries = await asyncio.gather(*(entry(chat_id) for chat_id in chat_ids))
    return DigestPage(
        [one for one in entries if one is not None],
        chat_ids[-1] if len(own) > count_max else None,
    )


async def read_moved_at(
    database: Database, user_id: UserId, chat_ids: Sequence[ChatId]
) -> dict[ChatId, int]:
    """When the rows were last written; where there is none yet, when the user joined."""
    keys = [{"user_id": user_id, "chat_id": chat_id} for chat_id in chat_ids]
    found = await database.get_many(
        [(table, key) for table in (schema.POSITIONS, schema.USER_CHATS) for key in keys]
    )
    moved: dict[ChatId, int] = {}
    for index, chat_id in enumerate(chat_ids):
        position, joined = found[index], found[len(keys) + index]
        if position is not None:
            moved[chat_id] = position["updated_at"]
        elif joined is not None:
            moved[chat_id] = joined["joined_at"]
    return moved
