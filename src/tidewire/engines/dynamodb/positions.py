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
    is_hidden,
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
from tidewire.engines.dynamodb.reading import check_member
from tidewire.engines.dynamodb.roster_cache import RosterCache
from tidewire.engines.dynamodb.rosters import FullChat, read_full
from tidewire.engines.dynamodb.rows import Write

AT_ONCE_MAX: Final = 16
"""Requests of one call that are under way side by side."""
TOGETHER_MAX: Final = 12
"""Rows that one transaction moves: few enough that it is rarely one of them that is in the way."""
UNREAD_PAGE: Final = 250

Place = tuple[ChatId, UserId]


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


class Standing(msgspec.Struct, frozen=True):
    """What is known of a user in a chat before he moves."""

    is_member: bool
    head: int
    before: Positions | None
    """None: he has no row yet."""

    def progress(self, advances: Sequence[Advance]) -> Progress:
        start = NOWHERE if self.before is None else self.before
        return progress(advances, is_member=self.is_member, head=self.head, before=start)


async def _look(database: Database, places: Sequence[Place]) -> list[Standing]:
    found = await database.get_many(
        [
            key
            for chat_id, user_id in places
            for key in (
                (schema.CHATS, {"chat_id": chat_id}),
                (schema.MEMBERSHIPS, {"chat_id": chat_id, "user_id": user_id}),
                (schema.POSITIONS, {"user_id": user_id, "chat_id": chat_id}),
            )
        ]
    )
    standings = []
    for at in range(0, len(found), 3):
        chat_row, member_row, row = found[at : at + 3]
        chat = values.chat_of(chat_row)
        standings.append(
            Standing(
                is_member=chat is not None and member_row is not None,
                head=0 if chat is None else chat.head,
                before=None if row is None else values.positions_of(row),
            )
        )
    return standings


def _writes(place: Place, before: Positions | None, after: Positions, now_ms: int) -> list[Write]:
    """The move, while its owner is a member: checked again by the transaction that moves it."""
    chat_id, user_id = place
    membership: dict[str, rows.Value] = {"chat_id": chat_id, "user_id": user_id}
    return [
        rows.check(schema.MEMBERSHIPS, membership, "attribute_exists(#user_id)"),
        position_write(user_id, chat_id, before, after, now_ms=now_ms),
    ]


async def advance_together(
    database: Database, groups: Sequence[tuple[Place, Sequence[Advance]]], now_ms: int
) -> list[Progress] | None:
    """Move several rows, all or none. None: one of them was not as it had been seen."""
    standings = await _look(database, [place for place, _ in groups])
    results = [
        standing.progress(advances)
        for standing, (_, advances) in zip(standings, groups, strict=True)
    ]
    writes = [
        write
        for (place, _), standing, result in zip(groups, standings, results, strict=True)
        if result.events
        for write in _writes(place, standing.before, result.after, now_ms)
    ]
    if writes:
        try:
            await database.transact(writes)
        except Cancelled:
            return None
    return results


async def advance_one(
    database: Database, chat_id: ChatId, user_id: UserId, advances: Sequence[Advance], now_ms: int
) -> Progress:
    """Move one row, however often somebody else moves it meanwhile."""
    [standing] = await _look(database, [(chat_id, user_id)])
    tried = 0
    while True:
        result = standing.progress(advances)
        if not result.events:
            return result
        writes = _writes((chat_id, user_id), standing.before, result.after, now_ms)
        try:
            await database.transact(writes)
        except Cancelled as cancelled:
            if cancelled.codes[0] == CONDITION_FAILED:
                standing = msgspec.structs.replace(standing, is_member=False)
            if cancelled.codes[1] == CONDITION_FAILED:
                found = cancelled.rows[1]
                before = None if found is None else values.positions_of(found)
                standing = msgspec.structs.replace(standing, before=before)
            await database.pause(Hindrance.CONFLICT, min(tried, 2))
            tried += 1
        else:
            return result


