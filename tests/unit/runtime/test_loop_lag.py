"""The loop's lag is what a timer was late."""

import asyncio

import pytest

from tidewire.runtime import metrics
from tidewire.runtime.metrics import LoopLag


async def test_lag_is_noted_and_the_worst_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "LAG_INTERVAL_S", 0.001)
    watched = LoopLag()
    loop = asyncio.get_running_loop()
    watched.start()
    # Hold the loop up: that is what is to be seen.
    until = loop.time() + 0.03
    while loop.time() < until:
        pass
    turned = loop.create_future()
    loop.call_later(0.01, turned.set_result, None)
    await turned
    watched.stop()
    assert watched.highest_s > 0.02
    assert watched.last_s <= watched.highest_s
    watched.stop()
