"""The engine under test: every test of the suite runs over each."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support import stack
from tests.support.engines import ENGINES, DynamoHarness, EngineHarness
from tests.support.world import World


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what takes minutes on the cluster's engines; the run says so at its end."""
    slow = [item for item in items if _is_too_slow(item)]
    if slow and not stack.IS_FULL:
        config.hook.pytest_deselected(items=slow)
        items[:] = [item for item in items if item not in slow]


def _is_too_slow(item: pytest.Item) -> bool:
    calls = getattr(item, "callspec", None)
    engine = None if calls is None else calls.params.get("engine")
    return engine is DynamoHarness and item.path.name in stack.TOO_SLOW


@pytest.fixture(params=ENGINES, ids=lambda harness: harness.name)
async def engine(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[EngineHarness]:
    harness: EngineHarness = request.param(tmp_path)
    await harness.open()
    yield harness
    await harness.close()


@pytest.fixture
def world(engine: EngineHarness) -> World:
    return World(engine)
