"""The relay: what stays in the outbox is published by whoever holds its shard, whole or not."""

import asyncio
from collections.abc import Sequence

import pytest

from tests.support.logs import our_lines
from tests.support.memory.event_log import MemoryEventLog
from tests.unit.ingest.events import CHAT, MemoryOutbox, a_message, a_rename
from tests.unit.ingest.house import JumpingClock
from tidewire.domain.errors import StoreUnavailable
from tidewire.domain.events import LoggedEvent
from tidewire.domain.ids import ChatId
from tidewire.domain.lag import Behind
from tidewire.domain.outbox import SHARDS, LeaseTable, OutboxKey, OutboxRow, shard_of
from tidewire.ingest.options import IngestOptions
from tidewire.ingest.relay import Relay
from tidewire.ingest.unlogged import Unlogged
from tidewire.ports.event_log import PublishDone
from tidewire.runtime.supervise import TaskSupervisor


class Stage:
    """Relays on one outbox and one log, and a calendar that the test turns."""

    def __init__(self, **options: int) -> None:
        self.log = MemoryEventLog()
        self.outbox = MemoryOutbox()
        self.clock = JumpingClock()
        self.on_their_way: set[OutboxKey] = set()
        self.options = IngestOptions(**options)
        self.unlogged = Unlogged(commits_max=100)

    @property
    def behind(self) -> Behind | None:
        return self.unlogged.since(self.clock.monotonic_ms())

    @property
    def now_ms(self) -> int:
        return self.clock.date_ms

    def relay(self, relay_id: str) -> Relay:
        return Relay(
            relay_id=relay_id,
            log=self.log,
            outbox=self.outbox,
            is_publishing=self.on_their_way.__contains__,
            clock=self.clock,
            options=self.options,
            unlogged=self.unlogged,
        )


async def test_row_is_published_when_it_is_old_enough() -> None:
    stage = Stage()
    relay = stage.relay("a")
    stage.outbox.commit([a_message(1), a_message(2)], stage.now_ms)
    await relay.round()
    assert stage.log.events == []
    assert relay.outbox_oldest_seconds == 0
    stage.clock.date_ms += 1_999
    assert relay.outbox_oldest_seconds == 1.999
    await relay.round()
    assert stage.log.events == []
    stage.clock.date_ms += 1
    await relay.round()
    assert stage.log.events == [a_message(1), a_message(2)]
    assert stage.outbox.commits == {}
    assert relay.outbox_oldest_seconds == 0
    assert (relay.counters.rows_published, relay.counters.events) == (1, 2)


class SlowOutbox(MemoryOutbox):
    """Reading a page takes so long that the calendar turns meanwhile."""

    def __init__(self, clock: JumpingClock, page_ms: int) -> None:
        super().__init__()
        self._clock = clock
        self._page_ms = page_ms
        self.pages = 0

    async def outbox_rows(
        self, shard: int, *, after: str | None, count_max: int
    ) -> list[OutboxRow]:
        page = await super().outbox_rows(shard, after=after, count_max=count_max)
        if page:
            self.pages += 1
            self._clock.date_ms += self._page_ms
        return page


async def test_relay_stops_in_a_shard_when_its_lease_has_run_out() -> None:
    """Another relay may have the shard by then: what is left is that one's to publish."""
    stage = Stage(relay_after_ms=0, relay_rows_max=1, lease_ms=10_000)
    stage.outbox = outbox = SlowOutbox(stage.clock, page_ms=10_000)
    relay = stage.relay("a")
    for sequence in (1, 2, 3):
        outbox.commit([a_message(sequence)], stage.now_ms)
    await relay.round()
    assert outbox.pages == 1
    assert stage.log.events == [a_message(1)]
    assert len(outbox.commits) == 2


async def test_row_that_the_log_does_not_take_is_known_as_late_until_it_does() -> None:
    """Also that of a gateway that has died: no other process knows of it."""
    stage = Stage(relay_after_ms=0)
    relay = stage.relay("a")
    stage.outbox.commit([a_message(1)])
    stage.outbox.commit([a_rename(4)])
    stage.log.is_down = True
    await relay.round()
    assert stage.behind == {CHAT: ()}
    stage.log.is_down = False
    await relay.round()
    assert stage.behind == {}


