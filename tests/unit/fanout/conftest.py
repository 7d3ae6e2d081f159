"""A stage for every test of the worker."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.unit.fanout.stage import Harness, Stage


@pytest.fixture
async def engine(tmp_path: Path) -> AsyncIterator[Harness]:
    engine = Harness(tmp_path)
    await engine.open()
    yield engine
    await engine.close()


@pytest.fixture
async def stage(engine: Harness) -> AsyncIterator[Stage]:
    stage = Stage(engine)
    yield stage
    await stage.tasks.close()
