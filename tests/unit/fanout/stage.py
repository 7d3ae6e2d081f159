"""The fan-out worker on a store whose rosters come when a test says so, and who hears of it."""

import asyncio
from collections.abc import Callable, Sequence

import msgspec

from tests.support.engines import MemoryHarness
from tests.support.memory import MemoryStorage
from tests.support.world import World
from tidewire.domain.chats import Roster
from tidewire.domain.errors import StoreUnavailable
from tidewire.domain.events import PositionsAdvanced, StatusMissed
from tidewire.domain.ids import ChatId, ConnectionId, UserId
from tidewire.domain.resync import ResyncReason
from tidewire.fanout.options import FanoutOptions
from tidewire.fanout.worker import FanoutWorker
from tidewire.ports.event_log import LOGGED, CommitBus
from tidewire.ports.router import Push
from tidewire.ports.runtime import pause
from tidewire.runtime.clock import SystemClock
from tidewire.runtime.supervise import TaskSupervisor

CONNECTION = ConnectionId("conn_1")


class RecordingRouter:
    """Everybody it is told of is connected once; keeps what they get."""

    def __init__(self) -> None:
        self.connected: dict[UserId, list[dict[str, object]]] = {}
        self.resyncs: list[tuple[list[UserId] | None, str]] = []
        self.changed = asyncio.Event()
        self.devices = 2

    def push(self, push: Push) -> None:
        frame = msgspec.json.decode(push.framed[push.framed.index(b"{") :])
        assert frame["type"] == push.frame_type
        for user_id in push.user_ids:
            if user_id in self.connected:
                self.connected[user_id].append(frame)
        self.changed.set()

    def resync(self, user_ids: Sequence[UserId] | None, reason: ResyncReason) -> None:
        self.resyncs.append((None if user_ids is None else list(user_ids), reason))
        self.changed.set()

    async def presence(self, user_ids: Sequence[UserId]) -> dict[UserId, int]:
        return {user_id: self.devices for user_id in user_ids if user_id in self.connected}

    async def settled(self) -> None:
        return

    async def until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(30):
            while not holds():
                self.changed.clear()
                await self.changed.wait()

    def got(self, user_id: UserId, kind: str) -> list[dict[str, object]]:
        """The payloads of one kind that a user got, in order."""
        found = []
        for frame in self.connected[user_id]:
            payload = frame["payload"]
            assert isinstance(payload, dict)
            if frame["type"] == kind:
                found.append(payload)
        return found


class SlowRosters(MemoryStorage):
    """Holds or fails the reading of rosters when a test says so."""

    gate: asyncio.Event
    answered: asyncio.Event
    """Cleared: what was read is on its way still."""
    outdated: list[Roster]
    """What is answered first, whatever is true."""
    failures = 0
    reads = 0

    async def roster(self, chat_id: ChatId) -> Roster | None:
        await self.gate.wait()
        if self.failures:
            self.failures -= 1
            raise StoreUnavailable("the test says so")
        self.reads += 1
        if self.outdated:
            return self.outdated.pop()
        roster = await super().roster(chat_id)
        await self.answered.wait()
        return roster


class Harness(MemoryHarness):
    async def _open(self) -> SlowRosters:
        storage = SlowRosters(self._listen)
        storage.gate, storage.answered, storage.outdated = asyncio.Event(), asyncio.Event(), []
        storage.gate.set()
        storage.answered.set()
        return storage


class Stage:
    def __init__(self, engine: Harness, *, can_wait: bool = False, **options: int) -> None:
        self.world = World(engine)
        self.router = RecordingRouter()
        self.tasks = TaskSupervisor()
        storage = engine.storage
        self.worker = FanoutWorker(
            chats=storage,
            positions=storage,
            router=self.router,
            clock=SystemClock(),
            tasks=self.tasks,
            options=FanoutOptions(status_interval_ms=5, retry_ms=1, **options),
            can_wait=can_wait,
        )
        self.bus = CommitBus()
        self.bus.subscribe(LOGGED, self.worker.committed)
        self.bus.subscribe((PositionsAdvanced,), self.worker.positions_advanced)
        self.bus.subscribe((StatusMissed,), self.worker.status_missed)
        self._engine = engine

    @property
    def storage(self) -> SlowRosters:
        assert isinstance(self._engine.storage, SlowRosters)
        return self._engine.storage

    def fan_out(self) -> None:
        """Hand the worker what was committed since the last time."""
        for commit in self.world.new_commits():
            self.bus(commit)

    async def settled(self) -> None:
        """Wait until no event waits for the members of its chat."""
        async with asyncio.timeout(30):
            while self.worker.waiting_count:
                await pause(1)

    def miss_status(self, chat_id: ChatId, user_id: UserId) -> None:
        self.bus([StatusMissed(chat_id, user_id)])

    def connect(self, *user_ids: UserId) -> None:
        for user_id in user_ids:
            self.router.connected[user_id] = []

    def sequences(self, user_id: UserId) -> list[object]:
        return [payload["sequence"] for payload in self.router.got(user_id, "message")]
