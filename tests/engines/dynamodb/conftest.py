"""A store behind a proxy, and the same store without it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support import stack
from tests.support.dynamodb import local_options, watch
from tests.support.dynamodb_proxy import Proxy
from tests.support.engines import DynamoHarness
from tests.support.world import World
from tidewire.domain.events import Event
from tidewire.engines.dynamodb.storage import DynamoStorage

ATTEMPT_MS = 1_000
BUDGET_MS = 15_000
"""Short enough to wait for, long enough for a machine that is busy with other tests."""

collect_ignore_glob = ["test_*.py"] if stack.IS_OFF else []


@pytest.fixture
async def direct(tmp_path: Path) -> AsyncIterator[World]:
    """A world on the tables, with nothing between."""
    harness = DynamoHarness(tmp_path)
    await harness.open()
    yield World(harness)
    await harness.close()


@pytest.fixture
async def proxy() -> AsyncIterator[Proxy]:
    async with Proxy.running(stack.ensure("dynamodb")) as running:
        yield running


class Behind:
    """Another process, as it were: a store of its own on the same tables, through the proxy."""

    def __init__(self, storage: DynamoStorage, events: list[Event]) -> None:
        self.storage = storage
        self.events = events


@asynccontextmanager
async def another(proxy: Proxy, **changed: Any) -> AsyncIterator[Behind]:
    settings = {"attempt_ms": ATTEMPT_MS, "budget_ms": BUDGET_MS} | changed
    options = local_options(proxy.port, **settings)
    events: list[Event] = []
    storage = await DynamoStorage.open(options, listener=lambda told: events.extend(told))
    watch(storage, options)
    try:
        yield Behind(storage, events)
    finally:
        await storage.close()


@pytest.fixture
async def behind(direct: World, proxy: Proxy) -> AsyncIterator[Behind]:
    """Opened after the tables were emptied for `direct`."""
    async with another(proxy) as opened:
        yield opened
