"""Pushes across gateways: to whom they belong, in order, once; and what else gateways are told."""

import asyncio

from redis.asyncio.cluster import RedisCluster

from tests.support.pushing import give
from tests.support.redis import Net, Node, net_on
from tidewire.domain.accounts import Secret
from tidewire.domain.ids import ChatId, ConnectionId, SessionId, UserId
from tidewire.domain.news import ChatNews, Move
from tidewire.domain.resync import ResyncReason
from tidewire.ports.router import Push

ANN, BEN, CEM = UserId("ann"), UserId("ben"), UserId("cem")


async def two(net: Net) -> tuple[Node, Node]:
    return await net.node("a"), await net.node("b")


async def test_push_reaches_users_at_both_gateways_and_nobody_else(net: Net) -> None:
    a, b = await two(net)
    await a.connect(ANN)
    await b.connect(BEN)
    await b.connect(CEM)
    give(net.router, [ANN, BEN, UserId("nobody")], b"hello", except_connection=ConnectionId("c1"))
    give(net.router, [CEM], b"end")
    await a.local.until(lambda: bool(a.local.pushed))
    await b.local.until(lambda: b"end" in b.local.bodies)
    assert a.local.pushed == [([ANN], b"hello", ConnectionId("c1"))]
    assert b.local.pushed == [([BEN], b"hello", ConnectionId("c1")), ([CEM], b"end", None)]


async def test_user_with_devices_at_both_gateways_gets_it_at_both(net: Net) -> None:
    a, b = await two(net)
    await a.connect(ANN, "phone")
    await a.connect(ANN, "watch")
    await b.connect(ANN, "laptop")
    give(net.router, [ANN], b"x")
    await a.local.until(lambda: bool(a.local.pushed))
    await b.local.until(lambda: bool(b.local.pushed))
    # One entry a gateway: the hub there knows the connections.
    assert a.local.pushed == b.local.pushed == [([ANN], b"x", None)]
    assert await net.router.presence([ANN, BEN]) == {ANN: 3}


async def test_frame_whose_type_cannot_be_told_reaches_its_users(net: Net) -> None:
    """The type is for the metrics alone: another version's frame must not end the inbox."""
    a = await net.node("a")
    await a.connect(ANN)
    strange = bytes(range(128, 160))
    give(net.router, [ANN], strange)
    await a.local.until(lambda: a.local.bodies == [strange])


async def test_pushes_keep_their_order(url: Secret) -> None:
    async with net_on(url, batch_pushes_max=7) as net:
        a, b = await two(net)
        await a.connect(ANN)
        await b.connect(BEN)
        sent = [str(number).encode() for number in range(500)]
        for body in sent:
            give(net.router, [ANN, BEN], body)
        await net.router.settled()
        for node in (a, b):
            await node.local.until(lambda node=node: len(node.local.pushed) == 500)  # type: ignore[misc]
            assert node.local.bodies == sent
        assert net.router.counters.batches > 50


async def test_route_that_was_unregistered_gets_nothing(net: Net) -> None:
    a = await net.node("a")
    route = await a.connect(ANN)
    await a.connect(BEN)
    a.inbox.unregister(route)
    # Wishes are granted in order, so this one tells that the one before was.
    await a.connect(CEM)
    give(net.router, [ANN], b"late")
    give(net.router, [BEN], b"end")
    await a.local.until(lambda: b"end" in a.local.bodies)
    assert a.local.bodies == [b"end"]
    assert await net.router.presence([ANN, BEN]) == {BEN: 1}


async def test_connection_of_a_device_closes_the_older_one_elsewhere(net: Net) -> None:
    a, b = await two(net)
    older = await a.connect(ANN, "phone")
    await a.connect(ANN, "laptop")
    await b.connect(ANN, "phone")
    await a.local.until(lambda: bool(a.local.closed_connections))
    assert a.local.closed_connections == [older.connection_id]
    assert b.local.closed_connections == []


async def test_registration_counts_other_devices_elsewhere(net: Net) -> None:
    a, b = await two(net)
    await a.connect(ANN, "phone")
    await a.connect(ANN, "laptop")
    await b.connect(ANN, "tablet")
    route = await b.connect(ANN, "phone")
    assert await b.inbox.register(route) == 1


