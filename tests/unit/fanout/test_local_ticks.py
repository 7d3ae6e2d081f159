"""Ticks of a cluster: two gateways on one store, and news between them that a test holds back."""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import msgspec
import pytest

from tests.support.engines import MemoryHarness
from tests.support.memory import MemoryStorage
from tests.support.world import World
from tidewire.domain.chats import Roster
from tidewire.domain.delivery import NOWHERE, Positions
from tidewire.domain.errors import StoreUnavailable
from tidewire.domain.events import LoggedEvent, PositionsAdvanced, StatusMissed
from tidewire.domain.ids import ChatId, UserId
from tidewire.domain.news import ChatNews, ChatStanding, Move
from tidewire.fanout import local_ticks, standings
from tidewire.fanout.local_ticks import LocalTicks
from tidewire.fanout.options import FanoutOptions
from tidewire.ports.event_log import LOGGED, CommitBus
from tidewire.ports.router import Push
from tidewire.ports.runtime import pause
from tidewire.runtime.clock import SystemClock
from tidewire.runtime.supervise import TaskSupervisor


class Store:
    """What a cluster's store offers beside, on one in memory."""

    def __init__(self, storage: MemoryStorage) -> None:
        self._storage = storage
        self.reads: list[ChatId] = []
        self.heads: dict[ChatId, int] = {}
        self.failures: list[Exception] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.read = asyncio.Event()

    async def standings(self, chat_ids: Sequence[ChatId]) -> list[ChatStanding | None]:
        self.reads += chat_ids
        found = [self._standing(chat_id) for chat_id in chat_ids]
        self.read.set()
        await self.gate.wait()
        if self.failures:
            raise self.failures.pop(0)
        return found

    def _standing(self, chat_id: ChatId) -> ChatStanding | None:
        chat = self._storage._tables.chats.get(chat_id)
        if chat is None or not chat.members:
            return None
        joined = {user_id: member.joined_sequence for user_id, member in chat.members.items()}
        positions = {
            user_id: chat.positions[user_id].positions if user_id in chat.positions else NOWHERE
            for user_id in joined
        }
        return ChatStanding(
            chat_id, chat.chat.membership_version, chat.chat.head, joined, positions
        )

    async def roster(self, chat_id: ChatId) -> Roster | None:
        return await self._storage.roster(chat_id)

    async def unread(
        self, user_id: UserId, chat_id: ChatId, *, above: int
    ) -> tuple[int, int] | None:
        if self.failures:
            raise self.failures.pop(0)
        return self._storage._tables.chats[chat_id].chat.head - above, 0

    def heard_head(self, chat_id: ChatId, head: int, membership_version: int) -> None:
        self.heads[chat_id] = head


class Gateway:
    """One process: its connections, and what it tells the others."""

    def __init__(self, storage: MemoryStorage, tasks: TaskSupervisor) -> None:
        self.store = Store(storage)
        self.connected: dict[UserId, int] = {}
        self.got: dict[UserId, list[dict[str, Any]]] = {}
        self.told: list[tuple[ChatNews, list[UserId]]] = []
        self.others: list[Gateway] = []
        self.is_holding = False
        self.routed_at_ms: dict[UserId, int] = {}
        self.ticks = LocalTicks(
            store=self.store,
            local=self,
            others=self,
            routed_at_ms=self.routed_at_ms.get,
            clock=SystemClock(),
            tasks=tasks,
            options=FanoutOptions(status_interval_ms=1),
        )

    def connect(self, *user_ids: UserId) -> None:
        for user_id in user_ids:
            self.connected[user_id] = self.connected.get(user_id, 0) + 1
            self.got[user_id] = []
            self.routed_at_ms[user_id] = 0

    def counts(self, user_ids: Iterable[UserId]) -> dict[UserId, int]:
        return {one: self.connected[one] for one in user_ids if one in self.connected}

    def push(self, push: Push) -> None:
        frame = msgspec.json.decode(push.framed[push.framed.index(b"{") :])
        for user_id in push.user_ids:
            if user_id in self.connected:
                self.got[user_id].append(frame["payload"])

    def spread(self, news: ChatNews, user_ids: Sequence[UserId]) -> None:
        self.told.append((news, list(user_ids)))
        for other in () if self.is_holding else self.others:
            if other.counts(user_ids):
                other.ticks.heard(news)

    async def until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(20):
            while not holds():
                await pause(2)

    async def until_told(self, user_id: UserId, sequence: int) -> None:
        await self.until(lambda: self.last(user_id) == (sequence, sequence))

    def last(self, user_id: UserId) -> tuple[int, int]:
        """The others' boundaries as this user was told last."""
        if not self.got[user_id]:
            return (0, 0)
        frame = self.got[user_id][-1]
        return frame["others_delivered"], frame["others_read"]


