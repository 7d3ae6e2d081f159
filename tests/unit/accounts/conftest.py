"""A memory store, and the account plane on it."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.engines import MemoryHarness
from tests.unit.accounts.parts import Plane


@pytest.fixture
async def engine(tmp_path: Path) -> AsyncIterator[MemoryHarness]:
    harness = MemoryHarness(tmp_path)
    await harness.open()
    yield harness
    await harness.close()


@pytest.fixture
def plane(engine: MemoryHarness) -> Plane:
    return Plane(engine)