async def test_row_that_another_relay_has_published_is_late_no_longer() -> None:
    stage = Stage(relay_after_ms=0, relay_rows_max=1)
    relay = stage.relay("a")
    left, publishing, waiting = (stage.outbox.commit([a_message(n)]) for n in (1, 2, 3))
    for key in (left, publishing, waiting):
        stage.unlogged.committed(key, CHAT, (), 0)
    stage.on_their_way |= {publishing, waiting}
    for gone in (left, publishing):
        del stage.outbox.commits[gone]
    await relay.round()
    # What this process may still publish by itself is not known to be in the log.
    assert stage.unlogged.keys_in(left.shard) == [publishing, waiting]


async def test_row_that_cannot_be_published_for_good_makes_no_chat_late() -> None:
    """Its messages are gone: no sync shows them either."""
    stage = Stage(relay_after_ms=0)
    relay = stage.relay("a")
    stage.outbox.hidden.add(stage.outbox.commit([a_message(1)]))
    await relay.round()
    assert relay.counters.rows_incomplete == 1
    assert stage.behind == {}


async def test_row_that_the_publisher_has_is_left_alone() -> None:
    stage = Stage(relay_after_ms=0)
    relay = stage.relay("a")
    key = stage.outbox.commit([a_message(1)])
    stage.on_their_way.add(key)
    await relay.round()
    assert stage.log.events == []
    stage.on_their_way.clear()
    await relay.round()
    assert stage.log.events == [a_message(1)]


async def test_row_stays_when_the_log_fails_and_goes_when_it_is_back() -> None:
    stage = Stage(relay_after_ms=0)
    relay = stage.relay("a")
    stage.outbox.commit([a_message(1)], stage.now_ms)
    stage.log.is_down = True
    stage.clock.date_ms += 5_000
    await relay.round()
    assert len(stage.outbox.commits) == 1
    assert relay.counters.faults == 1
    assert relay.outbox_oldest_seconds == 5
    stage.log.is_down = False
    await relay.round()
    assert stage.outbox.commits == {}


async def test_row_is_published_as_soon_as_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """A text that waited for slower rows could be deleted at another gateway meanwhile. And a row
    that cannot be read now keeps none back that was published."""
    stage = Stage(relay_after_ms=0)
    relay = stage.relay("a")
    slow = stage.outbox.commit([a_message(1)])
    stage.outbox.commit([a_message(2)])
    read, publish = stage.outbox.outbox_events, stage.log.publish_nowait
    is_published = asyncio.Event()

    def publish_and_tell(events: Sequence[LoggedEvent], done: PublishDone) -> None:
        publish(events, done)
        is_published.set()

    async def read_slowly(row: OutboxRow) -> list[LoggedEvent] | None:
        if row.key == slow:
            await is_published.wait()
            raise StoreUnavailable("the test says so")
        return await read(row)

    monkeypatch.setattr(stage.log, "publish_nowait", publish_and_tell)
    monkeypatch.setattr(stage.outbox, "outbox_events", read_slowly)
    async with asyncio.timeout(10):
        await relay.round()
    assert stage.log.events == [a_message(2)]
    assert list(stage.outbox.commits) == [slow]
    assert relay.counters.faults == 1


async def test_row_that_is_not_whole_stays_and_does_not_hide_the_others() -> None:
    stage = Stage(relay_after_ms=0, relay_rows_max=1)
    relay = stage.relay("a")
    hidden = stage.outbox.commit([a_message(1), a_message(2)], stage.now_ms)
    stage.outbox.commit([a_message(3)], stage.now_ms)
    stage.outbox.hidden.add(hidden)
    await relay.round()
    assert stage.log.events == [a_message(3)]
    assert list(stage.outbox.commits) == [hidden]
    assert relay.counters.rows_incomplete == 1
    stage.outbox.hidden.clear()
    await relay.round()
    assert stage.log.events == [a_message(3), a_message(1), a_message(2)]
    assert stage.outbox.commits == {}


