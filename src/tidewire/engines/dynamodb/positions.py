"""Delivered and read positions: moved forward by conditional writes, read with their chats."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from tidewire.domain import delivery
from tidewire.domain.advance import AdvanceDecision, decide_advances
from tidewire.domain.errors import NotAMember, StoreUnavailable
from tidewire.domain.events import Event, PositionsAdvanced
from tidewire.domain.ids import ChatId, UserId
from tidewire.domain.news import ChatStanding
from tidewire.engines.dynamodb import marks, rows, schema, values
from tidewire.engines.dynamodb.acts import CONFLICT_STEPS_MAX, act
from tidewire.engines.dynamodb.backoff import Hindrance
from tidewire.engines.dynamodb.counting import Counting
from tidewire.engines.dynamodb.database import Database, Wanted
from tidewire.engines.dynamodb.errors import AnswerLost, Cancelled, ConditionFailed
from tidewire.engines.dynamodb.known import Known, Place
from tidewire.engines.dynamodb.own_moves import OwnMoves
from tidewire.engines.dynamodb.rosters import FullChat, Rosters
from tidewire.engines.dynamodb.rows import Value, Write
from tidewire.engines.dynamodb.schema_version import MARKS, SeenVersion
from tidewire.wire.forms import form_of

AT_ONCE_MAX: Final = 16
"""How many requests of one call are under way at once."""
TRIES_MAX: Final = 20
"""Each lost race means that the positions have grown; that cannot go on for long."""


# Moving.


def position_write(
    place: Place, before: delivery.Positions | None, after: delivery.Positions, *, now_ms: int
) -> Write:
    """Move positions, if the row still has the positions `before` (None: there was no row)."""
    new: dict[str, Value] = {"delivered": after.delivered, "read": after.read, "now": now_ms}
    condition = "attribute_not_exists(#user_id)"
    if before is not None:
        condition = "#last_acked_sequence = :old_delivered AND #last_read_sequence = :old_read"
        new |= {"old_delivered": before.delivered, "old_read": before.read}
    return rows.update(
        schema.POSITIONS,
        {"user_id": place[1], "chat_id": place[0]},
        "SET #last_acked_sequence = :delivered, #last_read_sequence = :read, #updated_at = :now",
        condition=condition,
        **new,
    )


def seen_positions(row: rows.Row | None) -> delivery.Positions | None:
    """None: there is no row yet."""
    return None if row is None else values.positions_of(row)


async def move_own(
    database: Database,
    place: Place,
    before: delivery.Positions | None,
    move: Callable[[delivery.Positions], tuple[delivery.Positions, list[Event]]],
    *,
    now_ms: int,
) -> list[Event]:
    """Move positions as `move` says, from what the row has at that instant; return the events."""
    for _ in range(TRIES_MAX):
        start = before or delivery.NOWHERE
        after, events = move(start)
        if after == start:
            return events
        try:
            await database.write_among(position_write(place, before, after, now_ms=now_ms))
        except ConditionFailed as failed:
            before = seen_positions(failed.row)
        except AnswerLost:
            key = {"user_id": place[1], "chat_id": place[0]}
            before = seen_positions(await database.get(schema.POSITIONS, key))
            if before == after:
                return events
        else:
            return events
    raise StoreUnavailable("a position could not be moved; the same request may be sent again")


@dataclass(slots=True, eq=False)
class Advances:
    """Carries out a batch of advances: each user and chat by itself, many at once.

    A move is one conditional update of a row of positions, which has the mark of its owner's
    membership. In a store whose rows may lack the mark, the membership row is checked as well.
    """

    database: Database
    known: Known
    own_moves: OwnMoves
    advances: Sequence[delivery.Advance]
    now_ms: int
    has_marks: bool
    events: list[PositionsAdvanced] = field(default_factory=list)
    """What has moved, also if the batch as a whole failed."""
    _outcomes: dict[int, delivery.AdvanceOutcome] = field(default_factory=dict)
    _gate: asyncio.Semaphore = field(default_factory=partial(asyncio.Semaphore, AT_ONCE_MAX))

    async def carry_out(self) -> list[delivery.AdvanceOutcome]:
        indexes: dict[Place, list[int]] = {}
        for index, advance in enumerate(self.advances):
            indexes.setdefault((advance.chat_id, advance.user_id), []).append(index)
        await self._know_heads()
        results = await asyncio.gather(
            *(self._move(place, own) for place, own in indexes.items()), return_exceptions=True
        )
        for failed in results:
            if isinstance(failed, BaseException):
                raise failed
        return [self._outcomes[index] for index in range(len(self.advances))]

    async def _know_heads(self) -> None:
        """Read the heads of chats with an advance above the known head: heads only grow."""
        unknown = {
            wish.chat_id
            for wish in self.advances
            if max(wish.delivered, wish.read) > (self.known.head(wish.chat_id) or 0)
        }
        if not unknown:
            return
        chat_ids = sorted(unknown)
        found = await self.database.get_each(schema.CHATS, chat_ids)
        for chat_id, row in zip(chat_ids, found, strict=True):
            chat = values.chat_of(row)
            if chat is None:
                self.known.forget_head(chat_id)
            else:
                self.known.saw_head(chat_id, chat.head)

    async def _move(self, place: Place, indexes: Sequence[int]) -> None:
        async with self._gate:
            with self.database.within_budget():
                head = self.known.head(place[0])
                wishes = [self.advances[index] for index in indexes]
                decision = AdvanceDecision([NotAMember() for _ in wishes], {})
                if head is not None:
                    known = self.known.positions(place) or delivery.NOWHERE
                    own = self.own_moves.find(place)
                    decision = await _Move(self, place, wishes, head, known, own).carry_out()
                    if own is not None:
                        self.own_moves.written(place, own)
        for after in decision.moved.values():
            self.known.saw_positions(place, after)
        self.events += decision.events
        self._outcomes |= zip(indexes, decision.outcomes, strict=True)


@dataclass(slots=True, eq=False)
class _Move:
    """The advances of one user in one chat."""

    batch: Advances
    place: Place
    wishes: Sequence[delivery.Advance]
    head: int
    known: delivery.Positions
    """The user's positions are at least these."""
    own: delivery.Positions | None
    """The user's move by own messages that is not in the row yet (`own_moves`)."""
    _is_in_doubt: bool = False
    """An answer was lost: what is found may be our own move."""

    async def carry_out(self) -> AdvanceDecision:
        """Write without a read first, if there is something to move: the write's answer has the
        positions before it."""
        tried = 0
        is_blind = self.batch.has_marks and (self.own is not None or self._wanted() is not None)
        step = self._blindly if is_blind else self._from_a_look
        while True:
            decision = await step()
            if decision is not None:
                return decision
            step = self._from_a_look
            await self.batch.database.pause(Hindrance.CONFLICT, min(tried, CONFLICT_STEPS_MAX))
            tried += 1

    def _wanted(self) -> delivery.Positions | None:
        """Where all advances together lead from the known positions; None: nowhere."""
        here = self._with_own(self.known)
        return decide_advances(self.wishes, {self.place: (here, self.head)}).moved.get(self.place)

    def _with_own(self, positions: delivery.Positions) -> delivery.Positions:
        return positions if self.own is None else positions.merged(self.own)

    async def _blindly(self) -> AdvanceDecision | None:
        """Move the row whatever its positions are; None: the row has to be read."""
        to = self._wanted() or self._with_own(self.known)
        if self.own is None and to.read == self.known.read:
            # `read` is not asked for: it may be higher than is known.
            to = delivery.Positions(to.delivered, 0)
        write = marks.forward(self.place, to, now_ms=self.batch.now_ms)
        try:
            row = await self.batch.database.write(write, returned="ALL_OLD")
        except ConditionFailed as failed:
            if not marks.is_marked(failed.row):
                return self._decided(None)
            # One of the positions is higher already.
            return None
        except AnswerLost:
            self._is_in_doubt = True
            return None
        return self._decided(self._with_own(values.positions_of(row)))

    async def _from_a_look(self) -> AdvanceDecision | None:
        before = await self._look()
        if before is None:
            return self._decided(None)
        here = self._with_own(before)
        decision = self._decided(here)
        to = decision.moved.get(self.place, here)
        if to == before:
            return decision
        try:
            await self._write(to)
        except (Cancelled, ConditionFailed, AnswerLost) as failed:
            self._is_in_doubt |= isinstance(failed, AnswerLost)
            return None
        return decision

    async def _look(self) -> delivery.Positions | None:
        """Read the user's positions; None: not a member."""
        chat_id, user_id = self.place
        wanted: list[Wanted] = [(schema.POSITIONS, marks.position_key(chat_id, user_id))]
        if not self.batch.has_marks:
            wanted.append((schema.MEMBERSHIPS, {"chat_id": chat_id, "user_id": user_id}))
        row, *membership = await self.batch.database.get_many(wanted)
        is_member = membership[0] is not None if membership else marks.is_marked(row)
        return values.positions_of(row) if is_member else None

    async def _write(self, to: delivery.Positions) -> None:
        write = marks.forward(
            self.place, to, now_ms=self.batch.now_ms, needs_mark=self.batch.has_marks
        )
        if self.batch.has_marks:
            await self.batch.database.write(write)
            return
        membership: dict[str, Value] = {"chat_id": self.place[0], "user_id": self.place[1]}
        check = rows.check(schema.MEMBERSHIPS, membership, "attribute_exists(#user_id)")
        await self.batch.database.transact([check, write])

    def _decided(self, before: delivery.Positions | None) -> AdvanceDecision:
        """The decision about the advances of a user with these positions; None: not a member."""
        members = {} if before is None else {self.place: (before, self.head)}
        decision = decide_advances(self.wishes, members)
        if self._is_in_doubt and before is not None and not decision.moved:
            # Perhaps our own move: the event is sent, which does no harm if it is sent twice.
            decision.moved[self.place] = before
        return decision


