"""Ticks in a cluster: each gateway tells its own connections the numbers that it knows, and tells
the other gateways which moves it has committed.

The shell around the PURE standings and ticks. Own moves and news of others are gathered for a
while, the longer the more members a chat has. Then the own moves go out as news to the gateways at
which members are connected, and the members who are connected here are told. The store is read at
the beginning, after a loss, after a change of members, and seldom while nothing changes.
"""

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from tidewire.domain.chats import Roster
from tidewire.domain.delivery import Floors, Positions, effective
from tidewire.domain.errors import is_away
from tidewire.domain.events import (
    LoggedEvent,
    MembershipChanged,
    MessageAppended,
    PositionsAdvanced,
    StatusMissed,
)
from tidewire.domain.ids import ChatId, UserId
from tidewire.domain.news import ChatNews, ChatStanding, Move
from tidewire.fanout.options import ALONE_MAX, FanoutOptions
from tidewire.fanout.plan import own_numbers_push, status_pushes
from tidewire.fanout.standings import Standing, Standings
from tidewire.fanout.ticks import DueChat, Ticks
from tidewire.ports.router import Push
from tidewire.ports.runtime import EarliestTimer, RequestKind, Service

GATHER_MEMBER_MS: Final = 10
GATHER_MS_MAX: Final = 1_000
"""The shortest time between two updates of one chat: so long per member, up to the maximum. A move
is gathered where it was committed and where it is told: both take two seconds at most."""


class StandingStore(Protocol):
    """The store of a cluster."""

    async def standings(self, chat_ids: Sequence[ChatId]) -> list[ChatStanding | None]: ...
    async def roster(self, chat_id: ChatId) -> Roster | None: ...
    async def unread(
        self, user_id: UserId, chat_id: ChatId, *, above: int
    ) -> tuple[int, int] | None: ...
    def heard_head(self, chat_id: ChatId, head: int, membership_version: int) -> None: ...


class Connections(Protocol):
    """The connections of this process (`gateway.hub.Hub`)."""

    def counts(self, user_ids: Iterable[UserId]) -> Mapping[UserId, int]: ...
    def push(self, push: Push) -> None: ...


class Spread(Protocol):
    """The part of a cluster's router that sends news."""

    def spread(self, news: ChatNews, user_ids: Sequence[UserId]) -> None: ...


class TickCounters:
    """Plain numbers for the metrics. `reads` are chats that were read."""

    reads = status_updates = news_heard = news_told = 0


