"""The fan-out worker on a real store: everybody concerned gets every push in order, or is told."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.unit.fanout.stage import CONNECTION, Harness, SlowRosters, Stage
from tests.unit.gateway.fakes import turns
from tidewire.domain.delivery import Floors
from tidewire.domain.errors import StoreUnavailable
from tidewire.domain.events import StatusMissed
from tidewire.domain.ids import ChatId
from tidewire.fanout import worker
from tidewire.fanout.options import FanoutOptions
from tidewire.ports.runtime import pause
from tidewire.runtime.clock import SystemClock


async def test_worker_pushes_messages_to_all_members_in_commit_order(stage: Stage) -> None:
    ann, ben, cem = await stage.world.people(3)
    stage.connect(ann, ben, cem)
    chat_id = await stage.world.group(ann, ben)
    for _ in range(3):
        await stage.world.send(chat_id, ann)
    stage.fan_out()
    assert stage.sequences(ann) == stage.sequences(ben) == [1, 2, 3]
    assert stage.sequences(cem) == []
    assert stage.worker.counters.roster_reads == 0


async def test_worker_reads_unknown_members_and_keeps_the_order_meanwhile(stage: Stage) -> None:
    ann, ben = await stage.world.people(2)
    chat_id = await stage.world.direct(ann, ben)
    stage.world.new_commits()
    stage.connect(ann, ben)
    stage.storage.gate.clear()
    for _ in range(2):
        await stage.world.send(chat_id, ann)
        stage.fan_out()
    assert stage.sequences(ben) == []
    stage.storage.gate.set()
    await stage.router.until(lambda: len(stage.sequences(ben)) == 2)
    await stage.world.send(chat_id, ann)
    stage.fan_out()
    assert stage.sequences(ben) == [1, 2, 3]
    assert stage.worker.counters.roster_reads == 1


async def test_removed_member_is_told_and_gets_nothing_after_it(stage: Stage) -> None:
    ann, ben, cem = await stage.world.people(3)
    stage.connect(ann, ben, cem)
    chat_id = await stage.world.group(ann, ben, cem)
    await stage.world.send(chat_id, ann)
    await stage.world.remove(ann, chat_id, cem)
    await stage.world.send(chat_id, ann)
    stage.fan_out()
    assert stage.sequences(ben) == [1, 2]
    assert stage.sequences(cem) == [1]
    last = stage.router.got(cem, "chat_update")[-1]
    assert (last["change"], last["user_id"]) == ("member_removed", cem)


async def test_closed_group_is_told_to_all_and_nothing_after_it(stage: Stage) -> None:
    ann, ben, cem = await stage.world.people(3)
    stage.connect(ann, ben, cem)
    chat_id = await stage.world.group(ann, ben)
    await stage.world.send(chat_id, ann)
    commits = stage.world.new_commits()
    await stage.world.close_group(ann, chat_id)
    for commit in (*commits, *stage.world.new_commits()):
        stage.bus(commit)
    for user_id in (ann, ben):
        last = stage.router.got(user_id, "chat_update")[-1]
        assert (last["change"], last["user_id"]) == ("member_removed", user_id)
        assert last["is_closed"] is True
    assert stage.router.connected[cem] == []
    # What comes late concerns no member any more.
    got = len(stage.router.connected[ben])
    stage.bus(commits[-1])
    await stage.settled()
    assert len(stage.router.connected[ben]) == got


async def test_worker_tells_everybody_to_sync_when_members_cannot_be_read(stage: Stage) -> None:
    ann, ben = await stage.world.people(2)
    chat_id = await stage.world.direct(ann, ben)
    stage.world.new_commits()
    stage.storage.failures = FanoutOptions().read_attempts_max
    await stage.world.send(chat_id, ann)
    stage.fan_out()
    await stage.router.until(lambda: bool(stage.router.resyncs))
    assert stage.router.resyncs == [(None, "store_unavailable")]


async def test_worker_tries_again_when_members_cannot_be_read_for_a_moment(stage: Stage) -> None:
    ann, ben = await stage.world.people(2)
    chat_id = await stage.world.direct(ann, ben)
    stage.world.new_commits()
    stage.connect(ben)
    stage.storage.failures = FanoutOptions().read_attempts_max - 1
    await stage.world.send(chat_id, ann)
    stage.fan_out()
    await stage.router.until(lambda: stage.sequences(ben) == [1])
    assert stage.router.resyncs == []


async def test_worker_tells_everybody_to_sync_when_too_much_waits(engine: Harness) -> None:
    stage = Stage(engine, waiting_events_max=2)
    ann, ben = await stage.world.people(2)
    chat_id = await stage.world.direct(ann, ben)
    stage.world.new_commits()
    stage.connect(ben)
    stage.storage.gate.clear()
    await stage.world.send_many(chat_id, ann, 2)
    stage.fan_out()
    assert stage.router.resyncs == []
    await stage.world.send(chat_id, ann)
    stage.fan_out()
    assert stage.router.resyncs == [(None, "fanout_overloaded")]
    stage.storage.gate.set()
    await stage.world.send(chat_id, ann)
    stage.fan_out()
    await stage.router.until(lambda: 4 in stage.sequences(ben))
    await stage.tasks.close()


async def test_events_wait_for_the_members_of_their_chats(stage: Stage) -> None:
    anna, ben = await stage.world.people(2)
    stage.connect(ben)
    chats = [await stage.world.group(anna, ben) for _ in range(3)]
    stage.world.new_commits()
    for chat in chats:
        await stage.world.send(chat, anna)
    stage.storage.gate.clear()
    stage.fan_out()
    await pause(50)
    assert stage.worker.waiting_count == 3
    assert stage.sequences(ben) == []
    stage.storage.gate.set()
    await stage.settled()
    assert stage.sequences(ben) == [1, 1, 1]


async def test_worker_whose_caller_can_wait_tries_on_and_tells_nobody(engine: Harness) -> None:
    """Neither many attempts nor many events make clients sync: the log bounds what waits."""
    stage = Stage(engine, can_wait=True, waiting_events_max=2)
    anna, ben = await stage.world.people(2)
    stage.connect(ben)
    chat = await stage.world.group(anna, ben)
    stage.world.new_commits()
    await stage.world.send_many(chat, anna, 3)
    stage.storage.failures = 3 * FanoutOptions().read_attempts_max
    stage.fan_out()
    assert stage.worker.is_waiting(chat)
    await stage.settled()
    assert not stage.worker.is_waiting(chat)
    assert stage.sequences(ben) == [1, 2, 3]
    assert stage.router.resyncs == []
    await stage.tasks.close()


async def test_what_cannot_be_pushed_makes_the_chat_sync_and_no_other(stage: Stage) -> None:
    """A record of a newer server: it may have changed who is in the chat, so that is read."""
    anna, ben, cem = await stage.world.people(3)
    chat = await stage.world.group(anna, ben)
    await stage.world.group(anna, cem)
    stage.fan_out()
    reads = stage.storage.reads
    stage.worker.missed(chat)
    await stage.settled()
    assert stage.storage.reads == reads + 1
    assert stage.router.resyncs == [([anna, ben], "pushes_lost")]
    stage.worker.missed(stage.world.no_chat())
    await stage.settled()
    assert len(stage.router.resyncs) == 1


async def test_members_and_former_ones_are_told_that_the_log_is_behind(stage: Stage) -> None:
    anna, ben, eve = await stage.world.people(3)
    chat = await stage.world.group(anna, ben)
    stage.worker.behind(chat, [])
    await stage.router.until(lambda: stage.router.resyncs == [([anna, ben], "log_behind")])
    stage.worker.behind(chat, [eve])
    assert stage.router.resyncs[1:] == [([eve], "log_behind")]
    await stage.router.until(lambda: len(stage.router.resyncs) == 3)


async def test_former_members_of_a_closed_group_are_told_that_the_log_is_behind(
    stage: Stage,
) -> None:
    anna = await stage.world.person()
    stage.worker.behind(stage.world.no_chat(), [anna])
    await turns(5)
    assert stage.router.resyncs == [([anna], "log_behind")]


async def test_none_is_told_that_the_log_is_behind_while_members_cannot_be_read(
    stage: Stage,
) -> None:
    """It is said again soon: a store that is away must not make all clients ask it for digests."""
    anna, ben = await stage.world.people(2)
    chat = await stage.world.group(anna, ben)
    stage.storage.failures = 1
    stage.worker.behind(chat, [])
    await turns()
    assert (stage.storage.failures, stage.router.resyncs) == (0, [])
    stage.worker.behind(chat, [])
    await stage.router.until(lambda: stage.router.resyncs == [([anna, ben], "log_behind")])


async def test_what_cannot_be_pushed_is_told_in_the_end_when_members_cannot_be_read(
    engine: Harness,
) -> None:
    stage = Stage(engine, can_wait=True)
    anna, ben = await stage.world.people(2)
    chat = await stage.world.group(anna, ben)
    stage.fan_out()
    stage.storage.failures = FanoutOptions().read_attempts_max
    stage.worker.missed(chat)
    await stage.settled()
    assert stage.router.resyncs == [([anna, ben], "pushes_lost")]
    await stage.tasks.close()


async def test_ticks_reach_the_author_from_delivered_to_read(stage: Stage) -> None:
    ann, ben = await stage.world.people(2)
    chat_id = await stage.world.direct(ann, ben)
    await stage.world.send(chat_id, ann)
    stage.connect(ann, ben)
    stage.fan_out()
    await stage.world.ack(ben, chat_id, 1)
    stage.fan_out()
    await stage.router.until(lambda: bool(stage.router.got(ann, "status_update")))
    await stage.world.read(ben, chat_id, 1)
    stage.fan_out()
    await stage.router.until(lambda: len(stage.router.got(ann, "status_update")) == 2)
    shown = [
        (update["others_delivered"], update["others_read"])
        for update in stage.router.got(ann, "status_update")
    ]
    assert shown == [(1, 0), (1, 1)]
    own = stage.router.got(ben, "status_update")[-1]
    assert (own["own_delivered"], own["own_read"], own["unread"]) == (1, 1, 0)


async def test_status_is_not_repeated_unless_somebody_came_back(stage: Stage) -> None:
    ann, ben, cem = await stage.world.people(3)
    chat_id = await stage.world.group(ann, ben, cem)
    await stage.world.send_many(chat_id, ann, 2)
    stage.connect(ann, ben)
    stage.fan_out()
    await stage.world.ack(ben, chat_id, 1)
    stage.fan_out()
    await stage.router.until(lambda: bool(stage.router.got(ben, "status_update")))
    told = len(stage.router.got(ann, "status_update"))
    await stage.world.ack(ben, chat_id, 2)
    stage.fan_out()
    await stage.router.until(lambda: len(stage.router.got(ben, "status_update")) == 2)
    # Cem still has nothing, so nothing changed for Ann.
    assert len(stage.router.got(ann, "status_update")) == told
    stage.miss_status(chat_id, ben)
    await stage.router.until(lambda: len(stage.router.got(ann, "status_update")) == told + 1)


async def test_leaver_raises_the_boundary_for_the_others(stage: Stage) -> None:
    ann, ben, cem = await stage.world.people(3)
    chat_id = await stage.world.group(ann, ben, cem)
    await stage.world.send(chat_id, ann)
    await stage.world.ack(ben, chat_id, 1)
    stage.world.new_commits()
    stage.connect(ann)
    await stage.world.leave(cem, chat_id)
    stage.fan_out()
    await stage.router.until(lambda: bool(stage.router.got(ann, "status_update")))
    assert stage.router.got(ann, "status_update")[-1]["others_delivered"] == 1


async def test_typing_is_relayed_for_members_only(stage: Stage) -> None:
    ann, ben, cem = await stage.world.people(3)
    chat_id = await stage.world.direct(ann, ben)
    stage.connect(ann, ben, cem)
    stage.fan_out()
    stage.worker.typing(ann, chat_id, is_typing=True, origin=CONNECTION)
    stage.worker.typing(cem, chat_id, is_typing=True, origin=CONNECTION)
    stage.worker.typing(ann, stage.world.no_chat(), is_typing=True, origin=CONNECTION)
    assert [payload["user_id"] for payload in stage.router.got(ben, "typing_indicator")] == [ann]
    assert stage.router.got(ann, "typing_indicator") == []


async def test_own_numbers_are_not_sent_to_somebody_with_one_device(stage: Stage) -> None:
    ann, ben = await stage.world.people(2)
    chat_id = await stage.world.direct(ann, ben)
    await stage.world.send(chat_id, ann)
    stage.connect(ann, ben)
    stage.router.devices = 1
    stage.fan_out()
    await stage.world.read(ben, chat_id, 1)
    stage.fan_out()
    await stage.router.until(lambda: bool(stage.router.got(ann, "status_update")))
    assert all("own_read" not in update for update in stage.router.got(ben, "status_update"))


class CountingFloors(SlowRosters):
    """Remembers how many chats each read was about, and fails when a test says so."""

    asked: list[int]
    floor_failures = 0

    async def floors(self, chat_ids: Sequence[ChatId]) -> list[Floors | None]:
        self.asked.append(len(chat_ids))
        if self.floor_failures:
            self.floor_failures -= 1
            raise StoreUnavailable("the test says so")
        return await super().floors(chat_ids)


class CountingHarness(Harness):
    async def _open(self) -> CountingFloors:
        storage = CountingFloors(self._listen)
        storage.gate, storage.answered, storage.outdated = asyncio.Event(), asyncio.Event(), []
        storage.gate.set()
        storage.answered.set()
        storage.asked = []
        return storage


@pytest.mark.parametrize("failures", [0, 2])
async def test_status_of_many_chats_is_read_together_within_the_bound(
    tmp_path: Path, failures: int
) -> None:
    engine = CountingHarness(tmp_path)
    storage = await engine.open()
    assert isinstance(storage, CountingFloors)
    storage.floor_failures = failures
    stage = Stage(engine, status_batch_max=4)
    ann, *others = await stage.world.people(11)
    stage.connect(ann)
    for other in others:
        chat_id = await stage.world.direct(ann, other)
        await stage.world.send(chat_id, ann)
        await stage.world.ack(other, chat_id, 1)
    stage.fan_out()
    await stage.router.until(lambda: len(stage.router.got(ann, "status_update")) == 10)
    # Ten chats were due at once: three reads, and those that failed again.
    assert max(storage.asked) == 4
    assert len(storage.asked) == 3 + failures
    await stage.tasks.close()
    await engine.close()


async def test_ticks_of_a_large_chat_are_told_less_often(
    engine: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "LARGE_MEMBERS", 2)
    stage = Stage(engine, status_large_interval_ms=400)
    ann, ben, cem = await stage.world.people(3)
    small, large = await stage.world.group(ann, ben), await stage.world.group(ann, ben, cem)
    stage.connect(ann)
    told_at_ms: dict[ChatId, list[int]] = {small: [], large: []}
    for chat_id in (small, large):
        await stage.world.send_many(chat_id, ann, 2)
    await stage.world.ack(cem, large, 2)
    stage.world.new_commits()
    for chat_id in (small, large):
        for sequence in (1, 2):
            await stage.world.ack(ben, chat_id, sequence)
            stage.fan_out()
            count = len(stage.router.got(ann, "status_update"))
            await stage.router.until(
                lambda count=count: len(stage.router.got(ann, "status_update")) > count  # type: ignore[misc]
            )
            told_at_ms[chat_id].append(SystemClock().monotonic_ms())
    waits = {chat_id: at[1] - at[0] for chat_id, at in told_at_ms.items()}
    assert waits[large] >= 390
    assert waits[small] < waits[large]
    await stage.tasks.close()


async def test_worker_that_ends_tells_nothing_more(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    ann, ben = await stage.world.people(2)
    chat_id = await stage.world.direct(ann, ben)
    stage.worker.status_missed([StatusMissed(chat_id, ann)])
    await stage.tasks.close()
    stage.worker.status_missed([StatusMissed(chat_id, ben)])
    await pause(50)
    assert not [one for one in caplog.records if one.levelname in ("ERROR", "CRITICAL")]
