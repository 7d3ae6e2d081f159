"""The publisher: every commit into the log at once, its row deleted when the log has it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.support.memory.event_log import MemoryEventLog
from tests.unit.ingest.events import ANNA, CHAT, MemoryOutbox, a_deletion, a_message, a_rename
from tests.unit.ingest.house import JumpingClock, next_turn
from tidewire.domain.delivery import Positions
from tidewire.domain.events import Event, LoggedEvent, PositionsAdvanced
from tidewire.domain.outbox import key_of_commit
from tidewire.ingest.options import IngestOptions
from tidewire.ingest.publisher import Publisher
from tidewire.ports.event_log import LOGGED, CommitBus
from tidewire.runtime.supervise import TaskSupervisor

PATIENCE_MS = 5_000


class Stage:
    def __init__(self, **options: int) -> None:
        self.log = MemoryEventLog()
        self.outbox = MemoryOutbox()
        self.clock = JumpingClock()
        self.positions: list[Event] = []
        self.publisher = Publisher(
            log=self.log, outbox=self.outbox, clock=self.clock, options=IngestOptions(**options)
        )
        self.bus = CommitBus()
        self.bus.subscribe(LOGGED, self.publisher.committed)
        self.bus.subscribe((PositionsAdvanced,), self.positions.extend)

    def commit(self, *events: LoggedEvent) -> None:
        self.outbox.commit(events)
        self.bus(events)


@asynccontextmanager
async def a_stage(**options: int) -> AsyncIterator[Stage]:
    stage = Stage(**options)
    tasks = TaskSupervisor()
    tasks.start_service("publisher", stage.publisher.run())
    try:
        yield stage
    finally:
        await tasks.close()


async def test_commit_is_published_and_its_row_deleted() -> None:
    async with a_stage() as stage:
        stage.commit(a_message(1), a_message(2))
        stage.commit(a_rename(4))
        assert await stage.publisher.drain(PATIENCE_MS)
        assert stage.log.events == [a_message(1), a_message(2), a_rename(4)]
        assert stage.outbox.commits == {}
        counters = stage.publisher.counters
        assert (counters.commits, counters.events, counters.published) == (2, 3, 2)
        assert counters.rows_deleted == 2


async def test_commit_waits_for_the_log_until_the_log_has_it() -> None:
    async with a_stage() as stage:
        unlogged = stage.publisher.unlogged
        stage.log.holds_back = True
        stage.commit(a_message(1))
        stage.clock.passed_ms += 5_000
        now_ms = stage.clock.monotonic_ms()
        assert unlogged.since(now_ms - 6_000) == {}
        assert unlogged.since(now_ms - 5_000) == {CHAT: ()}
        stage.log.answer()
        assert unlogged.since(now_ms) == {}


async def test_commit_that_the_log_did_not_take_waits_for_a_relay() -> None:
    async with a_stage() as stage:
        stage.log.is_down = True
        stage.commit(a_message(1))
        await next_turn()
        assert stage.publisher.take_left() == {key_of_commit([a_message(1)]).shard}
        assert stage.publisher.unlogged.since(stage.clock.monotonic_ms()) == {CHAT: ()}


async def test_positions_are_handed_on_and_never_logged() -> None:
    moved = PositionsAdvanced(CHAT, ANNA, Positions(1, 1))
    async with a_stage() as stage:
        stage.bus([moved])
        assert stage.positions == [moved]
        assert await stage.publisher.drain(PATIENCE_MS)
        assert stage.log.events == []
        assert stage.publisher.counters.commits == 0


async def test_deletion_withdraws_the_text_also_when_there_is_no_room_for_it() -> None:
    """At the bound the relays publish the deletion; the text must not go out until then."""
    async with a_stage(publishing_commits_max=1) as stage:
        stage.log.holds_back = True
        stage.commit(a_message(1))
        assert stage.log.withdrawn == []
        deletion = a_deletion(1, 2)
        stage.commit(deletion)
        assert stage.publisher.counters.left_to_relays == 1
        assert stage.log.withdrawn == [deletion.message]


async def test_row_stays_until_the_log_has_answered() -> None:
    async with a_stage() as stage:
        stage.log.holds_back = True
        stage.commit(a_message(1))
        assert not await stage.publisher.drain(20)
        [key] = stage.outbox.commits
        assert stage.publisher.is_publishing(key)
        assert stage.publisher.publishing_count == 1
        stage.log.answer()
        assert await stage.publisher.drain(PATIENCE_MS)
        assert stage.outbox.commits == {}


async def test_row_stays_when_the_log_fails() -> None:
    async with a_stage() as stage:
        stage.log.is_down = True
        stage.commit(a_message(1))
        assert await stage.publisher.drain(PATIENCE_MS)
        [key] = stage.outbox.commits
        assert not stage.publisher.is_publishing(key)
        assert stage.publisher.counters.failed == 1


async def test_commit_beyond_the_bound_is_left_to_the_relays() -> None:
    async with a_stage(publishing_commits_max=2) as stage:
        stage.log.holds_back = True
        for sequence in (1, 2, 3):
            stage.commit(a_message(sequence))
        assert stage.publisher.counters.left_to_relays == 1
        assert stage.log.events == [a_message(1), a_message(2)]
        stage.log.answer()
        assert await stage.publisher.drain(PATIENCE_MS)
        assert [events for _, events in stage.outbox.commits.values()] == [[a_message(3)]]


async def test_rows_are_deleted_together_once_the_store_is_back() -> None:
    async with a_stage() as stage:
        stage.outbox.is_down = True
        for sequence in range(1, 6):
            stage.commit(a_message(sequence))
        await next_turn()
        await next_turn()
        assert len(stage.outbox.commits) == 5
        stage.outbox.is_down = False
        assert await stage.publisher.drain(PATIENCE_MS)
        assert stage.outbox.commits == {}
        assert stage.outbox.deletes == 1


async def test_rows_beyond_the_bound_are_left_to_the_relays() -> None:
    async with a_stage(publishing_commits_max=2) as stage:
        stage.outbox.is_down = True
        for sequence in range(1, 8):
            stage.commit(a_message(sequence))
            await next_turn()
        assert stage.publisher.counters.left_to_relays > 0
        stage.outbox.is_down = False
        assert await stage.publisher.drain(PATIENCE_MS)
        counters = stage.publisher.counters
        assert len(stage.outbox.commits) == counters.left_to_relays
        assert counters.rows_deleted + counters.left_to_relays == 7


async def test_drain_ends_for_everybody_who_waits() -> None:
    async with a_stage() as stage:
        stage.log.holds_back = True
        stage.commit(a_message(1))
        waiting = asyncio.gather(*(stage.publisher.drain(PATIENCE_MS) for _ in range(3)))
        await next_turn()
        stage.log.answer()
        assert await waiting == [True, True, True]