async def test_row_that_cannot_be_read_stays_is_told_once_and_hides_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    stage = Stage(relay_after_ms=0, relay_rows_max=1)
    relay = stage.relay("a")
    broken = stage.outbox.commit([a_message(1)], stage.now_ms)
    stage.outbox.commit([a_message(3)], stage.now_ms)
    stage.outbox.broken.add(broken)
    stage.clock.date_ms += 5_000
    await relay.round()
    await relay.round()
    assert stage.log.events == [a_message(3)]
    assert list(stage.outbox.commits) == [broken]
    assert relay.counters.rows_unreadable == 2
    assert relay.counters.faults == 0
    # It is not late: it will never come.
    assert relay.outbox_oldest_seconds == 0
    [told] = [one.getMessage() for one in our_lines(caplog)]
    assert told.startswith("a row of the outbox cannot be read (KeyError)")
    assert told.endswith(f"shard {broken.shard}, {broken.row}")


async def test_log_tells_of_so_many_rows_that_cannot_be_read(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidewire.ingest.relay.UNREADABLE_TOLD_MAX", 2)
    stage = Stage(relay_after_ms=0)
    for sequence in range(1, 4):
        stage.outbox.broken.add(stage.outbox.commit([a_message(sequence)]))
    relay = stage.relay("a")
    await relay.round()
    assert len(our_lines(caplog)) == 2
    assert relay.counters.rows_unreadable == 3


async def test_all_shards_and_pages_are_gone_through_in_a_round() -> None:
    stage = Stage(relay_after_ms=0, relay_rows_max=3)
    relay = stage.relay("a")
    for number in range(100):
        stage.outbox.commit([a_rename(number, ChatId(f"chat_{number % 30}"))])
    await relay.round()
    assert len(stage.log.events) == 100
    assert stage.outbox.commits == {}


async def test_two_relays_share_the_shards_and_publish_nothing_twice() -> None:
    stage = Stage(relay_after_ms=0)
    one, other = stage.relay("a"), stage.relay("b")
    await one.round()
    assert len(one.shards) == SHARDS
    for _ in range(2):
        await other.round()
        await one.round()
    assert sorted(one.shards + other.shards) == list(range(SHARDS))
    assert len(one.shards) == len(other.shards)
    for number in range(50):
        stage.outbox.commit([a_rename(1, ChatId(f"chat_{number}"))])
    await asyncio.gather(one.round(), other.round())
    assert len(stage.log.events) == 50
    assert one.counters.rows_published > 0
    assert other.counters.rows_published > 0


async def test_shards_of_a_relay_that_died_are_taken_over_when_its_leases_run_out() -> None:
    stage = Stage(relay_after_ms=0, lease_ms=10_000)
    dead, alive = stage.relay("a"), stage.relay("b")
    for _ in range(2):
        await dead.round()
        await alive.round()
    shard = dead.shards[0]
    chat = next(ChatId(f"chat_{n}") for n in range(9999) if shard_of(ChatId(f"chat_{n}")) == shard)
    stage.outbox.commit([a_rename(1, chat)])
    for _ in range(9):
        stage.clock.date_ms += 1_000
        await alive.round()
        assert stage.log.events == []
    stage.clock.date_ms += 1_000
    await alive.round()
    assert len(alive.shards) == SHARDS
    assert stage.log.events == [a_rename(1, chat)]
    # It was only asleep: it has lost its shards, and gets its share back in time.
    assert dead.shards == []
    for _ in range(2):
        await dead.round()
        await alive.round()
    assert len(dead.shards) == len(alive.shards) == SHARDS // 2


async def test_relay_that_closes_gives_its_shards_up_at_once() -> None:
    stage = Stage()
    one, other = stage.relay("a"), stage.relay("b")
    for _ in range(2):
        await one.round()
        await other.round()
    await one.close()
    assert one.shards == []
    await other.round()
    assert len(other.shards) == SHARDS


async def test_relay_does_nothing_without_a_lease_that_holds() -> None:
    """The store does not answer for longer than the lease: the shards may be somebody else's."""
    stage = Stage(relay_after_ms=0)
    relay = stage.relay("a")
    await relay.round()
    stage.outbox.commit([a_message(1)])
    stage.clock.date_ms += stage.options.lease_ms
    assert relay.shards == []
    stage.outbox.is_down = True
    await relay.round()
    assert relay.counters.faults == 1
    await relay.close()
    assert relay.counters.faults == 2


async def test_run_goes_on_after_faults() -> None:
    stage = Stage(relay_after_ms=0, relay_poll_ms=1, relay_pause_ms_max=2)
    relay = stage.relay("a")
    stage.outbox.is_down = True
    stage.outbox.commit([a_message(1)])
    tasks = TaskSupervisor()
    tasks.start_service("relay", relay.run())
    async with asyncio.timeout(30):
        while relay.counters.faults < 3:
            await _turn()
        stage.outbox.is_down = False
        while not stage.log.events:
            await _turn()
    await tasks.close()


async def _turn() -> None:
    loop = asyncio.get_running_loop()
    turned = loop.create_future()
    loop.call_later(0.001, turned.set_result, None)
    await turned


# How often it looks.


class CountingOutbox(MemoryOutbox):
    """Counts the looks at each shard and at the leases."""

    def __init__(self) -> None:
        super().__init__()
        self.looks: dict[int, int] = {}
        self.lease_looks = 0

    async def outbox_rows(
        self, shard: int, *, after: str | None, count_max: int
    ) -> list[OutboxRow]:
        self.looks[shard] = self.looks.get(shard, 0) + 1
        return await super().outbox_rows(shard, after=after, count_max=count_max)

    async def lease_table(self, relay_id: str, *, until_ms: int, now_ms: int) -> LeaseTable:
        self.lease_looks += 1
        return await super().lease_table(relay_id, until_ms=until_ms, now_ms=now_ms)


async def live(stage: Stage, *relays: Relay, seconds: int) -> None:
    for _ in range(seconds):
        stage.clock.passed_ms += 1_000
        stage.clock.date_ms += 1_000
        for relay in relays:
            await relay.step()


def counting(stage: Stage) -> CountingOutbox:
    stage.outbox = outbox = CountingOutbox()
    return outbox


async def test_idle_relay_looks_seldom() -> None:
    stage = Stage()
    outbox = counting(stage)
    relay = stage.relay("a")
    await live(stage, relay, seconds=240)
    outbox.looks.clear()
    outbox.lease_looks = 0
    await live(stage, relay, seconds=120)
    assert set(outbox.looks) == set(range(SHARDS))
    assert max(outbox.looks.values()) <= 2
    assert 14 <= outbox.lease_looks <= 16


async def test_relays_look_at_once_when_another_has_gone_or_come() -> None:
    stage = Stage()
    outbox = counting(stage)
    dying, alive = stage.relay("a"), stage.relay("b")
    await live(stage, dying, alive, seconds=120)
    shard = alive.shards[0]
    chat = next(ChatId(f"chat_{n}") for n in range(9999) if shard_of(ChatId(f"chat_{n}")) == shard)
    outbox.commit([a_rename(1, chat)], stage.now_ms)
    # From here on the other one is dead: 15 s of its lease, 8 s until that is seen.
    await live(stage, alive, seconds=15 + 8 + 1)
    assert stage.log.events == [a_rename(1, chat)]
    await live(stage, alive, seconds=120)
    outbox.looks.clear()
    await live(stage, stage.relay("c"), alive, seconds=9)
    assert all(shard in outbox.looks for shard in alive.shards)


async def test_relay_sees_to_what_its_own_process_left_wherever_it_is() -> None:
    """The log was away for a moment, or the answer to a commit was lost."""
    stage = Stage()
    outbox = counting(stage)
    one, other = stage.relay("a"), stage.relay("b")
    left: set[int] = set()
    one.take_left = lambda: {left.pop()} if left else set()
    await live(stage, one, other, seconds=120)
    for add in (left.add, lambda one: outbox.doubtful.add(one)):
        stage.log.events.clear()
        shard = other.shards[0]
        chat = next(ChatId(f"c_{n}") for n in range(9999) if shard_of(ChatId(f"c_{n}")) == shard)
        outbox.commit([a_rename(1, chat)], stage.now_ms)
        add(shard)
        await live(stage, one, seconds=5)
        assert stage.log.events == [a_rename(1, chat)]
        await live(stage, one, other, seconds=240)
        assert shard not in one._looks, "it is the other's"