class PositionsPart(Rosters, Counting):
    _version: SeenVersion

    @act
    async def advance(
        self, advances: Sequence[delivery.Advance], *, now_ms: int
    ) -> list[delivery.AdvanceOutcome]:
        batch = Advances(
            self._database,
            self._known,
            self._own_moves,
            advances,
            now_ms,
            has_marks=await self._version.look_for(MARKS, self._database),
        )
        try:
            return await batch.carry_out()
        finally:
            self._committed(batch.events)

    # Reading.

    @act
    async def floors(self, chat_ids: Sequence[ChatId]) -> list[delivery.Floors | None]:
        chats = await self._full_chats(chat_ids)
        return [None if chat is None else chat.floors() for chat in chats]

    @act
    async def standings(self, chat_ids: Sequence[ChatId]) -> list[ChatStanding | None]:
        return [
            None
            if full is None
            else ChatStanding(
                full.chat.chat_id,
                full.chat.membership_version,
                full.chat.head,
                {one.user_id: one.joined_sequence for one in full.deliveries},
                {one.user_id: one.positions for one in full.deliveries},
                has_block=any(state.is_blocked for state in full.members.values()),
            )
            for full in await self._full_chats(chat_ids)
        ]

    @act
    async def unread(
        self, user_id: UserId, chat_id: ChatId, *, above: int
    ) -> tuple[int, int] | None:
        row = await self._database.get(schema.CHATS, {"chat_id": chat_id})
        chat = values.chat_of(row)
        if row is None or chat is None:
            return None
        last_mention = values.last_mention(row)
        return await self._unread(chat, user_id, above, last_mention=last_mention)

    def heard_head(self, chat_id: ChatId, head: int, membership_version: int) -> None:
        self._known.saw_head(chat_id, head)

    @act
    async def delivery_status(
        self, reader: UserId, chat_id: ChatId, sequence: int | None
    ) -> delivery.DeliveryStatus:
        [full] = await self._full_chats([chat_id])
        if full is None:
            raise NotAMember
        chat = full.chat
        wanted = chat.head if sequence is None else sequence
        entry = await self._entry_at(chat_id, wanted)
        await self._check_member(chat_id, reader)
        return delivery.status_of(
            chat_id,
            chat.chat_type,
            delivery.status_sequence(sequence, chat.head),
            author_id=None if entry is None else entry.sender_id,
            members=full.deliveries,
        )

    async def _entry(self, full: FullChat, user_id: UserId) -> delivery.DigestEntry | None:
        state = full.members.get(user_id)
        if state is None:
            return None
        chat, floors, own = full.chat, full.floors(), full.positions(user_id)
        joined = state.member.joined_sequence
        read = delivery.effective(own.read, joined)
        unread = await self._unread(chat, user_id, read, last_mention=full.last_mention)
        self._known.saw_positions((chat.chat_id, user_id), own)
        return form_of(
            delivery.DigestEntry,
            chat,
            own,
            membership_version=chat.shown_version,
            joined_sequence=joined,
            others_delivered=floors.delivered.boundary(user_id, chat.head),
            others_read=floors.read.boundary(user_id, chat.head),
            unread=unread.messages,
            mentions_unread=unread.mentions,
            is_hidden=delivery.is_hidden(full.hidden_through.get(user_id), chat.head),
        )

    @act
    async def standing(self, user_id: UserId, chat_id: ChatId) -> delivery.DigestEntry | None:
        [full] = await self._full_chats([chat_id])
        return None if full is None else await self._entry(full, user_id)

    @act
    async def digest(
        self, user_id: UserId, *, after: ChatId | None, count_max: int
    ) -> delivery.DigestPage:
        own = await self._database.query(
            schema.USER_CHATS, user_id, above=after, limit=count_max + 1
        )
        chat_ids = [ChatId(row["chat_id"]) for row in own[:count_max]]
        chats = [full for full in await self._full_chats(chat_ids) if full is not None]
        entries = await self._side_by_side([self._entry(full, user_id) for full in chats])
        return delivery.DigestPage(
            [one for one in entries if one is not None],
            chat_ids[-1] if len(own) > count_max else None,
        )

    @act
    async def moved_at(self, user_id: UserId, chat_ids: Sequence[ChatId]) -> dict[ChatId, int]:
        """When the rows were last written; where there is no row yet, when the user joined."""
        keys = [{"user_id": user_id, "chat_id": chat_id} for chat_id in chat_ids]
        found = await self._database.get_many(
            [(table, key) for table in (schema.POSITIONS, schema.USER_CHATS) for key in keys]
        )
        moved: dict[ChatId, int] = {}
        for chat_id, position, joined in zip(
            chat_ids, found[: len(keys)], found[len(keys) :], strict=True
        ):
            if position is not None:
                moved[chat_id] = position["updated_at"]
            elif joined is not None:
                moved[chat_id] = joined["joined_at"]
        return moved
