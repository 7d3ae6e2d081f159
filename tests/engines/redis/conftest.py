"""Gateways and a router on a real Redis."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support import stack
from tests.support.redis import Net, OwnRedis, net_on
from tidewire.domain.accounts import Secret

collect_ignore_glob = ["test_*.py"] if stack.IS_OFF else []


@pytest.fixture
def url() -> Secret:
    """The Redis that all tests share; each has a prefix of its own."""
    return Secret(f"redis://127.0.0.1:{stack.ensure('redis')}/0")


@pytest.fixture
async def net(url: Secret) -> AsyncIterator[Net]:
    async with net_on(url) as made:
        yield made


@pytest.fixture
async def own(tmp_path: Path) -> AsyncIterator[OwnRedis]:
    """A Redis for this test alone."""
    redis = OwnRedis(tmp_path)
    await redis.start()
    try:
        yield redis
    finally:
        redis.kill()
