"""Gateways and a router on a real Redis."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.support import stack
from tests.support.redis import Net, OwnCluster, OwnRedis, net_on
from tidewire.domain.accounts import Secret

collect_ignore_glob = ["test_*.py"] if stack.IS_OFF else []


@pytest.fixture(scope="session")
def shared_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OwnCluster]:
    cluster = OwnCluster(tmp_path_factory.mktemp("redis_cluster"))
    asyncio.run(cluster.start())
    try:
        yield cluster
    finally:
        cluster.kill()


@pytest.fixture(params=["single", "cluster"])
def url(request: pytest.FixtureRequest) -> Secret:
    """A Redis, and a Redis Cluster, that all tests share; each has a prefix of its own."""
    if request.param == "cluster":
        cluster: OwnCluster = request.getfixturevalue("shared_cluster")
        return cluster.url
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