class Two:
    """Ann at one gateway, Ben at the other, in one group; what one commits the other may hear."""

    def __init__(self, engine: MemoryHarness) -> None:
        self.tasks = TaskSupervisor()
        assert isinstance(engine.storage, MemoryStorage)
        self.world = World(engine)
        self.one = Gateway(engine.storage, self.tasks)
        self.other = Gateway(engine.storage, self.tasks)
        self.one.others, self.other.others = [self.other], [self.one]

    async def begin(self, *, more: int = 0) -> None:
        self.ann, self.ben, *self.rest = await self.world.people(2 + more)
        self.chat = await self.world.group(self.ann, self.ben, *self.rest)
        self.one.connect(self.ann)
        self.other.connect(self.ben)
        self.commit(self.one)

    def commit(self, gateway: Gateway) -> None:
        """What was committed since last time was committed by this gateway; the log tells the
        other of messages and changes."""
        bus = CommitBus()
        bus.subscribe(LOGGED, gateway.ticks.committed)

        def tell_others(events: Sequence[LoggedEvent]) -> None:
            for event in events:
                for other in gateway.others:
                    other.ticks.heard(local_ticks.news_of(event))

        bus.subscribe(LOGGED, tell_others)
        bus.subscribe((PositionsAdvanced,), gateway.ticks.positions_advanced)
        bus.subscribe((StatusMissed,), gateway.ticks.status_missed)
        for events in self.world.new_commits():
            bus(events)

    async def send(self, count: int = 1) -> int:
        head = await self.world.send_many(self.chat, self.ann, count)
        self.commit(self.one)
        return head

    async def read(self, user_id: UserId, sequence: int, gateway: Gateway) -> None:
        await self.world.read(user_id, self.chat, sequence)
        self.commit(gateway)


@pytest.fixture
async def two(tmp_path: Any) -> Any:
    engine = MemoryHarness(tmp_path)
    await engine.open()
    stage = Two(engine)
    yield stage
    await stage.tasks.close()
    await engine.close()


async def test_moves_at_one_gateway_are_told_at_the_other_without_reading_again(two: Two) -> None:
    await two.begin()
    for sequence in range(1, 6):
        await two.send()
        await two.read(two.ben, sequence, two.other)
        await two.one.until_told(two.ann, sequence)
    # Each has read the chat once, to begin.
    assert two.one.store.reads == [two.chat]
    assert two.other.store.reads == [two.chat]
    assert two.one.store.heads == {two.chat: 5}
    assert two.one.ticks.surprises == 0


async def test_boundary_waits_for_the_roster_of_another_version(two: Two) -> None:
    """A joiner whom the gateway does not know yet must not be passed over."""
    await two.begin(more=1)
    [cleo] = two.rest
    await two.send()
    for user in (two.ben, cleo):
        await two.read(user, 1, two.other)
    await two.one.until_told(two.ann, 1)
    dora = (await two.world.people(1))[0]
    await two.world.add(two.ann, two.chat, dora)
    await two.world.send(two.chat, two.ann)
    two.world.new_commits()
    # Nothing of both was heard but that Ben and Cleo have read the message after it.
    for user in (two.ben, cleo):
        await two.world.read(user, two.chat, 2)
    two.world.new_commits()
    moves = tuple(Move(user, 2, 2) for user in (two.ben, cleo))
    two.one.ticks.heard(ChatNews(two.chat, moves=moves))
    await pause(50)
    assert two.one.last(two.ann) == (1, 1)
    reads = len(two.one.store.reads)
    two.one.ticks.heard(ChatNews(two.chat, 2, 2))
    await two.one.until(lambda: len(two.one.store.reads) == reads + 1)
    await pause(50)
    assert two.one.last(two.ann) == (1, 1)
    await two.read(dora, 2, two.other)
    await two.one.until_told(two.ann, 2)