class Advances:
    """A batch of advances: several users and chats in a request, many requests at once."""

    def __init__(self, database: Database, advances: Sequence[Advance], now_ms: int) -> None:
        self._database = database
        self._now_ms = now_ms
        self._gate = asyncio.Semaphore(AT_ONCE_MAX)
        self._advances = advances
        self._outcomes: dict[int, AdvanceOutcome] = {}
        self.events: list[PositionsAdvanced] = []
        """What has moved, also if the batch as a whole failed."""

    async def carry_out(self) -> list[AdvanceOutcome]:
        groups: dict[Place, list[int]] = {}
        for index, advance in enumerate(self._advances):
            groups.setdefault((advance.chat_id, advance.user_id), []).append(index)
        items = list(groups.items())
        results = await asyncio.gather(
            *(
                self._together(items[at : at + TOGETHER_MAX])
                for at in range(0, len(items), TOGETHER_MAX)
            ),
            return_exceptions=True,
        )
        for failed in results:
            if isinstance(failed, BaseException):
                raise failed
        return [self._outcomes[index] for index in range(len(self._advances))]

    async def _together(self, groups: Sequence[tuple[Place, Sequence[int]]]) -> None:
        """Move some rows in one transaction; each by itself if one of them stands in the way."""
        async with self._gate:
            if len(groups) > 1:
                with self._database.within_budget():
                    results = await advance_together(
                        self._database,
                        [(place, self._wishes(indexes)) for place, indexes in groups],
                        self._now_ms,
                    )
                if results is not None:
                    for (_, indexes), result in zip(groups, results, strict=True):
                        self._note(indexes, result)
                    return
            for place, indexes in groups:
                with self._database.within_budget():
                    wishes = self._wishes(indexes)
                    result = await advance_one(self._database, *place, wishes, self._now_ms)
                self._note(indexes, result)

    def _wishes(self, indexes: Sequence[int]) -> list[Advance]:
        return [self._advances[index] for index in indexes]

    def _note(self, indexes: Sequence[int], result: Progress) -> None:
        self.events += result.events
        self._outcomes |= zip(indexes, result.outcomes, strict=True)


# Reading.


async def read_floors(
    database: Database, cache: RosterCache, chat_ids: Sequence[ChatId]
) -> list[Floors | None]:
    chats = await read_full(database, cache, chat_ids)
    return [None if chat is None else chat.floors() for chat in chats]


async def read_status(
    database: Database, cache: RosterCache, reader: UserId, chat_id: ChatId, sequence: int | None
) -> DeliveryStatus:
    [full] = await read_full(database, cache, [chat_id])
    if full is None:
        raise NotAMember
    chat = full.chat
    wanted = chat.head if sequence is None else sequence
    row = await database.get(schema.MESSAGES, {"chat_id": chat_id, "sequence": wanted})
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
        membership_version=chat.shown_version,
        joined_sequence=joined,
        delivered=own.delivered,
        read=own.read,
        others_delivered=floors.delivered.boundary(user_id, chat.head),
        others_read=floors.read.boundary(user_id, chat.head),
        unread=await count_others(database, chat, user_id, effective(own.read, joined)),
        is_hidden=is_hidden(full.hidden_through.get(user_id), chat.head),
    )


async def read_standing(
    database: Database, cache: RosterCache, user_id: UserId, chat_id: ChatId
) -> DigestEntry | None:
    [full] = await read_full(database, cache, [chat_id])
    return None if full is None else await _entry(database, full, user_id)


async def read_digest(
    database: Database,
    cache: RosterCache,
    user_id: UserId,
    *,
    after: ChatId | None,
    count_max: int,
) -> DigestPage:
    own = await database.query(schema.USER_CHATS, user_id, above=after, limit=count_max + 1)
    chat_ids = [ChatId(row["chat_id"]) for row in own[:count_max]]
    gate = asyncio.Semaphore(AT_ONCE_MAX)

    async def entry(full: FullChat) -> DigestEntry | None:
        async with gate:
            with database.within_budget():
                return await _entry(database, full, user_id)

    chats = await read_full(database, cache, chat_ids)
    entries = await asyncio.gather(*(entry(full) for full in chats if full is not None))
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
