"""A Redis Cluster of which one server is killed: its users are told, all others go on.

slow: the servers are real, and it takes a second or two until one is known to be gone.
"""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.engines.redis.test_losses import delivers, until
from tests.support.pushing import give
from tests.support.redis import Net, Node, OwnCluster, net_on
from tidewire.domain.ids import UserId
from tidewire.engines.redis.checking import check_redis
from tidewire.engines.redis.link import Link

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]


@pytest.fixture
async def own_cluster(tmp_path: Path) -> AsyncIterator[OwnCluster]:
    cluster = OwnCluster(tmp_path)
    await cluster.start()
    try:
        yield cluster
    finally:
        cluster.kill()


def name_at(cluster: OwnCluster, net: Net, server: int) -> str:
    """Of a gateway whose stream is at that server."""
    wanted = cluster.servers[server]
    names = (f"n{number}" for number in range(100))
    return next(one for one in names if cluster.server_of(net.keys.gateway(f"gw_{one}")) is wanted)


def user_at(cluster: OwnCluster, net: Net, server: int, start: str) -> UserId:
    """A user whose routes are at that server."""
    wanted = cluster.servers[server]
    users = (UserId(f"{start}{number}") for number in range(200))
    return next(one for one in users if cluster.server_of(net.keys.route(one)) is wanted)


async def test_link_finds_out_that_it_is_a_cluster(own_cluster: OwnCluster) -> None:
    async with net_on(own_cluster.url) as net:
        link = Link(net.options)
        assert (await link.keys()).is_tagged
        assert len(await link.describe()) == 3
        await link.close()
        sentences = await check_redis(net.options)
        assert len(sentences) == 3
        assert all("maxmemory is not set" in one and "127.0.0.1:" in one for one in sentences)
        own_cluster.servers[2].kill()
        sentences = await check_redis(net.options)
        assert sum("does not answer" in one for one in sentences) == 1
        assert len(sentences) == 3


async def test_killed_server_means_resync_for_its_gateway_and_users_and_the_others_go_on(
    own_cluster: OwnCluster,
) -> None:
    async with net_on(own_cluster.url, timeout_ms=1_000, attempts_max=2) as net:
        lost = await net.node(name_at(own_cluster, net, 2))
        kept = await net.node(name_at(own_cluster, net, 0))
        at_lost = user_at(own_cluster, net, 0, "ann")
        unknown, well = user_at(own_cluster, net, 2, "ben"), user_at(own_cluster, net, 1, "cem")
        await lost.connect(at_lost)
        unsure = await kept.connect(unknown)
        await kept.connect(well)
        for node, user_id in ((lost, at_lost), (kept, unknown), (kept, well)):
            await delivers(net, node, user_id, b"before")

        own_cluster.servers[2].kill()
        # Under pushes: those of the others arrive, in order. Who cannot be looked up is found too.
        sent = [f"{number}".encode() for number in range(30)]
        for body in sent:
            give(net.router, [at_lost, unknown, well], body)
            await asyncio.sleep(0.02)
        await kept.local.until(lambda: kept.local.bodies[-1:] == sent[-1:])
        assert kept.local.bodies[2:] == sent
        assert [users for users, _, _ in kept.local.pushed[2:]] == [[unknown, well]] * len(sent)
        assert net.router.queue.losses == 0
        assert net.router.counters.everywhere > 0
        await until(lambda: _is_lost(lost))
        assert kept.local.resynced == lost.local.resynced == []

        await own_cluster.servers[2].start()
        # It is empty. Its gateway tells everybody, the other one that user whose route was gone.
        await lost.local.until(lambda: None in lost.local.resynced)
        await kept.local.until(lambda: bool(kept.local.resynced_connections))
        assert kept.local.resynced_connections == [unsure.connection_id]
        assert kept.local.resynced == []
        assert kept.local.lost == 0
        for node, user_id in ((lost, at_lost), (kept, unknown), (kept, well)):
            await arrives(net, node, user_id)


async def _is_lost(node: Node) -> bool:
    return node.inbox.is_lost


async def arrives(net: Net, node: Node, user_id: UserId) -> None:
    """The router may tell the gateway once more that it has missed something; then it is over."""
    body = f"after {user_id}".encode()
    while body not in node.local.bodies:
        give(net.router, [user_id], body)
        await asyncio.sleep(0.1)


async def test_gateway_that_a_router_alone_could_not_reach_is_told(
    own_cluster: OwnCluster,
) -> None:
    """Nothing of it is seen at the gateway: only the router knows, and says so."""
    async with net_on(own_cluster.url, timeout_ms=1_000, attempts_max=2) as net:
        lost = await net.node(name_at(own_cluster, net, 2))
        kept = await net.node(name_at(own_cluster, net, 0))
        await net.router.settled()
        net.router._owed.add(lost.gateway_id)
        give(net.router, [UserId("nobody")], b"x")
        await lost.local.until(lambda: lost.local.lost == 1)
        assert lost.local.resynced == [None]
        assert kept.local.resyncs_count == 0
        await net.router.settled()
        await until(lambda: _is_paid(net))


async def _is_paid(net: Net) -> bool:
    return net.router._owed == set()
