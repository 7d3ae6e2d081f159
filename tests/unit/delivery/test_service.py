"""The delivery service: what is acknowledged is written, also when the store fails for a while."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from tests.support.engines import MemoryHarness
from tests.support.world import World
from tidewire.delivery.options import DeliveryOptions
from tidewire.delivery.service import DeliveryService
from tidewire.domain.delivery import Advance, Advanced, AdvanceOutcome, Positions
from tidewire.domain.errors import (
    InvalidMessage,
    NotAMember,
    SequenceAboveHead,
    StoreUnavailable,
)
from tidewire.domain.ids import ChatId, UserId
from tidewire.engines.memory import MemoryStorage
from tidewire.runtime.clock import SystemClock
from tidewire.runtime.supervise import TaskSupervisor


class FlakyStorage(MemoryStorage):
    """Fails a number of advances, before or after they are stored, and counts all of them."""

    failures_before = 0
    failures_after = 0
    batches: list[list[Advance]]
    called: asyncio.Event

    async def advance(self, advances: Sequence[Advance], *, now_ms: int) -> list[AdvanceOutcome]:
        self.batches.append(list(advances))
        self.called.set()
        if self.failures_before:
            self.failures_before -= 1
            raise StoreUnavailable("the test says so")
        outcomes = await super().advance(advances, now_ms=now_ms)
        if self.failures_after:
            self.failures_after -= 1
            raise StoreUnavailable("stored, but the answer is lost")
        return outcomes


class FlakyHarness(MemoryHarness):
    async def _open(self) -> FlakyStorage:
        storage = FlakyStorage()
        storage.batches = []
        storage.called = asyncio.Event()
        return storage


class Stage:
    """A chat of two with three messages by Ann, and the service that Ben acknowledges to."""

    def __init__(self, world: World, ann: UserId, ben: UserId, chat_id: ChatId) -> None:
        self.world = world
        self.ann = ann
        self.ben = ben
        self.chat_id = chat_id
        self.outcomes: list[tuple[str, AdvanceOutcome]] = []
        self.tasks = TaskSupervisor()
        self.service: DeliveryService[str] = self.serve()

    def serve(self, *, waiting_max: int = 100, drain_ms: int = 30_000) -> DeliveryService[str]:
        return DeliveryService(
            store=self.world.storage,
            clock=SystemClock(),
            tasks=self.tasks,
            options=DeliveryOptions(retry_ms=1, waiting_max=waiting_max, drain_ms=drain_ms),
            on_advanced=lambda origin, _, outcome: self.outcomes.append((origin, outcome)),
        )

    @property
    def store(self) -> FlakyStorage:
        storage = self.world.storage
        assert isinstance(storage, FlakyStorage)
        return storage


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Stage]:
    engine = FlakyHarness(tmp_path)
    await engine.open()
    world = World(engine)
    ann, ben = await world.people(2)
    chat_id = await world.direct(ann, ben)
    await world.send_many(chat_id, ann, 3)
    stage = Stage(world, ann, ben, chat_id)
    yield stage
    await stage.tasks.close()
    await engine.close()


async def test_service_writes_many_acknowledgements_of_one_turn_as_one(stage: Stage) -> None:
    for sequence in (1, 3, 2):
        assert stage.service.acknowledge_nowait(
            "phone", stage.ben, stage.chat_id, delivered=sequence
        )
    assert stage.service.acknowledge_nowait("phone", stage.ben, stage.chat_id, read=2)
    await stage.service.drain()
    assert len(stage.store.batches) == 1
    assert stage.outcomes == [("phone", Advanced(Positions(3, 2), moved=True))]
    assert await stage.world.positions(stage.ben, stage.chat_id) == Positions(3, 2)


async def test_service_keeps_a_good_device_apart_from_a_bad_one(stage: Stage) -> None:
    stage.service.acknowledge_nowait("bad", stage.ben, stage.chat_id, delivered=10**15)
    stage.service.acknowledge_nowait("good", stage.ben, stage.chat_id, delivered=2)
    await stage.service.drain()
    (bad, refusal), (good, advanced) = stage.outcomes
    assert (bad, good) == ("bad", "good")
    assert isinstance(refusal, SequenceAboveHead)
    assert advanced == Advanced(Positions(2, 0), moved=True)


@pytest.mark.parametrize("when", ["failures_before", "failures_after"])
async def test_service_tries_again_until_the_store_is_back(stage: Stage, when: str) -> None:
    setattr(stage.store, when, 3)
    stage.service.acknowledge_nowait("phone", stage.ben, stage.chat_id, delivered=1)
    await stage.store.called.wait()
    stage.service.acknowledge_nowait("phone", stage.ben, stage.chat_id, delivered=3)
    await stage.service.drain()
    assert await stage.world.positions(stage.ben, stage.chat_id) == Positions(3, 0)
    assert len(stage.outcomes) >= 1


async def test_service_tells_that_there_is_no_room_at_the_bound(stage: Stage) -> None:
    service = stage.serve(waiting_max=1)
    assert service.acknowledge_nowait("phone", stage.ben, stage.chat_id, delivered=1)
    assert not service.acknowledge_nowait("tablet", stage.ben, stage.chat_id, delivered=1)
    await service.drain()
    assert service.acknowledge_nowait("tablet", stage.ben, stage.chat_id, delivered=1)
    await service.drain()


async def test_service_answers_an_advance_that_is_waited_for(stage: Stage) -> None:
    wish = Advance(user_id=stage.ben, chat_id=stage.chat_id, read=2)
    assert await stage.service.advance(wish) == Advanced(Positions(2, 2), moved=True)
    assert await stage.service.advance(wish) == Advanced(Positions(2, 2), moved=False)


@pytest.mark.parametrize(
    ("delivered", "read", "refusal"),
    [(0, 0, InvalidMessage), (-1, 3, InvalidMessage), (4, 0, SequenceAboveHead)],
)
async def test_service_refuses_an_impossible_position(
    stage: Stage, delivered: int, read: int, refusal: type[Exception]
) -> None:
    wish = Advance(user_id=stage.ben, chat_id=stage.chat_id, delivered=delivered, read=read)
    with pytest.raises(refusal):
        await stage.service.advance(wish)


async def test_service_refuses_an_outsider_everything(stage: Stage) -> None:
    outsider = await stage.world.person()
    with pytest.raises(NotAMember):
        await stage.service.advance(Advance(user_id=outsider, chat_id=stage.chat_id, read=1))
    with pytest.raises(NotAMember):
        await stage.service.status(outsider, stage.chat_id)
    assert (await stage.service.digest(outsider)).entries == []


async def test_service_shows_the_status_of_the_last_message(stage: Stage) -> None:
    status = await stage.service.status(stage.ann, stage.chat_id)
    assert (status.summary.sequence, status.summary.pending_count) == (3, 1)
    await stage.service.advance(Advance(user_id=stage.ben, chat_id=stage.chat_id, delivered=3))
    assert (await stage.service.status(stage.ann, stage.chat_id)).summary.all_delivered


async def test_drain_gives_up_when_the_store_does_not_come_back(stage: Stage) -> None:
    service = stage.serve(drain_ms=50)
    stage.store.failures_before = 1_000_000
    service.acknowledge_nowait("phone", stage.ben, stage.chat_id, delivered=1)
    await service.drain()
    assert await stage.world.positions(stage.ben, stage.chat_id) == Positions(0, 0)


async def test_acknowledgement_that_breaks_the_store_takes_no_other_along(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = stage.store.advance

    async def advance(wishes: Sequence[Advance], *, now_ms: int) -> list[AdvanceOutcome]:
        if any(wish.user_id == stage.ann for wish in wishes):
            raise ZeroDivisionError
        return await good(wishes, now_ms=now_ms)

    monkeypatch.setattr(stage.store, "advance", advance)
    stage.service.acknowledge_nowait("phone", stage.ben, stage.chat_id, delivered=3)
    stage.service.acknowledge_nowait("bad", stage.ann, stage.chat_id, delivered=1)
    await stage.service.drain()
    assert await stage.world.positions(stage.ben, stage.chat_id) == Positions(3, 0)
    # Once together, once alone.
    assert stage.tasks.failures_by_kind == {"acknowledgement": 2}
    assert stage.service.waiting_count == 0


async def test_listener_that_fails_takes_no_other_acknowledgement_along(stage: Stage) -> None:
    told: list[str] = []

    def on_advanced(origin: str, *_: object) -> None:
        told.append(origin)
        raise ZeroDivisionError

    service = DeliveryService(
        store=stage.world.storage,
        clock=SystemClock(),
        tasks=stage.tasks,
        options=DeliveryOptions(drain_ms=50),
        on_advanced=on_advanced,
    )
    service.acknowledge_nowait("phone", stage.ben, stage.chat_id, delivered=1)
    service.acknowledge_nowait("laptop", stage.ben, stage.chat_id, delivered=2)
    await service.drain()
    assert told == ["phone", "laptop"]
    assert stage.tasks.failures_by_kind == {"acknowledgement": 2}