async def test_every_gateway_is_told_of_revocations_and_rosters(net: Net) -> None:
    a, b = await two(net)
    net.router.revoke([SessionId("s1"), SessionId("s2")])
    net.router.forget_roster(ChatId("chat_1"))
    for local in (a.local, b.local):
        await local.until(lambda local=local: bool(local.rosters))  # type: ignore[misc]
        assert local.revoked == [SessionId("s1"), SessionId("s2")]
        assert local.rosters == [ChatId("chat_1")]


async def test_resync_reaches_users_or_everybody(net: Net) -> None:
    a, b = await two(net)
    await a.connect(ANN)
    net.router.resync([ANN], ResyncReason.STORE_UNAVAILABLE)
    net.router.resync(None, ResyncReason.FANOUT_OVERLOADED)
    await a.local.until(lambda: len(a.local.resynced) == 2)
    await b.local.until(lambda: len(b.local.resynced) == 1)
    assert a.local.resynced == [[ANN], None]
    assert b.local.resynced == [None]
    assert b.local.reasons == [ResyncReason.FANOUT_OVERLOADED]
    assert a.local.lost == 0


async def test_gateway_that_left_is_known_no_more(net: Net) -> None:
    a = await net.node("a")
    await a.connect(ANN)
    net.nodes.remove(a)
    await a.inbox.stop()
    assert await net.names("gateway*") == []
    give(net.router, [ANN], b"x")
    await net.router.settled()
    assert net.router.counters.entries == 0


async def test_load_without_a_fault_means_no_resync(url: Secret) -> None:
    # A registration that a busy machine has wait is no fault of Redis; a loss would be.
    options = {"assert_ms": 100, "drain_ms": 100, "assert_chunk": 30, "register_ms": 30_000}
    async with net_on(url, **options) as net:
        # There each user's route is a call.
        count = 1_000 if isinstance(net.redis, RedisCluster) else 5_000
        a, b = await two(net)
        users = [UserId(f"user{number}") for number in range(200)]
        await asyncio.gather(*((a, b)[n % 2].connect(one) for n, one in enumerate(users)))
        for number in range(count):
            at = number * 7 % 200
            give(net.router, [users[at], users[(at + 1) % 200]], str(number).encode())
            if number % 50 == 0:
                # As a fan-out worker does between its batches.
                await net.router.settled()
                # Connections come and go meanwhile.
                route = await a.connect(f"guest{number}")
                a.inbox.unregister(route)
        for node in (a, b):
            await node.local.until(lambda node=node: len(node.local.pushed) == count)  # type: ignore[misc]
            numbers = [int(body) for body in node.local.bodies]
            assert numbers == sorted(numbers)
            assert node.local.resyncs_count == 0
            assert node.local.lost == 0
        assert net.router.queue.losses == 0


async def test_news_reach_the_other_gateways_alone_or_with_a_push(net: Net) -> None:
    """In order, as pushes are; the gateway that tells knows already."""
    a, b = await net.node("a"), await net.node("b")
    await a.connect(ANN)
    await b.connect(BEN)
    alone = ChatNews(ChatId("chat_1"), 3, 7, (Move(ANN, 6, 5),))
    with_push = ChatNews(ChatId("chat_1"), 3, 8)
    net.router.spread(alone, [ANN, BEN])
    net.router.push(Push([BEN], "message", b"body", news=with_push))
    await b.local.until(lambda: b"body" in b.local.bodies)
    assert b.local.news == [alone, with_push]
    await a.local.until(lambda: a.local.news == [alone])
    assert b.inbox.routed_at_ms(BEN) is not None
    assert b.inbox.routed_at_ms(ANN) is None


async def test_gateway_is_told_whose_news_may_have_gone_past_it(net: Net) -> None:
    a = await net.node("a")
    route = await a.connect(ANN)
    await net.forget(net.keys.route(ANN))
    await a.local.until(lambda: a.local.unrouted == [ANN])
    assert a.inbox.routed_at_ms(ANN) is not None
    a.inbox.unregister(route)
    assert a.local.unrouted == [ANN, ANN]
    assert a.inbox.routed_at_ms(ANN) is None
