"""The delivery service: what is acknowledged is written, also when the store fails for a while."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from tests.support.engines import MemoryHarness
from tests.support.memory import MemoryStorage
from tests.support.world import World
from tests.unit.gateway.fakes import turns
from tidewire.delivery.options import DeliveryOptions
from tidewire.delivery.service import GATHER_MS, DeliveryService
from tidewire.domain.delivery import Advance, Advanced, AdvanceOutcome, Positions
from tidewire.domain.errors import (
    InvalidMessage,
    NotAMember,
    SequenceAboveHead,
    StoreDamaged,
    StoreUnavailable,
)
from tidewire.domain.events import Acknowledged
from tidewire.domain.ids import ChatId, ConnectionId, UserId
from tidewire.ports.event_log import CommitBus
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
        self.bus = CommitBus()
        self.bus.subscribe(
            (Acknowledged,),
            lambda events: self.outcomes.extend((one.connection_id, one.outcome) for one in events),
        )
        self.service = self.serve()

    def serve(
        self,
        *,
        waiting_max: int = 100,
        batch_max: int = 1_024,
        drain_ms: int = 30_000,
        gather_ms: int = GATHER_MS,
        retry_ms: int = 1,
    ) -> DeliveryService:
        return DeliveryService(
            store=self.world.storage,
            clock=SystemClock(),
            tasks=self.tasks,
            options=DeliveryOptions(
                retry_ms=retry_ms,
                waiting_max=waiting_max,
                batch_max=batch_max,
                drain_ms=drain_ms,
            ),
            publish=self.bus,
            gather_ms=gather_ms,
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
            ConnectionId("phone"),
            Advance(user_id=stage.ben, chat_id=stage.chat_id, delivered=sequence),
        )
    assert stage.service.acknowledge_nowait(
        ConnectionId("phone"), Advance(user_id=stage.ben, chat_id=stage.chat_id, read=2)
    )
    await stage.service.drain()
    assert len(stage.store.batches) == 1
    # What moved is told by the store's own event.
    assert stage.outcomes == []
    assert await stage.world.positions(stage.ben, stage.chat_id) == Positions(3, 2)


async def test_service_gathers_what_comes_soon_after_a_write(stage: Stage) -> None:
    """The first is written at once; of the others only the highest is, when the time is over."""
    phone = ConnectionId("phone")
    stage.service = stage.serve(gather_ms=60_000)
    stage.service.acknowledge_nowait(
        phone, Advance(user_id=stage.ben, chat_id=stage.chat_id, delivered=1)
    )
    await stage.store.called.wait()
    stage.store.called.clear()
    for sequence in (2, 3):
        stage.service.acknowledge_nowait(
            phone, Advance(user_id=stage.ben, chat_id=stage.chat_id, delivered=sequence)
        )
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.02):
                await stage.store.called.wait()
    assert [[wish.delivered for wish in batch] for batch in stage.store.batches] == [[1]]
    # The end does not wait for more.
    await stage.service.drain()
    assert [[wish.delivered for wish in batch] for batch in stage.store.batches] == [[1], [3]]
    assert await stage.world.positions(stage.ben, stage.chat_id) == Positions(3, 0)


def acknowledges(stage: Stage, sequence: int) -> None:
    wish = Advance(user_id=stage.ben, chat_id=stage.chat_id, delivered=sequence)
    assert stage.service.acknowledge_nowait(ConnectionId("phone"), wish)


async def test_hastened_acknowledgement_is_written_before_what_its_user_sends_next(
    stage: Stage,
) -> None:
    """In the next turn of the loop, in which messages are handed to the store: ahead of them."""
    stage.service = stage.serve(gather_ms=60_000)
    acknowledges(stage, 1)
    await stage.store.called.wait()
    acknowledges(stage, 2)
    handed_over = list[int]()
    # Nobody's, another one's, and what is of the same user elsewhere.
    stage.service.hasten(stage.ann, stage.chat_id)
    stage.service.hasten(stage.ben, ChatId("elsewhere"))
    await turns(1)
    assert stage.service.waiting_count == 1
    stage.service.hasten(stage.ben, stage.chat_id)
    asyncio.get_running_loop().call_soon(lambda: handed_over.append(len(stage.store.batches)))
    await turns(1)
    assert handed_over == [2]
    # It is written: there is nothing more to hasten.
    stage.service.hasten(stage.ben, stage.chat_id)
    await stage.service.drain()
    assert [[wish.delivered for wish in batch] for batch in stage.store.batches] == [[1], [2]]


def held_back(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> asyncio.Semaphore:
    """The store has written, and says so only as often as this is released."""
    good, may_end = stage.store.advance, asyncio.Semaphore(0)

    async def advance(wishes: Sequence[Advance], *, now_ms: int) -> list[AdvanceOutcome]:
        outcomes = await good(wishes, now_ms=now_ms)
        await may_end.acquire()
        return outcomes

    monkeypatch.setattr(stage.store, "advance", advance)
    return may_end


async def test_acknowledgement_hastened_during_a_write_does_not_wait_for_its_end(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The write may be over in the store: then a message that is sent now would overtake."""
    may_end = held_back(stage, monkeypatch)
    stage.service = stage.serve(gather_ms=60_000)
    acknowledges(stage, 1)
    await stage.store.called.wait()
    acknowledges(stage, 2)
    handed_over = list[int]()
    stage.service.hasten(stage.ben, stage.chat_id)
    asyncio.get_running_loop().call_soon(lambda: handed_over.append(len(stage.store.batches)))
    await turns(1)
    assert handed_over == [2]
    # That was for this time: what comes now is gathered again.
    acknowledges(stage, 3)
    may_end.release()
    may_end.release()
    await turns(20)
    assert [[wish.delivered for wish in batch] for batch in stage.store.batches] == [[1], [2]]
    may_end.release()
    await stage.service.drain()
    assert await stage.world.positions(stage.ben, stage.chat_id) == Positions(3, 0)


