"""The hub of a gateway process, whose store is another process."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.unit.gateway.fakes import turns
from tests.unit.gateway.stage import SETTLED, Stage, staged
from tests.unit.gateway.test_hub import FakeRegistrar


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Stage]:
    async with staged(tmp_path) as stage:
        yield stage


async def test_hub_without_a_store_closes_all_at_once_and_refuses_nothing(stage: Stage) -> None:
    ann, _, chat_id = await stage.pair()
    peer, other = await stage.connect(ann), await stage.connect(await stage.world.person())
    peer.sends("r1", chat_id, 1)
    stage.hub.abandon()
    for one in (peer, other):
        assert one.new_types() == ["connection_closing"]
        assert one.closed == (1012, "server_shutdown")
    assert stage.hub.is_shutting_down


async def test_route_that_is_gone_already_is_never_made_known(
    stage: Stage,
) -> None:
    """It would stay for good: that it is gone was told before."""
    registrar = FakeRegistrar()
    stage.hub.use_registrar(registrar, stage.tasks)
    peer = stage.arrives(await stage.world.person())
    peer.goes()
    await turns(SETTLED)
    assert registrar.registered == []
