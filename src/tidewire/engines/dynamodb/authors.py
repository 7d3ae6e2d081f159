"""Moves the author's own positions when a message is stored.

A move that others are told of (a reply implies that its author has read) is written before the
author is answered. A move that covers only the author's own messages waits (`own_moves`).
"""

import asyncio
import time
from collections.abc import Mapping, Sequence

import msgspec

from tidewire.domain.advance import author_move
from tidewire.domain.append import Author
from tidewire.domain.delivery import NOWHERE, Positions
from tidewire.domain.errors import StoreUnavailable
from tidewire.domain.events import Event, MessageAppended
from tidewire.domain.ids import ChatId
from tidewire.engines.dynamodb import marks, schema
from tidewire.engines.dynamodb.errors import ConditionFailed
from tidewire.engines.dynamodb.known import Place
from tidewire.engines.dynamodb.own_moves import WAIT_S
from tidewire.engines.dynamodb.positions import PositionsPart, move_own, seen_positions
from tidewire.engines.dynamodb.schema_version import MARKS


class Stored(msgspec.Struct, frozen=True):
    """A message of this batch that is committed, with what its author's positions depend on."""

    index: int
    """Which of the sends it was."""
    event: MessageAppended
    seen_sequence: int | None
    author: Author | None
    """None: no longer a member, so the positions stay where they are."""
    before: Positions | None
    """As the row was read; None: there was none."""
    is_before_known: bool
    """False: it was not read."""


class Authors(PositionsPart):
    _own_moves_timer: asyncio.TimerHandle | None

    async def _move_authors(
        self, chat_id: ChatId, stored: Sequence[Stored], now_ms: int
    ) -> list[Event]:
        """Move the positions of the authors; return the events that others need.

        The messages are stored whatever happens here: if a move is lost, the next acknowledgement
        of the author's own device makes up for it.
        """
        events: list[Event] = []
        for user_id in dict.fromkeys(one.event.message.sender_id for one in stored):
            own = [one for one in stored if one.event.message.sender_id == user_id]
            if own[0].author is None:
                continue
            place = (chat_id, user_id)
            try:
                events += await self._move_author(place, own, own[0].author, now_ms)
            except StoreUnavailable:
                self._database.counts.author_moves_lost += 1
        return events

    async def _move_author(
        self, place: Place, own: Sequence[Stored], author: Author, now_ms: int
    ) -> list[Event]:
        known = self._known.positions(place) or NOWHERE
        first = own[0].event.message
        if known == Positions(first.prev_sequence, first.prev_sequence):
            # No position is above the head, so one that is known to be at the head is exact.
            after, events = _after(own, author.joined_sequence, known)
            if not events and self._wait_with(place, after):
                return []

        after = known

        def move(positions: Positions) -> tuple[Positions, list[Event]]:
            nonlocal after
            after, events = _after(own, author.joined_sequence, positions.merged(known))
            return after, events

        before = own[0].before
        if not own[0].is_before_known:
            [row] = await self._database.get_many([(schema.POSITIONS, marks.position_key(*place))])
            before = seen_positions(row)
        events = await move_own(self._database, place, before, move, now_ms=now_ms)
        self._own_moves.written(place, after)
        self._known.saw_positions(place, after)
        return events

    # Moves that wait.

    def _wait_with(self, place: Place, to: Positions) -> bool:
        """Let a move wait; False: it has to be written at once."""
        if not self._version.has(MARKS) or not self._own_moves.note(place, to, time.monotonic()):
            return False
        self._known.saw_positions(place, to)
        if self._own_moves_timer is None:
            self._set_own_moves_timer(WAIT_S)
        return True

    def _set_own_moves_timer(self, after_s: float) -> None:
        loop = asyncio.get_running_loop()
        self._own_moves_timer = loop.call_later(max(0.0, after_s), self._write_due_own_moves)

    def _write_due_own_moves(self) -> None:
        self._own_moves_timer = None
        if self._is_closed:
            return
        now_s = time.monotonic()
        due = self._own_moves.due(now_s)
        if due:
            _ = self._begin(self._write_own_moves(due))
        next_due_s = self._own_moves.next_due_s()
        if next_due_s is not None:
            self._set_own_moves_timer(next_due_s - now_s)

    async def _write_waiting(self, places: Sequence[Place]) -> None:
        found = ((place, self._own_moves.find(place)) for place in places)
        waiting = {place: to for place, to in found if to is not None}
        if waiting:
            await self._write_own_moves(waiting)

    async def _write_own_moves(self, moves: Mapping[Place, Positions]) -> None:
        now_ms = time.time_ns() // 1_000_000
        await self._side_by_side(
            [self._write_own_move(place, to, now_ms) for place, to in moves.items()]
        )

    async def _write_own_move(self, place: Place, to: Positions, now_ms: int) -> None:
        try:
            try:
                await self._database.write(marks.forward(place, to, now_ms=now_ms))
            except ConditionFailed as failed:
                # The positions of a former member stay where they are.
                if marks.is_marked(failed.row):
                    before = seen_positions(failed.row)
                    await move_own(
                        self._database,
                        place,
                        before,
                        lambda one: (one.merged(to), []),
                        now_ms=now_ms,
                    )
        except StoreUnavailable:
            self._database.counts.author_moves_lost += 1
        # Written; or lost, and then the author's next acknowledgement makes up for it.
        self._own_moves.written(place, to)

    async def _before_close(self) -> None:
        if self._own_moves_timer is not None:
            self._own_moves_timer.cancel()
        await self._write_own_moves(self._own_moves.all())
        await super()._before_close()


def _after(
    own: Sequence[Stored], joined_sequence: int, positions: Positions
) -> tuple[Positions, list[Event]]:
    """An author's positions after the author's own messages, and what others are told of it."""
    events: list[Event] = []
    for one in own:
        positions, told = author_move(
            positions, joined_sequence, one.event.message, one.seen_sequence
        )
        events += [] if told is None else [told]
    return positions, events
