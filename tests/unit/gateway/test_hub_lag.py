"""The hub while the event log is behind: connections are told, less and less often."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.unit.gateway.fakes import turns
from tests.unit.gateway.stage import Stage, staged
from tests.unit.gateway.test_hub import crowd, users
from tidewire.domain.ids import UserId
from tidewire.domain.resync import ResyncReason
from tidewire.gateway.options import GatewayOptions


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Stage]:
    async with staged(tmp_path) as stage:
        yield stage


async def test_lag_that_lasts_is_told_less_and_less_often(stage: Stage) -> None:
    one, other = await crowd(stage, 2)
    told_s = []
    for second in range(61):
        if second % 5 == 0:
            stage.hub.resync([*users([one]), UserId("user_x")], ResyncReason.LOG_BEHIND)
        await turns()
        for frame in one.new_frames():
            assert frame["payload"] == {"reason": "log_behind", "delay_ms": 0}
            told_s.append(second)
        stage.clock.forward(1_000)
    assert told_s == [0, 5, 15, 35]
    assert other.new_frames() == []
    assert stage.hub.counters.resyncs == 4


async def test_lag_of_any_chat_is_told_to_everybody_not_all_at_once(tmp_path: Path) -> None:
    async with staged(tmp_path, GatewayOptions(return_rate_per_second=10)) as stage:
        peers = await crowd(stage, 3)
        for _ in range(2):
            stage.hub.resync(None, ResyncReason.LOG_BEHIND)
        await turns()
        frames = [frame for peer in peers for frame in peer.new_frames()]
        assert [frame["payload"]["delay_ms"] for frame in frames] == [0, 100, 200]