async def test_news_during_a_reading_are_in_what_is_told(two: Two) -> None:
    await two.begin()
    await two.send()
    two.one.store.gate.clear()
    two.one.ticks.status_missed([StatusMissed(two.chat, two.ann)])
    await two.one.store.read.wait()
    await two.read(two.ben, 1, two.other)
    two.one.store.gate.set()
    await two.one.until_told(two.ann, 1)


async def test_gateway_that_heard_nothing_for_a_while_reads_again(two: Two) -> None:
    await two.begin()
    await two.send(3)
    await two.read(two.ben, 1, two.other)
    await two.one.until_told(two.ann, 1)
    two.other.is_holding = True
    await two.read(two.ben, 2, two.other)
    two.one.ticks.unrouted([two.ann])
    two.one.ticks.status_missed([StatusMissed(two.chat, two.ann)])
    await two.one.until_told(two.ann, 2)
    await two.read(two.ben, 3, two.other)
    two.one.ticks.rosters_changed()
    two.one.ticks.status_missed([StatusMissed(two.chat, two.ann)])
    await two.one.until_told(two.ann, 3)


async def test_chat_is_not_remembered_while_no_route_is_sure(two: Two) -> None:
    await two.begin()
    two.one.routed_at_ms.clear()
    await two.send(2)
    for sequence in (1, 2):
        await two.read(two.ben, sequence, two.other)
        await two.one.until_told(two.ann, sequence)
    assert len(two.one.store.reads) == 2


@pytest.mark.parametrize("is_remembered", [True, False])
async def test_member_who_leaves_is_waited_for_no_longer(two: Two, *, is_remembered: bool) -> None:
    await two.begin(more=1)
    if not is_remembered:
        two.one.routed_at_ms.clear()
    await two.send()
    await two.read(two.ben, 1, two.other)
    await two.one.until(lambda: bool(two.one.store.reads))
    await two.world.remove(two.ann, two.chat, two.rest[0])
    two.commit(two.other)
    await two.one.until_told(two.ann, 1)


async def test_member_who_leaves_while_the_chat_is_read_is_waited_for_no_longer(two: Two) -> None:
    """A reading that began before was remembered, and nothing had it read again."""
    await two.begin(more=1)
    await two.send()
    two.one.store.gate.clear()
    await two.read(two.ben, 1, two.other)
    await two.one.store.read.wait()
    await two.world.remove(two.ann, two.chat, two.rest[0])
    two.commit(two.other)
    two.one.store.gate.set()
    await two.one.until_told(two.ann, 1)


