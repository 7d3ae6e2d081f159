"""The engine under test: every test of the suite runs over each."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.engines import ENGINES, EngineHarness, LinkedHarness
from tests.support.world import World


@pytest.fixture(params=[*ENGINES, LinkedHarness], ids=lambda harness: harness.name)
async def engine(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[EngineHarness]:
    harness: EngineHarness = request.param(tmp_path)
    await harness.open()
    yield harness
    await harness.close()


@pytest.fixture
def world(engine: EngineHarness) -> World:
    return World(engine)