@dataclass(kw_only=True, eq=False, repr=False)
class LocalTicks(Service):
    """Tells ticks for the connections of one gateway. `heard` takes the news of other processes."""

    store: StandingStore
    local: Connections
    """The connections of this process."""
    others: Spread
    routed_at_ms: Callable[[UserId], int | None]
    """Since when the news of a user's chats are sure to reach this process; None: they are not."""
    options: FanoutOptions

    def __post_init__(self) -> None:
        super().__post_init__()
        self.counters = TickCounters()
        self._standings = Standings(
            chats_max=self.options.rosters_max, members_max=self.options.roster_users_max
        )
        self._ticks = Ticks(
            interval_ms=self.options.status_interval_ms, chats_max=self.options.status_chats_max
        )
        # Moves that were committed here and that the other processes have not been told.
        self._untold: dict[ChatId, dict[UserId, Positions]] = {}
        self._alone = asyncio.Semaphore(ALONE_MAX)
        self._timer = EarliestTimer(self._on_timer)
        self._is_closed = False

    @property
    def surprises(self) -> int:
        return self._standings.surprises

    # What happens here.

    def positions_advanced(self, events: Sequence[PositionsAdvanced]) -> None:
        for event in events:
            chat_id, user_id = event.chat_id, event.user_id
            move = Move(user_id, event.positions.delivered, event.positions.read)
            self._standings.heard(ChatNews(chat_id, moves=(move,)), self._now_ms())
            untold = self._untold.setdefault(chat_id, {})
            before = untold.get(user_id)
            untold[user_id] = event.positions if before is None else event.positions.merged(before)
            if not self._ticks.moved(chat_id, user_id):
                del self._untold[chat_id]
        self._set_timer()

    def status_missed(self, events: Sequence[StatusMissed]) -> None:
        for event in events:
            self._ticks.missed(event.chat_id, event.user_id)
        self._set_timer()

    def committed(self, events: Sequence[LoggedEvent]) -> None:
        """Note the messages and changes of this process; others learn of them from the log."""
        for event in events:
            self._heard(news_of(event))
        self._set_timer()

    # What happens elsewhere.

    def heard(self, news: ChatNews) -> None:
        self.counters.news_heard += 1
        self._heard(news)
        for move in news.moves:
            self._ticks.moved_elsewhere(news.chat_id, move.user_id)
        self._set_timer()

    def _heard(self, news: ChatNews) -> None:
        if news.head:
            self.store.heard_head(news.chat_id, news.head, news.membership_version)
        if self._standings.heard(news, self._now_ms()):
            self._ticks.touched(news.chat_id)

    def roster_changed(self, chat_id: ChatId) -> None:
        """Have a chat read again: its members changed in a way that has no version."""
        if self._standings.outdated(chat_id):
            self._ticks.touched(chat_id)
            self._set_timer()

    def rosters_changed(self) -> None:
        """Forget all chats, because news may have been lost."""
        self._standings.forget_all()

    def unrouted(self, user_ids: Collection[UserId]) -> None:
        """Forget chats of these users of which this process may have missed news."""
        self._standings.unrouted(user_ids, lambda one: self.routed_at_ms(one) is not None)

    def close(self) -> None:
        """Tell the other processes the last moves of this one, and start nothing more. Call this
        when no client is connected any more, before the router and the tasks stop."""
        for chat_id in list(self._untold):
            self._spread(chat_id, list(self._standings.members_of(chat_id)))
        self._is_closed = True
        self._timer.cancel()

    # When.

    def _now_ms(self) -> int:
        return self.clock.monotonic_ms()

    def _set_timer(self) -> None:
        """One timer serves all chats; it is set again only for an earlier time."""
        due = [
            at_ms
            for at_ms in (self._ticks.next_at_ms(), self._standings.next_look_at_ms())
            if at_ms is not None
        ]
        if not due or self._is_closed:
            return
        now_ms = self._now_ms()
        self._timer.set(max(min(due), now_ms), now_ms)

    def _on_timer(self) -> None:
        try:
            now_ms = self._now_ms()
            for chat_id in self._standings.looks_due(now_ms):
                self._ticks.touched(chat_id)
            due = self._ticks.take(now_ms, self.options.status_batch_max)
            unknown = []
            for one in due:
                standing = self._standings.find(one.chat_id)
                if standing is None:
                    unknown.append(one)
                else:
                    self._tell(one, standing)
            if unknown:
                self.tasks.start_service("fanout-status", self._read_and_tell(unknown))
            self._set_timer()
        except Exception as error:  # noqa: BLE001 - without the timer no tick is told any more
            self.tasks.service_failed("fanout-status", error)

    # Reading.

    async def _read_and_tell(self, due: Sequence[DueChat]) -> None:
        """Read and tell these chats together, or one by one if that fails unexpectedly."""
        try:
            await self._read_all(due)
        except Exception as error:  # noqa: BLE001 - it concerns one of these chats alone
            if not is_away(error) and len(due) > 1:
                for one in due:
                    await self._read_and_tell([one])
                return
            for one in due:
                self._standings.failed(one.chat_id)
                if is_away(error):
                    self._ticks.failed(one, self._now_ms())
                else:
                    self._failed(one, error)
                    self._told(one, None, 0)
            self._set_timer()

    async def _read_all(self, due: Sequence[DueChat]) -> None:
        wanted = []
        for one in due:
            if one.elsewhere or self.local.counts(self._members_of(one)):
                wanted.append(one)
                continue
            # No known member is connected here: maybe only other gateways must be told.
            roster = await self.store.roster(one.chat_id)
            user_ids = () if roster is None else roster.user_ids
            if self.local.counts(user_ids):
                wanted.append(one)
                continue
            self._spread(one.chat_id, user_ids)
            self._standings.forget(one.chat_id)
            self._told(one, None, 0)
        if not wanted:
            return
        self.counters.reads += len(wanted)
        for one in wanted:
            self._standings.begin(one.chat_id)
        began_at_ms = self._now_ms()
        found = await self.store.standings([one.chat_id for one in wanted])
        for one, read in zip(wanted, found, strict=True):
            is_kept = read is not None and self._is_told_of(read.members, began_at_ms)
            now_ms = self._now_ms()
            standing = self._standings.learn(one.chat_id, read, now_ms, is_kept=is_kept)
            if standing is None:
                self._untold.pop(one.chat_id, None)
                self._told(one, None, 0)
            else:
                self._tell(one, standing)
                if standing.is_stale:
                    # It changed while it was being read.
                    self._ticks.touched(one.chat_id)
        self._set_timer()

    def _members_of(self, due: DueChat) -> Iterable[UserId]:
        """The users who are known, without a read, to be in the chat."""
        return {*due.moved, *self._standings.members_of(due.chat_id)}

    def _is_told_of(self, members: Iterable[UserId], since_ms: int) -> bool:
        """True if the news of all commits in their chat since then have come or will come here."""
        routed_at_ms = (self.routed_at_ms(one) for one in self.local.counts(members))
        return any(at_ms is not None and at_ms <= since_ms for at_ms in routed_at_ms)

    # Telling.

    def _tell(self, due: DueChat, standing: Standing) -> None:
        try:
            floors: Floors | None = None
            self._spread(due.chat_id, standing.user_ids, standing)
            if not standing.has_block:
                self._tell_local(due, standing)
            floors = standing.floors()
        except Exception as error:  # noqa: BLE001 - it concerns this chat alone
            self._failed(due, error)
            floors = None
        self._told(due, floors, len(standing.joined))

    def _spread(
        self, chat_id: ChatId, user_ids: Sequence[UserId], standing: Standing | None = None
    ) -> None:
        """Send the moves that were committed here to the other gateways of these members."""
        moves = self._untold.pop(chat_id, None)
        others = [user_id for user_id in user_ids if user_id not in (moves or ())]
        if not moves or not (others or len(user_ids) > 1):
            return
        self.counters.news_told += 1
        told = tuple(Move(user, one.delivered, one.read) for user, one in moves.items())
        version, head = 0, 0
        if standing is not None and not standing.is_stale:
            version, head = standing.membership_version, standing.head
        self.others.spread(ChatNews(chat_id, version, head, told), user_ids)

    def _tell_local(self, due: DueChat, standing: Standing) -> None:
        """Tell the members who are connected here and do not know the numbers yet."""
        counts = self.local.counts(standing.user_ids)
        # A device that acknowledged knows the user's numbers; the other devices must be told.
        movers = [user_id for user_id in due.moved if counts.get(user_id, 0) > 1]
        movers += [one for one in due.elsewhere if one in counts and one not in due.moved]
        floors, now_ms = standing.floors(), self.clock.wall_ms()
        for push in status_pushes(
            floors, list(counts), told=due.told, except_users=movers, now_ms=now_ms
        ):
            self._push(push)
        for user_id in movers:
            own, joined = standing.position(user_id), standing.joined.get(user_id)
            if joined is not None:
                self.tasks.start_service(
                    "fanout-status", self._tell_own(due, user_id, own, joined, floors)
                )

    async def _tell_own(
        self, due: DueChat, user_id: UserId, own: Positions, joined: int, floors: Floors
    ) -> None:
        """Push a user's own numbers, for the devices that have not acknowledged them."""
        async with self._alone:
            try:
                above = effective(own.read, joined)
                unread = await self.store.unread(user_id, due.chat_id, above=above)
                if unread is not None:
                    now_ms = self.clock.wall_ms()
                    self._push(own_numbers_push(user_id, floors, own, unread, now_ms=now_ms))
            except Exception as error:  # noqa: BLE001 - it concerns this chat alone
                if is_away(error):
                    self._ticks.moved_elsewhere(due.chat_id, user_id)
                    self._set_timer()
                else:
                    self._failed(due, error)

    def _push(self, push: Push) -> None:
        self.counters.status_updates += len(push.user_ids)
        self.local.push(push)

    def _told(self, due: DueChat, floors: Floors | None, members_count: int) -> None:
        interval_ms = max(
            self.options.status_interval_ms, min(GATHER_MS_MAX, GATHER_MEMBER_MS * members_count)
        )
        self._ticks.told(due, floors, self._now_ms(), interval_ms=interval_ms)

    def _failed(self, due: DueChat, error: Exception) -> None:
        self.tasks.request_failed(RequestKind.STATUS, error, {"chat_id": due.chat_id})


def news_of(event: LoggedEvent) -> ChatNews:
    """The news of a commit: the head of its chat, under its membership version."""
    if isinstance(event, MessageAppended):
        message = event.message
        return ChatNews(message.chat_id, event.membership_version, message.sequence)
    chat = event.chat
    is_change = isinstance(event, MembershipChanged)
    return ChatNews(chat.chat_id, chat.membership_version, chat.head, is_change=is_change)
