"""A chat whose members are slow to read, between others in one log: it waits alone."""

from collections import deque
from collections.abc import Collection, Mapping, Sequence

import pytest

from tests.unit.fanout.stage import Harness, Stage
from tests.unit.fanout.test_consumer import encoded
from tests.unit.gateway.fakes import turns
from tidewire.domain.events import MessageAppended
from tidewire.fanout.consumer import LogConsumer
from tidewire.fanout.options import FanoutOptions
from tidewire.ports.event_log import LogRecord, Place
from tidewire.runtime.clock import SystemClock


class OnePartition:
    """A log of one partition, read in batches of two."""

    group = "fanout-workers"
    reader_id = "fanout-1"

    def __init__(self) -> None:
        self.records: deque[LogRecord] = deque()
        self.read_count = 0
        self.committed_offset = 0

    def add(self, event: MessageAppended) -> None:
        offset = self.read_count + len(self.records)
        self.records.append(LogRecord("messages.persisted", 0, offset, 1, None, encoded(event)))

    async def read(self) -> Sequence[LogRecord]:
        await turns(3)
        batch = [self.records.popleft() for _ in range(min(2, len(self.records)))]
        self.read_count += len(batch)
        return batch

    async def commit(self, handled: Sequence[LogRecord]) -> None:
        self.committed_offset = handled[-1].offset + 1

    async def stay(self) -> None:
        await turns(3)

    def take_lost(self) -> Collection[Place]:
        return ()

    def lag(self) -> Mapping[Place, int]:
        return {}

    async def bury(self, key: bytes | None, letter: bytes) -> None:
        raise AssertionError("every record can be read")


class SlowChat:
    """Two chats with a reader each; the members of the first are not known yet."""

    def __init__(self, stage: Stage, *, held_max: int) -> None:
        self.stage = stage
        self.log = OnePartition()
        self.consumer = LogConsumer(
            reader=self.log,
            letters=self.log,
            worker=stage.worker,
            pushes=stage.router,
            clock=SystemClock(),
            options=FanoutOptions(waiting_events_max=held_max),
        )

    async def open(self) -> None:
        world = self.stage.world
        self.anna, self.slow_reader, self.quick_reader = await world.people(3)
        self.slow = await world.group(self.anna, self.slow_reader)
        self.quick = await world.group(self.anna, self.quick_reader)
        self.stage.connect(self.slow_reader, self.quick_reader)
        self.stage.fan_out()
        self.stage.worker.roster_changed(self.slow)
        self.stage.storage.gate.clear()

    async def send(self, *, count: int) -> None:
        """One to each chat in turn, so that both are in every batch."""
        for _ in range(count):
            await self.stage.world.send(self.slow, self.anna)
            await self.stage.world.send(self.quick, self.anna)
        for commit in self.stage.world.new_commits():
            for event in commit:
                if isinstance(event, MessageAppended):
                    self.log.add(event)

    async def steps(self, count: int) -> None:
        for _ in range(count):
            await self.consumer.step()

    def got(self) -> tuple[list[object], list[object]]:
        return self.stage.sequences(self.slow_reader), self.stage.sequences(self.quick_reader)


@pytest.mark.timeout(20)
async def test_roster_that_hangs_holds_its_own_chat_over_many_batches(engine: Harness) -> None:
    stage = Stage(engine, can_wait=True)
    talk = SlowChat(stage, held_max=100)
    await talk.open()
    await talk.send(count=4)
    await talk.steps(4)
    assert talk.got() == ([], [1, 2, 3, 4])
    # The first record of the partition is not pushed: nothing behind it may be committed.
    assert talk.log.committed_offset == 0
    stage.storage.gate.set()
    await stage.settled()
    assert talk.got() == ([1, 2, 3, 4], [1, 2, 3, 4])
    await talk.steps(1)
    assert talk.log.committed_offset == 8
    assert stage.router.resyncs == []
    await stage.tasks.close()


@pytest.mark.timeout(20)
async def test_reader_stands_still_at_the_bound_and_goes_on_behind_it(engine: Harness) -> None:
    stage = Stage(engine, can_wait=True)
    talk = SlowChat(stage, held_max=4)
    await talk.open()
    await talk.send(count=4)
    await talk.steps(6)
    assert talk.got() == ([], [1, 2])
    assert (talk.log.read_count, talk.log.committed_offset) == (4, 0)
    assert talk.consumer.counters.pauses == 4
    stage.storage.gate.set()
    await stage.settled()
    await talk.steps(3)
    assert talk.got() == ([1, 2, 3, 4], [1, 2, 3, 4])
    assert talk.log.committed_offset == 8
    assert stage.router.resyncs == []
    await stage.tasks.close()
