"""A gateway that looks at what it has committed, and has the members told whose pushes are late."""

import asyncio
from collections.abc import Sequence

from tests.unit.gateway.fakes import ManualClock
from tidewire.domain.ids import ChatId, UserId
from tidewire.domain.lag import Behind
from tidewire.domain.resync import ResyncReason
from tidewire.fanout.lag import BEHIND_MS, CHATS_MAX
from tidewire.fanout.lag_teller import LagTeller
from tidewire.runtime.supervise import TaskSupervisor

ONE, OTHER = ChatId("chat_1"), ChatId("chat_2")
ANNA = UserId("user_anna")


class Stage:
    def __init__(self) -> None:
        self.clock = ManualClock()
        self.unlogged: Behind | None = {}
        self.unread: Behind | None = {}
        self.told: list[tuple[ChatId, list[UserId]]] = []
        self.told_all: list[str] = []
        self.told_once = asyncio.Event()
        self.teller = LagTeller(
            unlogged=self._unlogged,
            late=self._late,
            members=self,
            everybody=self,
            clock=self.clock,
        )

    def _unlogged(self, before_ms: int) -> Behind | None:
        assert before_ms == self.clock.monotonic_ms() - BEHIND_MS
        return self.unlogged

    async def _late(self, late_ms: int) -> Behind | None:
        assert late_ms == BEHIND_MS
        return self.unread

    def behind(self, chat_id: ChatId, former: Sequence[UserId]) -> None:
        self.told.append((chat_id, list(former)))
        self.told_once.set()

    def resync(self, user_ids: Sequence[UserId] | None, reason: ResyncReason) -> None:
        assert user_ids is None
        self.told_all.append(reason)


async def test_chats_that_wait_before_the_log_and_in_it_are_told_each_once() -> None:
    stage = Stage()
    await stage.teller.step()
    assert (stage.told, stage.teller.chats_behind) == ([], 0)
    stage.unlogged, stage.unread = {ONE: ()}, {ONE: (ANNA,), OTHER: ()}
    await stage.teller.step()
    assert stage.told == [(ONE, [ANNA]), (OTHER, [])]
    assert stage.teller.chats_behind == 2
    stage.clock.forward(1_000)
    await stage.teller.step()
    assert len(stage.told) == 2
    stage.unlogged, stage.unread = {}, {}
    await stage.teller.step()
    assert stage.teller.chats_behind == 0


async def test_everybody_is_told_where_any_chat_may_wait() -> None:
    stage = Stage()
    stage.unread = None
    await stage.teller.step()
    assert stage.told_all == ["log_behind"]
    assert stage.told == []
    assert stage.teller.chats_behind == CHATS_MAX


async def test_teller_looks_for_as_long_as_the_process_lives() -> None:
    stage = Stage()
    stage.unread = {ONE: ()}
    tasks = TaskSupervisor()
    tasks.start_service("log-lag", stage.teller.run())
    async with asyncio.timeout(10):
        await stage.told_once.wait()
    await tasks.close()
