"""The fan-out: takes every commit, in commit order, and pushes it to the users whom it concerns.

The shell around the PURE plan, rosters and ticks. In one process the commit bus calls it, on the
event loop and before the senders are answered, so it must be quick: the members of a chat are
usually in memory. If they are not, the events of the chat wait, in order, until the members have
been read. An event that cannot be pushed is never dropped silently: the users concerned sync again.
The same holds for unexpected exceptions: they are logged and counted, and other chats go on.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, Protocol

from msgspec import structs

from tidewire.domain.chats import Roster
from tidewire.domain.delivery import Floors
from tidewire.domain.errors import StoreDamaged, Unavailable, is_away
from tidewire.domain.events import (
    ChangeEvent,
    ChatClosed,
    ChatCreated,
    ChatRenamed,
    LoggedEvent,
    MembershipChanged,
    MessageAppended,
    PositionsAdvanced,
    StatusMissed,
)
from tidewire.domain.ids import ChatId, ConnectionId, UserId
from tidewire.domain.resync import ResyncReason
from tidewire.fanout.local_ticks import news_of
from tidewire.fanout.options import ALONE_MAX, LARGE_MEMBERS, FanoutOptions
from tidewire.fanout.plan import closed_pushes, own_status_push, push_of, status_pushes, typing_push
from tidewire.fanout.rosters import Rosters
from tidewire.fanout.ticks import DueChat, Ticks
from tidewire.ports.router import Push, Router
from tidewire.ports.runtime import EarliestTimer, RequestKind, Service, pause
from tidewire.ports.storage import ChatStore, PositionStore

RESYNC_ALL_S: Final = 60.0
"""The shortest time between two resyncs of all connections because of one unreadable chat."""

Pushed = MessageAppended | ChatCreated | ChatRenamed | MembershipChanged
WithRoster = Callable[[Roster], None]


class TickTeller(Protocol):
    """Tells ticks (`fanout.local_ticks.LocalTicks`)."""

    def positions_advanced(self, events: Sequence[PositionsAdvanced]) -> None: ...
    def status_missed(self, events: Sequence[StatusMissed]) -> None: ...
    def roster_changed(self, chat_id: ChatId) -> None: ...
    def rosters_changed(self) -> None: ...


class NoTicks:
    """For a process without connections: the gateways tell ticks, by the news that pushes carry."""

    def positions_advanced(self, events: Sequence[PositionsAdvanced]) -> None:
        """No position moves here."""

    def status_missed(self, events: Sequence[StatusMissed]) -> None:
        """No device acknowledges here."""

    def roster_changed(self, chat_id: ChatId) -> None:
        """No numbers are kept here that could be outdated."""

    def rosters_changed(self) -> None:
        """As `roster_changed`."""


class FanoutCounters:
    """Plain numbers for the metrics."""

    events = pushes = resyncs = roster_hits = roster_reads = status_updates = 0


@dataclass(kw_only=True, eq=False, repr=False)
class FanoutWorker(Service):
    """Subscribes to the commit bus, or is fed from the log; `typing` is the gateway's relay."""

    chats: ChatStore
    positions: PositionStore
    router: Router
    options: FanoutOptions
    ticks: "TickTeller | None" = None
    """In a cluster: the part that tells ticks instead of this worker."""
    can_wait: bool = False
    """The caller bounds the events that wait here, and keeps them until they are pushed
    (`is_waiting`). Then events wait for as long as the members of their chat cannot be read, and
    no client has to sync because of that."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.counters = FanoutCounters()
        self._rosters = Rosters(
            rosters_max=self.options.rosters_max,
            users_max=self.options.roster_users_max,
            age_ms_max=self.options.roster_age_ms_max,
        )
        self._ticks = Ticks(
            interval_ms=self.options.status_interval_ms, chats_max=self.options.status_chats_max
        )
        # The pushes that wait for the members of a chat, in order. Here while they are read.
        self._waiting: dict[ChatId, deque[tuple[int, WithRoster]]] = {}
        self.waiting_count = 0
        """How many events wait for the members of their chats."""
        # Chats that made all clients sync within `RESYNC_ALL_S`; True: they sync again after it.
        self._unreadable: dict[ChatId, bool] = {}
        self._is_reading_floors = False
        self._alone = asyncio.Semaphore(ALONE_MAX)
        self._status_read_at_ms = 0
        self._status_timer = EarliestTimer(self._on_status_timer)

    # From the bus (`ports.event_log.CommitBus`), or from the log.

    def committed(self, events: Sequence[LoggedEvent]) -> None:
        """Push the events of one commit."""
        self.counters.events += len(events)
        # Read the clocks once: all events of a commit are of one instant.
        now_ms, monotonic_ms = self.clock.wall_ms(), self.clock.monotonic_ms()
        for event in events:
            try:
                if isinstance(event, MessageAppended):
                    self._with_roster(
                        event.message.chat_id,
                        event.membership_version,
                        event,
                        now_ms,
                        monotonic_ms,
                    )
                else:
                    self._take_change(event, now_ms, monotonic_ms)
            except Exception as error:  # noqa: BLE001 - it concerns this event alone
                self._event_failed(error)

    def positions_advanced(self, events: Sequence[PositionsAdvanced]) -> None:
        """Have the members of these chats told about ticks soon."""
        self.counters.events += len(events)
        if self.ticks is not None:
            self.ticks.positions_advanced(events)
            return
        self._note(events, self._ticks.moved)

    def status_missed(self, events: Sequence[StatusMissed]) -> None:
        """As `positions_advanced`, but the numbers are told even where nothing has changed."""
        if self.ticks is not None:
            self.ticks.status_missed(events)
            return
        self._note(events, self._ticks.missed)

    def _note(
        self,
        events: Sequence[PositionsAdvanced | StatusMissed],
        note: Callable[[ChatId, UserId], object],
    ) -> None:
        for event in events:
            try:
                note(event.chat_id, event.user_id)
            except Exception as error:  # noqa: BLE001 - it concerns this event alone
                self._event_failed(error)
        self._set_status_timer()

    def _take_change(self, event: ChangeEvent, now_ms: int, monotonic_ms: int) -> None:
        chat = event.chat
        if isinstance(event, ChatClosed):
            # Forget the roster: from here on late events of the chat concern no member.
            self._rosters.changed(chat.chat_id)
            for push in closed_pushes(event, now_ms=now_ms):
                self._push(self._with_news(push, event))
            return
        self._rosters.follow(event, monotonic_ms)
        self._with_roster(chat.chat_id, chat.membership_version, event, now_ms, monotonic_ms)
        if isinstance(event, MembershipChanged) and self.ticks is None:
            # The boundary no longer waits for a member who left, so it may rise.
            self._ticks.moved(chat.chat_id, event.user_id)
            self._set_status_timer()

    def _event_failed(self, error: Exception, user_ids: Sequence[UserId] | None = None) -> None:
        """An event could not be pushed to these users (None: it is unknown to whom). Replaying it
        would fail again, so they sync; with None all users do."""
        self.tasks.request_failed(RequestKind.PUSH, error)
        self.counters.resyncs += 1
        self.router.resync(user_ids, ResyncReason.PUSHES_LOST)

    def is_waiting(self, chat_id: ChatId) -> bool:
        """True while events of this chat wait until its members are read."""
        return chat_id in self._waiting

    def typing(
        self, user_id: UserId, chat_id: ChatId, *, is_typing: bool, origin: ConnectionId
    ) -> None:
        """Tell the other members that a user types or has stopped, if the user is a member."""
        now_ms = self.clock.wall_ms()

        def tell(roster: Roster) -> None:
            try:
                push = typing_push(chat_id, user_id, roster, is_typing=is_typing, now_ms=now_ms)
                if push is not None:
                    self._push(push)
            except Exception as error:  # noqa: BLE001 - typing may be lost; a log line is enough
                self.tasks.request_failed(RequestKind.PUSH, error)

        roster = self._rosters.find(chat_id, 0, self.clock.monotonic_ms())
        if roster is not None and chat_id not in self._waiting:
            tell(roster)
        else:
            self._wait_for_roster(chat_id, 0, tell)

    def roster_changed(self, chat_id: ChatId) -> None:
        """Have the members of a chat read again: they changed in a way that no event tells."""
        self._rosters.changed(chat_id)
        if self.ticks is not None:
            self.ticks.roster_changed(chat_id)

    def rosters_changed(self) -> None:
        """As `roster_changed` for every chat: this process may have missed changes."""
        self._rosters.forget_all()
        if self.ticks is not None:
            self.ticks.rosters_changed()

    def missed(self, chat_id: ChatId) -> None:
        """A chat has an event that this version cannot push: its members sync again."""

        def tell(roster: Roster) -> None:
            self.counters.resyncs += 1
            self.router.resync(roster.user_ids, ResyncReason.PUSHES_LOST)

        # The event may have changed the members.
        self._rosters.changed(chat_id)
        self._wait_for_roster(chat_id, 1, tell)

    def behind(self, chat_id: ChatId, former: Sequence[UserId]) -> None:
        """The log is behind with a chat: its members, and these former ones, sync meanwhile. If the
        members cannot be read they are not told now: the notice is repeated while the lag lasts."""
        if former:
            self.router.resync(former, ResyncReason.LOG_BEHIND)
        self.tasks.start_request(RequestKind.PUSH, self._tell_behind(chat_id), lambda _: None)

    async def _tell_behind(self, chat_id: ChatId) -> None:
        async with self._alone:
            try:
                roster = await self._roster(chat_id, 0)
            except Unavailable:
                return
        if roster is not None:
            self.router.resync(roster.user_ids, ResyncReason.LOG_BEHIND)

    def _with_roster(
        self, chat_id: ChatId, version: int, event: Pushed, now_ms: int, monotonic_ms: int
    ) -> None:
        """Push an event to the members of its chat, now or when they are known."""
        if chat_id not in self._waiting:
            roster = self._rosters.find(chat_id, version, monotonic_ms)
            if roster is not None:
                self.counters.roster_hits += 1
                self._push_event(event, roster, now_ms)
                return
        self._wait_for_roster(
            chat_id, version, lambda roster: self._push_event(event, roster, now_ms)
        )

    def _push_event(self, event: Pushed, roster: Roster, now_ms: int) -> None:
        try:
            push = push_of(event, roster, now_ms=now_ms)
            if push is not None:
                # `_push`, without the call: on the path of every message.
                self.counters.pushes += 1
                self.router.push(push if self.ticks is None else self._with_news(push, event))
        except Exception as error:  # noqa: BLE001 - it concerns this event alone
            # A message concerns members only; a change may concern a former one: then all sync.
            is_message = isinstance(event, MessageAppended)
            self._event_failed(error, roster.user_ids if is_message else None)

    def _with_news(self, push: Push, event: LoggedEvent) -> Push:
        """In a cluster, add the news of the chat for the gateways that the push goes to."""
        return push if self.ticks is None else structs.replace(push, news=news_of(event))

    def _push(self, push: Push) -> None:
        self.counters.pushes += 1
        self.router.push(push)

    def _wait_for_roster(self, chat_id: ChatId, version: int, act: WithRoster) -> None:
        if not self.can_wait and self.waiting_count >= self.options.waiting_events_max:
            self._give_up(ResyncReason.FANOUT_OVERLOADED)
            return
        self.waiting_count += 1
        queue = self._waiting.get(chat_id)
        if queue is not None:
            queue.append((version, act))
            return
        self._waiting[chat_id] = deque([(version, act)])
        self.tasks.start_request(
            RequestKind.PUSH, self._read_roster(chat_id), partial(self._roster_failed, chat_id)
        )

    async def _read_roster(self, chat_id: ChatId) -> None:
        """Read the members of a chat until none of its events waits."""
        attempts = 0
        while queue := self._waiting.get(chat_id):
            try:
                roster = await self._fetch(chat_id)
            except StoreDamaged:
                # Damage concerns this chat alone, and reading again does not help.
                raise
            except Unavailable:
                attempts += 1
                if attempts >= self.options.read_attempts_max and not self.can_wait:
                    self._give_up(ResyncReason.STORE_UNAVAILABLE)
                    return
                await pause(self.options.retry_ms)
                continue
            if self._waiting.get(chat_id) is not queue:
                return
            if roster is None:
                # The group was closed, and its members were told; or the chat of a typing frame
                # does not exist.
                self.waiting_count -= len(queue)
                break
            while queue and queue[0][0] <= roster.membership_version:
                _, act = queue.popleft()
                self.waiting_count -= 1
                act(roster)
        self._waiting.pop(chat_id, None)

    def _roster_failed(self, chat_id: ChatId, _: Exception) -> None:
        """The members of a chat cannot be read: they are damaged, or the error is unexpected."""
        queue = self._waiting.pop(chat_id, None)
        if queue is None:
            return
        self.waiting_count -= len(queue)
        version = max(version for version, _ in queue)
        if version == 0:
            # Only typing waited for the members.
            return
        known = self._rosters.find(chat_id, version, self.clock.monotonic_ms())
        if known is None:
            self._resync_all(chat_id)
        else:
            self.counters.resyncs += 1
            self.router.resync(known.user_ids, ResyncReason.STORE_UNAVAILABLE)

    def _resync_all(self, chat_id: ChatId) -> None:
        """Have all clients sync because of this chat: now, or when `RESYNC_ALL_S` has passed."""
        if chat_id in self._unreadable:
            self._unreadable[chat_id] = True
            return
        self._unreadable[chat_id] = False
        self._loop.call_later(RESYNC_ALL_S, self._resync_again, chat_id)
        self.counters.resyncs += 1
        self.router.resync(None, ResyncReason.STORE_UNAVAILABLE)

    def _resync_again(self, chat_id: ChatId) -> None:
        if self._unreadable.pop(chat_id):
            self._resync_all(chat_id)

    def _give_up(self, reason: ResyncReason) -> None:
        """Drop the waiting events. It is unknown whom they concern, so all clients sync again."""
        self._waiting.clear()
        self.waiting_count = 0
        self.counters.resyncs += 1
        self.router.resync(None, reason)

    # Ticks.

    def _set_status_timer(self) -> None:
        """One timer serves all chats; it is set again only for a chat that is due earlier."""
        due_at_ms = self._ticks.next_at_ms()
        if due_at_ms is None or self._is_reading_floors:
            return
        now_ms = self.clock.monotonic_ms()
        gathered_at_ms = self._status_read_at_ms + self.options.status_gather_ms
        self._status_timer.set(max(due_at_ms, now_ms, gathered_at_ms), now_ms)

    def _on_status_timer(self) -> None:
        try:
            now_ms = self.clock.monotonic_ms()
            due = self._ticks.take(now_ms, self.options.status_batch_max)
            if due:
                self._is_reading_floors = True
                self._status_read_at_ms = now_ms
                self.tasks.start_service("fanout-status", self._tell(due))
            else:
                self._set_status_timer()
        except Exception as error:  # noqa: BLE001 - without the timer no tick is told any more
            self.tasks.service_failed("fanout-status", error)

    async def _tell(self, due: list[DueChat]) -> None:
        """Read the latest numbers of these chats together and push them to members who are
        connected. A chat for which more must be read is told alone, so that it delays no other."""
        try:
            all_floors = await self._floors(due)
        except Unavailable:
            for one in due:
                self._ticks.failed(one, self.clock.monotonic_ms())
            return
        finally:
            self._is_reading_floors = False
            self._set_status_timer()
        now_ms = self.clock.monotonic_ms()
        known: list[tuple[DueChat, Floors, Roster]] = []
        for one, floors in zip(due, all_floors, strict=True):
            if floors is None:
                self._told(one, None, 0)
                continue
            # At least as new as the numbers: a member who has just joined gets ticks, too.
            roster = self._rosters.find(one.chat_id, floors.membership_version, now_ms)
            if roster is None:
                self.tasks.start_service("fanout-status", self._tell_alone(one, floors))
            else:
                known.append((one, floors, roster))
        try:
            presence = await self._presence([(one, roster) for one, _, roster in known])
        except Unavailable:
            for one, _, _ in known:
                self._ticks.failed(one, self.clock.monotonic_ms())
            self._set_status_timer()
            return
        for one, floors, roster in known:
            if presence is None:
                self._told(one, None, len(roster.user_ids))
                continue
            if any(presence.get(user_id, 0) > 1 for user_id in one.moved):
                self.tasks.start_service("fanout-status", self._tell_alone(one, floors))
                continue
            try:
                self._tell_online(one, floors, roster, presence, ())
            except Exception as error:  # noqa: BLE001 - it concerns this chat alone
                self._status_failed(one, error)
            self._told(one, floors, len(roster.user_ids))

    async def _tell_alone(self, due: DueChat, floors: Floors) -> None:
        """Tell one chat whose members are not known, or where a mover has other devices to tell."""
        async with self._alone:
            await self._read_and_tell(due, floors)

    async def _read_and_tell(self, due: DueChat, floors: Floors) -> None:
        members_count = 0
        try:
            roster = await self._roster(due.chat_id, floors.membership_version)
            if roster is not None:
                members_count = len(roster.user_ids)
                presence = await self._presence([(due, roster)])
                if presence is None:
                    self._told(due, None, members_count)
                    return
                # The device that acknowledged knows the user's numbers; only others must be told.
                movers = [user_id for user_id in due.moved if presence.get(user_id, 0) > 1]
                if not roster.has_block:
                    for user_id in movers:
                        await self._tell_own(user_id, due.chat_id)
                self._tell_online(due, floors, roster, presence, movers)
        except Exception as error:  # noqa: BLE001 - it concerns this chat alone
            if is_away(error):
                self._ticks.failed(due, self.clock.monotonic_ms())
                self._set_status_timer()
                return
            self._status_failed(due, error)
        self._told(due, floors, members_count)

    def _tell_online(
        self,
        due: DueChat,
        floors: Floors,
        roster: Roster,
        presence: Mapping[UserId, int],
        movers: Sequence[UserId],
    ) -> None:
        if roster.has_block:
            return
        online = [user_id for user_id in roster.user_ids if user_id in presence]
        now_ms = self.clock.wall_ms()
        for push in status_pushes(
            floors, online, told=due.told, except_users=movers, now_ms=now_ms
        ):
            self._push_status(push)

    def _told(self, due: DueChat, floors: Floors | None, members_count: int) -> None:
        is_large = members_count > LARGE_MEMBERS
        interval_ms = self.options.status_large_interval_ms if is_large else None
        self._ticks.told(due, floors, self.clock.monotonic_ms(), interval_ms=interval_ms)
        self._set_status_timer()

    async def _floors(self, due: list[DueChat]) -> list[Floors | None]:
        """The lowest positions of these chats; None where there are none, or where they cannot be
        read because of damage or an unexpected exception."""
        try:
            return list(await self.positions.floors([one.chat_id for one in due]))
        except Exception as error:
            if is_away(error):
                raise
            if len(due) == 1:
                self._status_failed(due[0], error)
                return [None]
        return [floors for [floors] in await asyncio.gather(*(self._floors([one]) for one in due))]

    async def _presence(self, chats: list[tuple[DueChat, Roster]]) -> Mapping[UserId, int] | None:
        """Which users of these chats are connected, asked for all chats at once. Raises Unavailable
        if that is not known now. None after an unexpected exception: then no member was told, and
        the next move of each chat is told to all."""
        users = {user_id for due, roster in chats for user_id in (*roster.user_ids, *due.moved)}
        try:
            return await self.router.presence(list(users)) if users else {}
        except Unavailable:
            raise
        except Exception as error:  # noqa: BLE001 - it concerns these chats alone
            self.tasks.request_failed(RequestKind.STATUS, error)
            return None

    async def _tell_own(self, user_id: UserId, chat_id: ChatId) -> None:
        entry = await self.positions.standing(user_id, chat_id)
        if entry is not None:
            self._push_status(own_status_push(user_id, entry, now_ms=self.clock.wall_ms()))

    async def _roster(self, chat_id: ChatId, version: int) -> Roster | None:
        now_ms = self.clock.monotonic_ms()
        return self._rosters.find(chat_id, version, now_ms) or await self._fetch(chat_id)

    async def _fetch(self, chat_id: ChatId) -> Roster | None:
        """Read the members and remember them. Raises Unavailable."""
        while True:
            reading = self._rosters.begin_reading(chat_id, self.clock.monotonic_ms())
            try:
                self.counters.roster_reads += 1
                roster = await self.chats.roster(chat_id)
            finally:
                self._rosters.end_reading(reading)
            if reading.is_outdated:
                continue
            if roster is not None:
                self._rosters.learn(roster, reading.began_at_ms)
            return roster

    def _push_status(self, push: Push) -> None:
        self.counters.status_updates += len(push.user_ids)
        self.router.push(push)

    def _status_failed(self, due: DueChat, error: Exception) -> None:
        self.tasks.request_failed(RequestKind.STATUS, error, {"chat_id": due.chat_id})