async def test_drain_waits_for_what_was_hastened_during_a_write(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_end = held_back(stage, monkeypatch)
    acknowledges(stage, 1)
    await stage.store.called.wait()
    acknowledges(stage, 2)
    stage.service.hasten(stage.ben, stage.chat_id)
    await turns(1)
    draining = asyncio.gather(stage.service.drain())
    may_end.release()
    await turns(20)
    assert not draining.done()
    may_end.release()
    await draining


@pytest.mark.parametrize("error", [StoreUnavailable("away"), ValueError("nobody foresaw this")])
async def test_hastened_acknowledgement_that_fails_waits_with_the_others(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    may_end = held_back(stage, monkeypatch)
    acknowledges(stage, 1)
    await stage.store.called.wait()
    slow = stage.store.advance

    async def fail(wishes: Sequence[Advance], *, now_ms: int) -> list[AdvanceOutcome]:
        monkeypatch.setattr(stage.store, "advance", slow)
        raise error

    monkeypatch.setattr(stage.store, "advance", fail)
    acknowledges(stage, 2)
    stage.service.hasten(stage.ben, stage.chat_id)
    await turns(2)
    assert stage.service.waiting_count == 1
    may_end.release()
    may_end.release()
    await stage.service.drain()
    assert [[wish.delivered for wish in batch] for batch in stage.store.batches] == [[1], [2]]
    assert await stage.world.positions(stage.ben, stage.chat_id) == Positions(2, 0)


async def test_hastened_acknowledgement_that_fails_last_is_tried_again(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the write beside it has ended, and nothing else waits."""
    may_end = held_back(stage, monkeypatch)
    stage.service = stage.serve(gather_ms=0)
    acknowledges(stage, 1)
    await stage.store.called.wait()
    acknowledges(stage, 2)
    slow, is_over = stage.store.advance, asyncio.Event()

    async def fail_late(wishes: Sequence[Advance], *, now_ms: int) -> list[AdvanceOutcome]:
        monkeypatch.setattr(stage.store, "advance", slow)
        await is_over.wait()
        raise StoreUnavailable("away")

    monkeypatch.setattr(stage.store, "advance", fail_late)
    stage.service.hasten(stage.ben, stage.chat_id)
    may_end.release()
    await turns(5)
    is_over.set()
    may_end.release()
    await turns(5)
    await stage.service.drain()
    assert await stage.world.positions(stage.ben, stage.chat_id) == Positions(2, 0)


async def test_store_that_is_away_is_left_alone_however_much_is_hastened(stage: Stage) -> None:
    stage.service = stage.serve(retry_ms=60_000)
    stage.store.failures_before = 1
    acknowledges(stage, 1)
    await stage.store.called.wait()
    for _ in range(3):
        await turns(1)
        stage.service.hasten(stage.ben, stage.chat_id)
    assert len(stage.store.batches) == 1
    await stage.service.drain()
    assert await stage.world.positions(stage.ben, stage.chat_id) == Positions(1, 0)


async def test_service_does_not_gather_beyond_a_batch(stage: Stage) -> None:
    stage.service = stage.serve(batch_max=1, gather_ms=60_000)
    for device in ("phone", "tablet", "laptop"):
        connection_id = ConnectionId(device)
        stage.service.acknowledge_nowait(
            connection_id, Advance(user_id=stage.ben, chat_id=stage.chat_id, delivered=1)
        )
    async with asyncio.timeout(30):
        while len(stage.store.batches) < 3:
            stage.store.called.clear()
            await stage.store.called.wait()


async def test_service_keeps_a_good_device_apart_from_a_bad_one(stage: Stage) -> None:
    stage.service.acknowledge_nowait(
        ConnectionId("bad"), Advance(user_id=stage.ben, chat_id=stage.chat_id, delivered=10**15)
    )
    stage.service.acknowledge_nowait(
        ConnectionId("good"), Advance(user_id=stage.ben, chat_id=stage.chat_id, delivered=2)
    )
    await stage.service.drain()
    [(bad, refusal)] = stage.outcomes
    assert bad == "bad"
    assert isinstance(refusal, SequenceAboveHead)
    assert await stage.world.positions(stage.ben, stage.chat_id) == Positions(2, 0)


@pytest.mark.parametrize("when", ["failures_before", "failures_after"])
async def test_service_tries_again_until_the_store_is_back(stage: Stage, when: str) -> None:
    setattr(stage.store, when, 3)
    stage.service.acknowledge_nowait(
        ConnectionId("phone"), Advance(user_id=stage.ben, chat_id=stage.chat_id, delivered=1)
    )
    await stage.store.called.wait()
    stage.service.acknowledge_nowait(
        ConnectionId("phone"), Advance(user_id=stage.ben, chat_id=stage.chat_id, delivered=3)
    )
    await stage.service.drain()
    assert await stage.world.positions(stage.ben, stage.chat_id) == Positions(3, 0)


@pytest.mark.parametrize(
    ("failure", "is_tried_again"), [(StoreUnavailable("away"), True), (StoreDamaged("page"), False)]
)
async def test_position_that_alone_could_not_be_written_is_tried_again(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, failure: StoreUnavailable, is_tried_again: bool
) -> None:
    """A store may write a part of a batch. What is damaged is so the next time as well."""
    good, calls = stage.store.advance, list[int]()

    async def advance(wishes: Sequence[Advance], *, now_ms: int) -> list[AdvanceOutcome]:
        calls.append(len(wishes))
        if len(calls) > 1:
            return await good(wishes, now_ms=now_ms)
        return [failure, *await good(wishes[1:], now_ms=now_ms)]

    monkeypatch.setattr(stage.store, "advance", advance)
    stage.service.acknowledge_nowait(
        ConnectionId("one"), Advance(user_id=stage.ben, chat_id=stage.chat_id, delivered=2)
    )
    stage.service.acknowledge_nowait(
        ConnectionId("two"), Advance(user_id=stage.ann, chat_id=stage.chat_id, delivered=3)
    )
    await stage.service.drain()
    assert calls == ([2, 1] if is_tried_again else [2])
    delivered = (await stage.world.positions(stage.ben, stage.chat_id)).delivered
    assert delivered == (2 if is_tried_again else 0)


async def test_service_tells_that_there_is_no_room_at_the_bound(stage: Stage) -> None:
    service = stage.serve(waiting_max=1)
    assert service.acknowledge_nowait(
        ConnectionId("phone"), Advance(user_id=stage.ben, chat_id=stage.chat_id, delivered=1)
    )
    assert not service.acknowledge_nowait(
        ConnectionId("tablet"), Advance(user_id=stage.ben, chat_id=stage.chat_id, delivered=1)
    )
    await service.drain()
    assert service.acknowledge_nowait(
        ConnectionId("tablet"), Advance(user_id=stage.ben, chat_id=stage.chat_id, delivered=1)
    )
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


async def test_drain_gives_up_when_the_store_does_not_come_back(stage: Stage) -> None:
    service = stage.serve(drain_ms=50)
    stage.store.failures_before = 1_000_000
    service.acknowledge_nowait(
        ConnectionId("phone"), Advance(user_id=stage.ben, chat_id=stage.chat_id, delivered=1)
    )
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
    stage.service.acknowledge_nowait(
        ConnectionId("phone"), Advance(user_id=stage.ben, chat_id=stage.chat_id, delivered=3)
    )
    stage.service.acknowledge_nowait(
        ConnectionId("bad"), Advance(user_id=stage.ann, chat_id=stage.chat_id, delivered=1)
    )
    await stage.service.drain()
    assert await stage.world.positions(stage.ben, stage.chat_id) == Positions(3, 0)
    # Once together, once alone.
    assert stage.tasks.failures_by_kind == {"acknowledgement": 2}
    assert stage.service.waiting_count == 0


async def test_listener_that_fails_takes_no_other_acknowledgement_along(stage: Stage) -> None:
    told: list[str] = []

    def acknowledged(events: Sequence[Acknowledged]) -> None:
        told.extend(event.connection_id for event in events)
        raise ZeroDivisionError

    bus = CommitBus()
    bus.subscribe((Acknowledged,), acknowledged)

    service = DeliveryService(
        store=stage.world.storage,
        clock=SystemClock(),
        tasks=stage.tasks,
        options=DeliveryOptions(drain_ms=50),
        publish=bus,
    )
    service.acknowledge_nowait(
        ConnectionId("phone"), Advance(user_id=stage.ben, chat_id=stage.chat_id, delivered=8)
    )
    service.acknowledge_nowait(
        ConnectionId("laptop"), Advance(user_id=stage.ben, chat_id=stage.chat_id, delivered=9)
    )
    await service.drain()
    assert told == ["phone", "laptop"]
    assert stage.tasks.failures_by_kind == {"acknowledgement": 2}