async def test_news_that_got_lost_are_found_by_looking_again(
    two: Two, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(standings, "LOOK_MS", 50)
    monkeypatch.setattr(standings, "LOOK_MEMBER_MS", 1)
    await two.begin()
    await two.send(2)
    await two.read(two.ben, 1, two.other)
    await two.one.until_told(two.ann, 1)
    two.other.is_holding = True
    await two.read(two.ben, 2, two.other)
    await two.one.until_told(two.ann, 2)
    assert two.one.ticks.surprises == 1


async def test_chat_of_nobody_here_is_told_to_others_and_not_read(two: Two) -> None:
    """A position moved over REST."""
    await two.begin()
    await two.send()
    two.other.connected.clear()
    reads = len(two.other.store.reads)
    await two.read(two.ben, 1, two.other)
    await two.one.until_told(two.ann, 1)
    assert len(two.other.store.reads) == reads
    [(news, users)] = two.other.told
    assert (news.moves, set(users)) == ((Move(two.ben, 1, 1),), {two.ann, two.ben})


async def test_other_devices_get_their_own_numbers_wherever_they_are(two: Two) -> None:
    await two.begin()
    await two.send(3)
    two.one.connect(two.ben)
    two.other.connect(two.ben)
    await two.read(two.ben, 2, two.other)
    for gateway in (two.one, two.other):
        await gateway.until(partial(bool, gateway.got[two.ben]))
        [frame] = gateway.got[two.ben]
        assert (frame["own_delivered"], frame["own_read"], frame["unread"]) == (2, 2, 1)


async def test_block_between_two_keeps_ticks_back(two: Two) -> None:
    await two.begin()
    await two.send()
    blocked = two.one.store._standing(two.chat)
    assert blocked is not None

    async def standings_of(chat_ids: Sequence[ChatId]) -> list[ChatStanding | None]:
        return [msgspec.structs.replace(blocked, has_block=True) for _ in chat_ids]

    two.one.store.standings = standings_of  # type: ignore[method-assign]
    two.one.ticks.roster_changed(two.chat)
    await two.read(two.ben, 1, two.other)
    await pause(50)
    assert two.one.got[two.ann] == []


async def test_store_that_is_away_delays_ticks_and_loses_none(two: Two) -> None:
    await two.begin()
    await two.send()
    two.one.store.failures = [StoreUnavailable("away"), StoreUnavailable("away")]
    await two.read(two.ben, 1, two.other)
    await two.one.until_told(two.ann, 1)
    two.other.connect(two.ben)
    await two.send()
    two.other.store.failures = [StoreUnavailable("away")]
    await two.read(two.ben, 2, two.other)
    await two.other.until(lambda: any("own_read" in one for one in two.other.got[two.ben]))
    assert two.other.store.failures == []


async def test_chat_that_fails_keeps_no_other_back(two: Two) -> None:
    await two.begin()
    await two.send()
    two.one.store.failures = [RuntimeError("odd"), RuntimeError("odd")]
    other_chat = await two.world.group(two.ann, two.ben)
    await two.world.send(other_chat, two.ann)
    two.world.new_commits()
    moved = Positions(1, 1)
    await two.world.read(two.ben, two.chat, 1)
    await two.world.read(two.ben, other_chat, 1)
    two.world.new_commits()
    two.one.connect(two.ben)
    two.one.ticks.positions_advanced(
        [PositionsAdvanced(two.chat, two.ben, moved), PositionsAdvanced(other_chat, two.ben, moved)]
    )
    await two.one.until(lambda: bool(two.one.got[two.ann]))
    assert two.one.got[two.ann][0]["chat_id"] == other_chat
    assert two.tasks.failures_by_kind == {"status": 1}


async def test_closed_group_is_forgotten(two: Two) -> None:
    await two.begin()
    await two.send()
    await two.read(two.ben, 1, two.other)
    await two.one.until_told(two.ann, 1)
    await two.world.close_group(two.ann, two.chat)
    two.commit(two.one)
    await two.one.until(lambda: True)
    two.one.ticks.positions_advanced([PositionsAdvanced(two.chat, two.ann, Positions(1, 1))])
    await pause(50)
    assert len(two.one.ticks._standings) == 0
    assert two.one.ticks._untold == {}


async def test_interval_grows_with_the_members_and_both_ways_take_two_seconds_at_most() -> None:
    assert 2 * local_ticks.GATHER_MS_MAX <= 2_000


async def test_gateway_that_ends_tells_the_others_and_begins_nothing(
    two: Two, caplog: pytest.LogCaptureFixture
) -> None:
    """A timer that fired between the end of the tasks and the end of the loop ended the process
    with an error."""
    await two.begin()
    await two.send(2)
    await two.read(two.ben, 1, two.other)
    await two.one.until_told(two.ann, 1)
    await two.read(two.ben, 2, two.other)
    two.other.ticks.close()
    assert [news.moves for news, _ in two.other.told][-1] == (Move(two.ben, 2, 2),)
    await two.one.until_told(two.ann, 2)
    two.one.ticks.close()
    await two.tasks.close()
    for gateway in (two.one, two.other):
        gateway.ticks.rosters_changed()
        gateway.ticks.status_missed([StatusMissed(two.chat, two.ann)])
    await pause(50)
    assert not [one for one in caplog.records if one.levelname in ("ERROR", "CRITICAL")]
